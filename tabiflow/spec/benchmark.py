"""Rows for the tasks of a generative benchmark: where a task's rows come from, what is asked of a
model, and how its answers are scored.

Knows what a row may say; not which tasks there are, and no wording of a prompt.
"""

from typing import Literal

from pydantic import PositiveInt, model_validator

from tabiflow.protocol import Frozen
from tabiflow.spec.rows import Name

Category = Literal["QA", "MCQA", "TC", "NLI", "SUM", "MT", "GEC"]
Answered = Literal["option", "letter", "written_letter", "text"]
Rule = Literal["sum", "per_character", "per_token"]


class Generation(Frozen):
    """How an answer is written. What of it the server does not honour, the client does."""

    max_tokens: PositiveInt = 64
    beams: PositiveInt = 1
    """1 is greedy."""
    stop: tuple[str, ...] = ("\n",)


class BenchmarkTask(Frozen):
    """One task: a column of the benchmark's tables.

    `options`, `gold`, `subject` and `source` are expressions over a row's fields, in the language
    of `tabiflow.generative.sandbox`.
    """

    name: Name
    """As the benchmark's repository calls it."""
    column: str
    """In the paper's tables."""
    category: Category
    group: str = ""
    """Of a task that is a part of another column: that column."""
    hub: str = ""
    """The id that the benchmark's repository loads; empty where the rows are a local file's."""
    revision: str | None = None
    """A hub commit; None takes the newest and records it."""
    configs: tuple[str, ...] = ()
    """Several are read one after the other; each is then a subject."""
    split: str = "test"
    validation: str | None = None
    """Where baselines are chosen and option orders tried; None where the release has no such."""
    fields: tuple[str, ...]
    rows: PositiveInt | None = None
    """In `split`; None where no source says it."""
    rows_from: str = ""
    answered: Answered
    """`option`: every option's text is scored as a continuation. `letter`: the options stand in the
    prompt, the letters are scored. `written_letter`: the same, but the letter is read from a
    generated answer. `text`: the answer is generated."""
    options: str | tuple[str, ...] = ()
    """An expression for a list, or the classes that every row has."""
    gold: str
    """The place of the right option, counted from 0, or the reference texts."""
    subject: str = ""
    source: str = ""
    """Of a correction: what was to be corrected."""
    metric: Literal["accuracy", "exact_match", "rouge2", "bleu", "gec_exact_match"]
    """The headline: what the benchmark's tables hold, as far as that is known."""
    paper_metric: str
    rule: Rule | None = None
    """By which an option is chosen; the other rules are recorded beside it."""
    generation: Generation | None = None
    exclusions: tuple[str, ...] = ()
    """Rows that cannot be scored, in words; each is named when it is met."""
    checkout: tuple[str, ...] = ()
    """Its tasks in the benchmark's repository, where these are not one of the same name."""
    version: PositiveInt = 1
    """Raised when what the task means changes."""
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> "BenchmarkTask":
        if (self.answered == "text") == bool(self.options):
            raise ValueError(f"`{self.name}`: options are for tasks that choose among them")
        if (self.answered in ("written_letter", "text")) != (self.generation is not None):
            raise ValueError(f"`{self.name}`: `generation` is for answers that are generated")
        if (self.answered == "option") != (self.rule is not None):
            raise ValueError(f"`{self.name}`: `rule` is for options that are scored whole")
        return self

    @property
    def checkout_names(self) -> tuple[str, ...]:
        return self.checkout or (self.name,)

"""A model's answers to what a task asked -> its figures, each with how it was made. Pure.

Answers are aligned with `asked.test.scored`: likelihoods of all options, the next token's
log-probability of each letter, or generated text, as `asked.task.answered` says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tabiflow.generative.asking import Asked
from tabiflow.generative.metrics import SCORERS, Scores, choice_scores
from tabiflow.generative.scoring import RULES, Likelihood, chosen, cut, first_best, read_mark
from tabiflow.generative.summary import Choices, choices
from tabiflow.spec import Generation


@dataclass(frozen=True)
class Result:
    task: str
    metric: str
    score: float
    """The headline, 0 to 100."""
    figures: Mapping[str, float]
    """Beside the headline the same answers by other rules, and the metric's other figures."""
    rows: Mapping[str, float]
    """Place and prompt hash -> what the row contributes; for `summary.paired`."""
    signature: str
    comparable: bool
    choices: Choices | None = None
    """Of tasks that choose among options."""


def of_options(asked: Asked, answers: Sequence[Sequence[Likelihood]]) -> Result:
    """By the task's rule; the other rules stand beside it as `accuracy_sum` and so on."""
    rule = asked.task.rule or "sum"
    by_rule = {name: [chosen(each, name) for each in answers] for name in RULES}
    beside = {
        f"accuracy_{name}": choice_scores(asked.test.scored, said).figures["accuracy"]
        for name, said in by_rule.items()
    }
    return _of_choices(asked, by_rule[rule], f"rule:{rule}", beside)


def of_letters(asked: Asked, answers: Sequence[Sequence[float]]) -> Result:
    return _of_choices(asked, [first_best(each) for each in answers], "rule:next-token letter", {})


def of_texts(asked: Asked, answers: Sequence[str]) -> Result:
    """Stops are applied here, whether or not the server has."""
    texts = [cut(each, settings(asked).stop) for each in answers]
    items = asked.test.scored
    if asked.task.answered == "written_letter":
        anywhere = asked.template.anywhere
        read = [
            read_mark(text, item.marks, anywhere=anywhere)
            for text, item in zip(texts, items, strict=True)
        ]
        return _of_choices(asked, read, f"rule:written mark|anywhere:{anywhere}", {})
    return _result(asked, SCORERS[asked.task.metric](items, texts))


def settings(asked: Asked) -> Generation:
    """How an answer is written: a checkout's template may say otherwise than the task's row."""
    return asked.template.generation or asked.task.generation or Generation()


def _of_choices(
    asked: Asked, said: Sequence[int | None], rule: str, beside: Mapping[str, float]
) -> Result:
    found = choice_scores(asked.test.scored, said)
    scores = Scores({**found.figures, **beside}, found.rows, f"{rule}|{found.signature}")
    return _result(asked, scores, choices(asked.test, said, asked.validation.scored))


def _result(asked: Asked, scores: Scores, of_choices: Choices | None = None) -> Result:
    keys = [f"{item.index}-{item.hash}" for item in asked.test.scored]
    return Result(
        task=asked.name,
        metric=asked.task.metric,
        score=scores.figures[asked.task.metric],
        figures=scores.figures,
        rows=dict(zip(keys, scores.rows, strict=True)),
        signature=scores.signature,
        comparable=asked.comparable,
        choices=of_choices,
    )

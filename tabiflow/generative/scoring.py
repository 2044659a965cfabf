"""Which option a model has chosen, by rules with names, and what of a generated text is its answer.

The rules read the same log-probabilities differently: the CETVEL paper names the lowest per-token
perplexity (`per_token`), its repository computes `sum` (`acc`) and `per_character` (`acc_norm`).
Exact ties take the first option. Never a default for what is missing: a score that is not a number
is an error of whoever asked.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tabiflow.spec.benchmark import Rule


@dataclass(frozen=True)
class Likelihood:
    """How probable a model finds a continuation after a prompt."""

    logprob: float
    """Sum over the continuation's tokens."""
    tokens: int
    """Of the continuation with its delimiter."""
    characters: int
    """Of the option without the delimiter, as lm-evaluation-harness counts them."""


RULES: Mapping[Rule, Callable[[Likelihood], float]] = {
    "sum": lambda found: found.logprob,
    "per_character": lambda found: found.logprob / found.characters,
    "per_token": lambda found: found.logprob / found.tokens,
}


def chosen(likelihoods: Sequence[Likelihood], rule: Rule) -> int:
    """The option of the highest score; of equal ones the first."""
    if any(each.tokens < 1 or each.characters < 1 for each in likelihoods):
        raise ValueError("an option without a token or a character has no score")
    return first_best([RULES[rule](each) for each in likelihoods])


def first_best(scores: Sequence[float]) -> int:
    """For letters: the next token's log-probabilities, one a letter, from one request."""
    if not scores or any(math.isnan(score) for score in scores):
        raise ValueError("a score is missing")
    return max(range(len(scores)), key=scores.__getitem__)


def single_tokens(letters: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
    """The letters' token ids, where one token is each; None where one request cannot score them.

    Tokenizers may need two tokens for ` A`, or one for several letters; then every letter is a
    continuation like any other.
    """
    if any(len(ids) != 1 for ids in letters):
        return None
    found = tuple(ids[0] for ids in letters)
    return found if len(set(found)) == len(found) else None


def cut(text: str, stops: Sequence[str]) -> str:
    """The text up to the first stop, bare of white space around it.

    What a server does that honours stops; done again here for those that do not (vLLM's beam
    search), so that the answer never depends on the server.
    """
    ends = [text.find(stop) for stop in stops if stop and stop in text]
    return text[: min(ends, default=len(text))].strip()


def read_mark(text: str, marks: Sequence[str], *, anywhere: bool = False) -> int | None:
    """The option that a written answer names; None where it names none.

    The first mark that stands by itself, as in `B`, `b)`, `Cevap: B`. A small letter counts only
    at the beginning, as the whole answer or before `)`, `.` or `:`, since `a` and `e` are also
    words. `anywhere` takes the first mark even inside a word, in either case, as CETVEL's
    repository does.
    """
    if anywhere:
        return _first_inside(text, marks)
    alternatives = "|".join(map(re.escape, marks))
    small = "|".join(re.escape(mark.lower()) for mark in marks)
    pattern = rf"(?<!\w)(?:({alternatives})(?!\w)|({small})(?=[).:]|\s*$))"
    for found in re.finditer(pattern, text):
        mark, lower = found.groups()
        if mark is not None:
            return list(marks).index(mark)
        if not re.search(r"\w", text[: found.start()]):
            return [each.lower() for each in marks].index(lower)
    return None


def _first_inside(text: str, marks: Sequence[str]) -> int | None:
    folded = [mark.lower() for mark in marks]
    places = [(text.lower().find(mark), option) for option, mark in enumerate(folded)]
    return min(((at, option) for at, option in places if at >= 0), default=(0, None))[1]

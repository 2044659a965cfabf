"""Which language generated text seems to be in, to select answers for people to look at.

The identifier (py3langid, its model inside the package) may name any language it knows and abstains
below a confidence that is chosen on human text. Its labels are predictions: drift is what a person
has confirmed, and is counted apart. Short answers mostly end in abstention, as they should.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

TURKISH = "tr"
MISTAKES = 0.01
"""Of human texts, the share that may be given another language's label."""


class Guess(NamedTuple):
    language: str
    confidence: float


@dataclass(frozen=True)
class Abstention:
    """Below `threshold` no label is given. Chosen on `texts` human texts of one language."""

    threshold: float
    texts: int
    mistaken: float
    """Per cent of them that get another language's label even so."""
    abstained: float
    """Per cent of them that get none."""
    identifier: str


@dataclass(frozen=True)
class Languages:
    rows: int
    predicted: Mapping[str, int]
    """Language -> answers, the commonest first."""
    abstained: int
    review: Mapping[str, tuple[int, ...]]
    """Places of the answers that are predicted to be in another language."""
    reviewed: int = 0
    confirmed: int | None = None
    """Answers that people found to be in another language; None as long as no one has looked."""


def guess(text: str) -> Guess:
    """The likeliest of all languages that the identifier knows."""
    language, confidence = _identifier().classify(" ".join(text.split()))
    return Guess(str(language), float(confidence))


def abstention(human: Sequence[str], language: str = TURKISH) -> Abstention:
    """The lowest threshold under which at most 1% of these texts are labelled as another language.

    The texts are to be like the answers that are checked: as long, and of the same domain.
    """
    if not human:
        raise ValueError("a threshold needs human texts")
    guesses = [guess(text) for text in human]
    wrong = sorted(each.confidence for each in guesses if each.language != language)
    allowed = int(MISTAKES * len(guesses))
    threshold = _above(wrong[-1 - allowed]) if len(wrong) > allowed else 0.0
    mistaken = sum(each.language != language and each.confidence >= threshold for each in guesses)
    silent = sum(each.confidence < threshold for each in guesses)
    return Abstention(
        threshold,
        len(guesses),
        100 * mistaken / len(guesses),
        100 * silent / len(guesses),
        f"py3langid {version('py3langid')}",
    )


def languages(answers: Sequence[str], known: Abstention, language: str = TURKISH) -> Languages:
    labelled: dict[str, list[int]] = {}
    for place, answer in enumerate(answers):
        found = guess(answer)
        if answer.strip() and found.confidence >= known.threshold:
            labelled.setdefault(found.language, []).append(place)
    counts = Counter({label: len(places) for label, places in labelled.items()})
    return Languages(
        rows=len(answers),
        predicted=dict(counts.most_common()),
        abstained=len(answers) - counts.total(),
        review={label: tuple(at) for label, at in labelled.items() if label != language},
    )


def with_review(found: Languages, drifted: Mapping[int, bool]) -> Languages:
    """With what people found: answer's place -> whether it is in another language."""
    return replace(found, reviewed=len(drifted), confirmed=sum(drifted.values()))


def _above(confidence: float) -> float:
    """Just above, so that this one is silent."""
    return confidence + 1e-9


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

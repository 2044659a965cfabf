"""When two answers agree: their words, folded, and how many they share."""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

from tabiflow.casing import turkish_lower

_PUNCTUATION = frozenset(string.punctuation)
_ARTICLE = re.compile(r"\b(a|an|the)\b")


def squad_words(text: str) -> list[str]:
    """As the SQuAD script: ASCII punctuation and English articles removed."""
    bare = "".join(letter for letter in text.lower() if letter not in _PUNCTUATION)
    return _ARTICLE.sub(" ", bare).split()


def turkish_words(text: str) -> list[str]:
    """Lower-cased as Turkish is, all of Unicode's punctuation removed (as MLQA's script does).

    Turkish has no articles to drop: `an` is a noun.
    """
    return "".join(each for each in turkish_lower(text) if not _is_punctuation(each)).split()


def _is_punctuation(letter: str) -> bool:
    return letter in _PUNCTUATION or unicodedata.category(letter).startswith("P")


def answer_f1(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Token F1 of two answers as bags of words; two empty ones agree."""
    if not gold or not predicted:
        return 100.0 * (list(gold) == list(predicted))
    common = (Counter(gold) & Counter(predicted)).total()
    return 200 * common / (len(gold) + len(predicted))

"""Error rates of words by what training has shown of them: their form, their lemma. Pure.

Forms and lemmas are compared in lower case, as Turkish has it, so that the first word of a sentence
is not new for its capital. Punctuation is left out: it is never new and seldom wrong. The cells
show where errors are; they do not say why.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from tabiflow.casing import turkish_lower

UNKNOWN = "_"
"""What treebanks write for a lemma that is not there, as multi-word ranges have it."""


@dataclass(frozen=True)
class Words:
    """The words of a split, one after the other, lower-cased."""

    forms: Sequence[str]
    lemmas: Sequence[str | None] | None
    """None where the data set has no lemmas; of a word, where it has none of its own."""


def words(rows: pa.Table) -> Words:
    tokens = rows["tokens"].to_pylist()
    forms = [turkish_lower(form) for form in chain.from_iterable(tokens)]
    if "lemmas" not in rows.column_names:
        return Words(forms, None)
    given = [
        lemmas if lemmas is not None else [None] * len(sentence)
        for sentence, lemmas in zip(tokens, rows["lemmas"].to_pylist(), strict=True)
    ]
    return Words(forms, [_lemma(lemma) for lemma in chain.from_iterable(given)])


def error_rates(words: Words, train: Words, wrong: np.ndarray) -> dict[str, float]:
    """`wrong` [words]. A cell's error rate, 0 to 100 and NaN where it is empty, and its words `n`.

    Two cells by form; four by form and lemma where both splits have lemmas. Words without a lemma
    are in none of the four.
    """
    forms = set(train.forms)
    known = np.array([form in forms for form in words.forms], dtype=bool)
    counted = _counted(words)
    cells = {"known_form": counted & known, "new_form": counted & ~known}
    if words.lemmas is not None and train.lemmas is not None:
        lemmas = set(train.lemmas)
        has = np.array([lemma is not None for lemma in words.lemmas], dtype=bool)
        familiar = np.array([lemma in lemmas for lemma in words.lemmas], dtype=bool)
        for form in ("known_form", "new_form"):
            cells[f"{form}_known_lemma"] = cells[form] & has & familiar
            cells[f"{form}_new_lemma"] = cells[form] & has & ~familiar
    rates = {f"error_{name}": _rate(wrong[cell]) for name, cell in cells.items()}
    return rates | {f"n_{name}": float(cell.sum()) for name, cell in cells.items()}


def _counted(words: Words) -> np.ndarray:
    """Punctuation has no letter and no digit, in its form or in its lemma."""
    lemmas = words.lemmas or [None] * len(words.forms)
    texts = (form + (lemma or "") for form, lemma in zip(words.forms, lemmas, strict=True))
    return np.array([any(letter.isalnum() for letter in text) for text in texts], dtype=bool)


def _lemma(lemma: str | None) -> str | None:
    return None if lemma is None or lemma == UNKNOWN else turkish_lower(lemma)


def _rate(wrong: np.ndarray) -> float:
    return 100 * float(wrong.mean()) if len(wrong) else math.nan

"""Which rows train, validate and test: the rule of TabiBERT section 4.2. Pure.

The cuts belong to the data, not to a trial, so their seed never changes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

SEED = 25
NAMES = ("train", "validation", "test")
STRATIFIED = frozenset({"classification", "nli"})
"""Kinds of task whose rows have a class."""
Strata = Sequence[str] | None
"""The class of each row; None where there are no classes."""


@dataclass(frozen=True)
class Part:
    """One split: rows of one of the splits that were given."""

    source: str
    rows: np.ndarray | None = None
    """In ascending order; None is all of them."""


@dataclass(frozen=True)
class Cut:
    """How the given splits become train, validation and test."""

    rule: str
    parts: Mapping[str, Part]


def to_cut(given: frozenset[str]) -> str | None:
    """The given split that is cut in parts, so that its classes must be known; None keeps all."""
    if len(given) == 1:
        return next(iter(given))
    if given == {"validation", "test"}:
        return "validation"
    return None if given == set(NAMES) else "train"


def cut(given: frozenset[str], size: Callable[[str], int], strata: Strata) -> Cut:
    """`size` is asked for the rows of a given split only where the rule needs them; `strata` are
    the classes of the split that is cut."""
    source = to_cut(given)
    if source is None:
        return Cut("as given", {name: Part(name) for name in NAMES})
    stratified = "" if strata is None else ", stratified"
    if given == {"train", "test"}:
        train, validation = _split(size("train"), size("test"), strata)
        rule = f"validation of test's size from train{stratified}"
        parts = [Part("train", train), Part("train", validation), Part("test")]
    elif given == {"train", "validation"}:
        train, validation = _split(size("train"), size("validation"), strata)
        rule = f"validation is test, a new one of its size from train{stratified}"
        parts = [Part("train", train), Part("train", validation), Part("validation")]
    elif given == {"validation", "test"}:
        whole = size("validation")
        train, validation = _split(whole, _share(whole, 20), strata)
        rule = f"validation cut 80/20 into train and validation{stratified}"
        parts = [Part("validation", train), Part("validation", validation), Part("test")]
    else:
        rule = f"{source} cut 70/15/15{stratified}"
        parts = [Part(source, rows) for rows in _three_parts(size(source), strata)]
    return Cut(rule, dict(zip(NAMES, parts, strict=True)))


def sample(rows: int, keep: int | None) -> np.ndarray:
    """`keep` of so many rows, by a seeded shuffle, in their original order; None keeps all."""
    return np.sort(_generator().permutation(rows)[:keep])


def _three_parts(size: int, strata: Strata) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    train, held_out = _split(size, _share(size, 30), strata)
    inner = None if strata is None else [strata[row] for row in held_out]
    validation, test = _split(len(held_out), _share(len(held_out), 50), inner)
    return train, held_out[validation], held_out[test]


def _share(size: int, percent: int) -> int:
    """Rounded up, as scikit-learn does for the part that is held out."""
    return -(-size * percent // 100)


def _split(size: int, held_out: int, strata: Strata) -> tuple[np.ndarray, np.ndarray]:
    """Rows that stay, rows that are held out: all of them when asked for more than there are."""
    generator = _generator()
    classes = np.zeros(size, np.int64) if strata is None else _classes(strata)
    counts = np.bincount(classes)
    chosen = np.zeros(size, bool)
    for each, wanted in enumerate(_apportioned(counts, min(size, held_out))):
        members = np.flatnonzero(classes == each)
        chosen[generator.permutation(members)[:wanted]] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def _classes(strata: Sequence[str]) -> np.ndarray:
    return np.unique(np.asarray(strata, dtype=str), return_inverse=True)[1]


def _apportioned(counts: np.ndarray, wanted: int) -> np.ndarray:
    """So many of each class, by largest remainder: each within one row of its exact share."""
    scaled = counts * wanted
    whole, remainder = np.divmod(scaled, max(1, counts.sum()))
    left = wanted - whole.sum()
    whole[np.argsort(-remainder, kind="stable")[:left]] += 1
    return whole


def _generator() -> np.random.RandomState:
    # Its stream is frozen across numpy versions; that of `default_rng` is not.
    return np.random.RandomState(SEED)

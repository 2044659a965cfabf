"""How well bundles of features are predicted, whole and feature by feature. Pure.

A feature that only the gold bundle has, or only the predicted one, is a wrong one; a word on which
neither has it says nothing about it. Figures are 0 to 100, NaN where nothing is counted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tabiflow.rows import features
from tabiflow.tasks.metrics import agreement, metric_part


@dataclass(frozen=True)
class Counts:
    """Words by feature."""

    gold: Counter[str] = field(default_factory=Counter)
    predicted: Counter[str] = field(default_factory=Counter)
    both: Counter[str] = field(default_factory=Counter)
    """Gold and prediction have it, whatever its value."""
    right: Counter[str] = field(default_factory=Counter)


def counts(gold: Sequence[str], predicted: Sequence[str | None]) -> Counts:
    """Over bundles; a prediction that is none has no features."""
    found = Counts()
    for (true, said), times in Counter(zip(gold, predicted, strict=True)).items():
        known, told = _features(true), _features(said)
        shared = known.keys() & told.keys()
        _add(found.gold, known, times)
        _add(found.predicted, told, times)
        _add(found.both, shared, times)
        _add(found.right, (name for name in shared if known[name] == told[name]), times)
    return found


def features_together(found: Counts) -> dict[str, float]:
    """All features' figures, each occurrence of a feature counted once."""
    gold, predicted, both, right = (
        each.total() for each in (found.gold, found.predicted, found.both, found.right)
    )
    figures = agreement(right, gold, predicted, gold + predicted - both)
    return {f"features_{name}": value for name, value in figures.items()}


def features_apart(found: Counts, bundles: Iterable[str]) -> dict[str, float]:
    """Each feature's figures and the gold words that have it, `n`.

    Features of the known `bundles` are listed even where the split has none of them.
    """
    known = {name for bundle in bundles for name in _features(bundle)}
    figures: dict[str, float] = {}
    for name in sorted(known | found.gold.keys() | found.predicted.keys()):
        gold, predicted = found.gold[name], found.predicted[name]
        either = gold + predicted - found.both[name]
        scores = agreement(found.right[name], gold, predicted, either)
        stem = f"feature_{metric_part(name)}"
        figures |= {f"{stem}_{score}": value for score, value in scores.items()}
        figures[f"{stem}_n"] = float(gold)
    return figures


def _add(counter: Counter[str], names: Iterable[str], times: int) -> None:
    for name in names:
        counter[name] += times


@lru_cache(maxsize=10_000)
def _features(bundle: str | None) -> Mapping[str, str]:
    return (features(bundle) or {}) if bundle is not None else {}

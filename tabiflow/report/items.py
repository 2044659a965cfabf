"""The predictions of confirming trials as something that can be drawn again, and what that shows.

One entry a headline metric: what it needs to know of each item, as columns of numbers, and the
metric as a function of how often a draw holds each item. A metric without an entry has a score
and no interval.
"""

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tabiflow.answers import answer_f1, turkish_words
from tabiflow.draws import (
    CELLS,
    EXACT_ITEMS,
    Floats,
    Metric,
    macro_f1_of,
    mean_of,
    micro_f1_of,
    pearson_of,
    two_sides,
)
from tabiflow.statistics import SEED, exceeding, permutation_of, wilson
from tabiflow.trial import digest

DRAWS = 2000
"""Of each interval and test; the smallest p of that many, Holm's over 27 sets, is still 0.03."""

Records = Sequence[Mapping[str, Any]]
"""`{row, prediction, reference}` of each test item."""
Columns = tuple[NDArray[Any], ...]


@dataclass(frozen=True)
class Measure:
    columns: Callable[[Sequence[Any], Sequence[Any]], Columns]
    """Predictions and references -> what the metric needs of each item."""
    metric: Callable[..., Metric]
    """Columns -> the metric over draws."""
    share: str = ""
    """Name of the proportion that stands beside the metric, if one does."""
    hits: Callable[[Columns], tuple[float, float]] | None = None
    """Columns -> hits, and what they are of."""


@dataclass(frozen=True)
class Items:
    """One trial's test items."""

    measure: Measure
    key: str
    """Two trials saw the same items exactly if their keys are equal."""
    columns: Columns

    @property
    def size(self) -> int:
        return len(self.columns[0])

    @property
    def metric(self) -> Metric:
        return self.measure.metric(*self.columns)

    @property
    def score(self) -> float:
        return float(self.metric(np.ones((1, self.size)))[0])


@dataclass(frozen=True)
class Share:
    """A proportion with Wilson's interval, in per cent."""

    name: str
    hits: float
    """Mean over the seeds, so not always whole."""
    of: int
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Drawn:
    """One model's items of a data set, one set of them a seed, and its score in every draw."""

    runs: tuple[Items, ...]
    samples: Floats
    """[DRAWS] Mean over the seeds. Of one data set draw by draw the same items for each model."""

    @property
    def share(self) -> Share | None:
        """None where the metric knows no proportion."""
        measure = self.runs[0].measure
        if measure.hits is None:
            return None
        counts = np.array([measure.hits(each.columns) for each in self.runs])
        hits, of = counts.mean(axis=0).tolist()
        value = 100 * hits / of if of else math.nan
        return Share(measure.share, hits, int(of), value, *wilson(hits, of))


def items(metric: str, records: Records) -> Items | None:
    """None for a metric that is not known here, or without predictions."""
    measure = MEASURES.get(metric)
    if measure is None or not records:
        return None
    rows, predictions, references = (
        [each[name] for each in records] for name in ("row", "prediction", "reference")
    )
    key = digest([rows, references])
    return Items(measure, key, measure.columns(predictions, references))


def drawn(dataset: str, runs: Mapping[str, Sequence[Items]]) -> dict[str, Drawn]:
    """By model; `runs` holds its items of each seed. Of one item there is nothing to draw.

    Models that saw the same items have the same draws, so that their differences are paired.
    """
    together: dict[str, list[str]] = {}
    for model, found in runs.items():
        keys = {each.key for each in found}
        if len(keys) == 1 and found[0].size > 1:
            together.setdefault(keys.pop(), []).append(model)
    return {
        model: each
        for models in together.values()
        for model, each in _drawn(dataset, {model: runs[model] for model in models}).items()
    }


def _drawn(dataset: str, runs: Mapping[str, Sequence[Items]]) -> dict[str, Drawn]:
    units, counts = _pooled([each for found in runs.values() for each in found])
    remaining = iter(units)
    metrics = {
        model: _mean_of([next(remaining).metric for _ in found]) for model, found in runs.items()
    }
    # Data sets of one size must not be drawn alike: their averages would look less sure.
    random = np.random.default_rng([SEED, zlib.crc32(dataset.encode())])
    size, shares = counts.sum(), counts / counts.sum()
    blocks = []
    for draws in _blocks(len(counts)):
        weights = random.multinomial(size, shares, size=draws).astype(np.float64)
        blocks.append([metric(weights) for metric in metrics.values()])
    samples = np.concatenate(blocks, axis=1)
    return {
        model: Drawn(tuple(runs[model]), found) for model, found in zip(runs, samples, strict=True)
    }


def paired(a: Drawn, b: Drawn) -> bool:
    return a.runs[0].key == b.runs[0].key


def permuted(a: Drawn, b: Drawn) -> float:
    """p of the paired permutation test; NaN for other items or another number of seeds.

    An item is swapped between the models in all seeds at once: it is the item that is drawn.
    """
    if not paired(a, b) or len(a.runs) != len(b.runs):
        return math.nan
    if a.runs[0].size <= EXACT_ITEMS:
        return permutation_of(_side_by_side(a.runs, b.runs), a.runs[0].size)
    units, counts = _pooled([*a.runs, *b.runs])
    metric = _side_by_side(units[: len(a.runs)], units[len(a.runs) :])
    whole = counts[None].astype(np.float64)
    observed = two_sides(metric, whole, np.zeros_like(whole))
    random = np.random.default_rng(SEED)
    found = []
    for draws in _blocks(2 * len(counts)):
        swapped = random.binomial(counts, 0.5, size=(draws, len(counts))).astype(np.float64)
        found.append(two_sides(metric, whole - swapped, swapped))
    return exceeding(float(observed[0]), np.concatenate(found), a.runs[0].size)


def _side_by_side(ours: Sequence[Items], theirs: Sequence[Items]) -> Metric:
    """Over the rows of one model and then the other's, mean over the seeds."""
    return _mean_of(
        [
            a.measure.metric(*map(np.concatenate, zip(a.columns, b.columns, strict=True)))
            for a, b in zip(ours, theirs, strict=True)
        ]
    )


def _pooled(runs: Sequence[Items]) -> tuple[list[Items], NDArray[np.int64]]:
    """Items that are equal in all runs as one, and how many there are of each.

    Their draws are the same in distribution; of 35,000 reviews some hundred differ.
    """
    columns = [column for each in runs for column in each.columns]
    codes = np.stack([np.unique(column, return_inverse=True)[1] for column in columns], axis=1)
    _, first, counts = np.unique(codes, axis=0, return_index=True, return_counts=True)
    units = [
        replace(each, columns=tuple(column[first] for column in each.columns)) for each in runs
    ]
    return units, counts


def _blocks(width: int) -> Iterator[int]:
    """How many draws to make at a time."""
    most = max(1, CELLS // width)
    yield from (min(most, DRAWS - start) for start in range(0, DRAWS, most))


def _mean_of(metrics: Sequence[Metric]) -> Metric:
    def metric(weights: Floats) -> Floats:
        scores: Floats = np.mean([each(weights) for each in metrics], axis=0)
        return scores

    return metric


def _values(predictions: Sequence[Any], references: Sequence[Any]) -> Columns:
    return np.asarray(references), np.asarray(predictions)


def _words(predictions: Sequence[Any], references: Sequence[Any]) -> Columns:
    """Right words and words of each sentence."""
    pairs = zip(predictions, references, strict=True)
    hits = [sum(p == r for p, r in zip(said, true, strict=True)) for said, true in pairs]
    words = np.array([len(each) for each in references])
    return np.array(hits), words


def _entities(predictions: Sequence[Any], references: Sequence[Any]) -> Columns:
    """Right, predicted and gold entities of each sentence, read as the headline metric does."""
    # seqeval brings scikit-learn, which no other verb should wait for.
    from seqeval.metrics.sequence_labeling import get_entities

    pairs = [
        (set(get_entities(list(said))), set(get_entities(list(true))))
        for said, true in zip(predictions, references, strict=True)
    ]
    counts = [(len(said & true), len(said), len(true)) for said, true in pairs]
    right, said, true = np.array(counts).T
    return right, said, true


def _answers(predictions: Sequence[Any], references: Sequence[Any]) -> Columns:
    """F1 and exact match of each answer, 0 to 100, of the gold answer that it meets best."""
    f1, exact = [], []
    for said, true in zip(predictions, references, strict=True):
        words = turkish_words(said["prediction_text"])
        golds = [turkish_words(each) for each in true["answers"]["text"]] or [[]]
        f1.append(max(answer_f1(gold, words) for gold in golds))
        exact.append(100.0 * (words in golds))
    return np.array(f1), np.array(exact)


def _gains(predictions: Sequence[Any], references: Sequence[Any]) -> Columns:
    """NDCG@10 of each query, 0 to 100, from the ranks of its relevant documents."""
    discount = 1 / np.log2(np.arange(10) + 2)
    ideal = np.cumsum(discount)
    pairs = zip(predictions, references, strict=True)
    scores = [
        100 * sum(discount[rank - 1] for rank in ranks if rank <= 10) / ideal[min(n, 10) - 1]
        for ranks, n in pairs
    ]
    return (np.array(scores),)


def _right(columns: Columns) -> tuple[float, float]:
    gold, predicted = columns
    return float((gold == predicted).sum()), len(gold)


def _right_words(columns: Columns) -> tuple[float, float]:
    hits, words = columns
    return float(hits.sum()), float(words.sum())


def _exact(columns: Columns) -> tuple[float, float]:
    _, exact = columns
    return float((exact == 100).sum()), len(exact)


MEASURES: Mapping[str, Measure] = {
    "macro_f1": Measure(_values, macro_f1_of, "accuracy", _right),
    "word_f1": Measure(
        _words, lambda hits, words: micro_f1_of(hits, words, words), "word accuracy", _right_words
    ),
    "entity_f1": Measure(_entities, micro_f1_of),
    "pearson": Measure(_values, pearson_of),
    "span_f1": Measure(_answers, lambda f1, _: mean_of(f1), "exact match", _exact),
    "ndcg_at_10": Measure(_gains, mean_of),
}

"""The predictions of confirming trials as something that can be drawn again, and what that shows.

One entry a headline metric: what it needs to know of each item, as columns of numbers, and the
metric as a function of how often a draw holds each item. A metric without an entry has a score
and no interval.
"""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tabiflow.draws import Floats, Metric, macro_f1_of, mean_of, micro_f1_of, pearson_of, resamples
from tabiflow.statistics import SEED, permutation_of, wilson
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


def drawn(dataset: str, runs: Sequence[Items]) -> Drawn | None:
    """None where there is nothing to draw from, or seeds that saw different items."""
    if len({each.key for each in runs}) != 1 or runs[0].size < 2:
        return None
    # Data sets of one size must not be drawn alike: their averages would look less sure.
    seed = SEED + zlib.crc32(dataset.encode())
    metric = _mean_of([each.metric for each in runs])
    blocks = [metric(weights) for weights in resamples(runs[0].size, DRAWS, seed)]
    return Drawn(tuple(runs), np.concatenate(blocks))


def paired(a: Drawn, b: Drawn) -> bool:
    return a.runs[0].key == b.runs[0].key


def permuted(a: Drawn, b: Drawn) -> float:
    """p of the paired permutation test; NaN for other items or another number of seeds.

    An item is swapped between the models in all seeds at once: it is the item that is drawn.
    """
    if not paired(a, b) or len(a.runs) != len(b.runs):
        return math.nan
    both = [
        ours.measure.metric(*map(np.concatenate, zip(ours.columns, theirs.columns, strict=True)))
        for ours, theirs in zip(a.runs, b.runs, strict=True)
    ]
    return permutation_of(_mean_of(both), a.runs[0].size, draws=DRAWS)


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
    """F1 and exact match of each answer, 0 to 100."""
    # The metric's home brings torch, which no other verb should wait for.
    from tabiflow.tasks.metrics import answer_scores

    scores = [
        answer_scores([true["answers"]["text"]], [said["prediction_text"]])
        for said, true in zip(predictions, references, strict=True)
    ]
    f1, exact = (np.array([each[name] for each in scores]) for name in ("span_f1", "exact_match"))
    return f1, exact


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

"""Items drawn again: how often a draw holds each item, and metrics as functions of that.

A metric over weights scores thousands of draws in one matrix product; nothing here knows what a
draw is good for, which `statistics` does.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Metric = Callable[[Floats], Floats]
"""[draws, items], how often each draw holds each item -> [draws], the score of each draw."""

EXACT_ITEMS = 16
"""Of so many items or fewer, all 2^n swaps are gone through."""
CELLS = 1_000_000
"""Most numbers of one block of draws: bounds memory whatever the size of a test split."""


def mean_of(scores: ArrayLike) -> Metric:
    """For accuracy, span F1, NDCG: whatever is a mean over items."""
    values = floats(scores)

    def metric(weights: Floats) -> Floats:
        means: Floats = weights @ values / weights.sum(axis=1)
        return means

    return metric


def macro_f1_of(gold: ArrayLike, predicted: ArrayLike) -> Metric:
    """Mean F1 of the classes that a draw's gold or predictions hold, 0 to 100."""
    true, said = np.asarray(gold), np.asarray(predicted)
    classes = np.unique(np.concatenate([true, said]))
    is_true, is_said = ((each[:, None] == classes).astype(np.float64) for each in (true, said))

    def metric(weights: Floats) -> Floats:
        hits = 2 * weights @ (is_true * is_said)
        whole = weights @ (is_true + is_said)
        held = whole > 0
        each = np.divide(hits, whole, out=np.zeros_like(hits), where=held)
        scores: Floats = 100 * each.sum(axis=1) / held.sum(axis=1)
        return scores

    return metric


def micro_f1_of(hits: ArrayLike, predicted: ArrayLike, gold: ArrayLike) -> Metric:
    """F1 over counts of each item, such as a sentence's right, predicted and gold entities."""
    right, whole = floats(hits), floats(predicted) + floats(gold)

    def metric(weights: Floats) -> Floats:
        with np.errstate(invalid="ignore"):
            scores: Floats = 200 * (weights @ right) / (weights @ whole)
        return scores

    return metric


def pearson_of(gold: ArrayLike, predicted: ArrayLike) -> Metric:
    """Pearson's correlation x 100."""
    # Centred first: the moments of numbers far from 0 would cancel.
    x, y = (each - each.mean() for each in (floats(gold), floats(predicted)))
    columns = np.stack([x, y, x * x, y * y, x * y], axis=1)

    def metric(weights: Floats) -> Floats:
        sx, sy, sxx, syy, sxy = (weights @ columns).T
        n = weights.sum(axis=1)
        x_spread, y_spread = _spread(sxx, sx, n), _spread(syy, sy, n)
        scores: Floats = 100 * (sxy - sx * sy / n) / np.sqrt(x_spread * y_spread)
        return scores

    return metric


def _spread(squares: Floats, sums: Floats, n: Floats) -> Floats:
    """Sum of squared deviations; NaN where all values are one but for rounding."""
    found = squares - sums * sums / n
    return np.where(found > 1e-12 * squares, found, math.nan)


def over_rows(score: Callable[[NDArray[np.intp]], float]) -> Metric:
    """For any other metric: `score` takes the rows of one draw. Slow, one call a draw."""

    def metric(weights: Floats) -> Floats:
        rows = np.arange(weights.shape[1])
        return np.array([score(np.repeat(rows, each.astype(int))) for each in weights])

    return metric


def _blocks(items: int, draws: int) -> Iterator[int]:
    """How many draws to make at a time."""
    if draws < 1:
        raise ValueError("at least one draw is needed")
    most = max(1, CELLS // max(1, items))
    yield from (min(most, draws - start) for start in range(0, draws, most))


def resamples(items: int, draws: int, seed: int) -> Iterator[Floats]:
    """[block, items], how often each item was drawn when `items` were drawn with replacement."""
    random = np.random.default_rng(seed)
    for block in _blocks(items, draws):
        drawn = random.integers(0, items, (block, items), dtype=np.uint32)
        cells = drawn + items * np.arange(block)[:, None]
        counts = np.bincount(cells.ravel(), minlength=block * items)
        yield counts.reshape(block, items).astype(np.float64)


def resampled_means(scores: Floats, draws: int, seed: int) -> Floats:
    """[draws], the mean of each resample."""
    values, counts = np.unique(scores, return_counts=True)
    n = len(scores)
    if 8 * len(values) > n or len(values) * draws > CELLS:
        return np.concatenate([mean_of(scores)(each) for each in resamples(n, draws, seed)])
    # Equal scores are drawn together: for hits and misses 1,000 times as fast.
    drawn = np.random.default_rng(seed).multinomial(n, counts / n, size=draws)
    means: Floats = drawn @ values / n
    return means


def swaps(items: int, draws: int, seed: int) -> Iterator[Floats]:
    """[block, items] of 0 and 1: all of them if there are few items, else random ones."""
    if items <= EXACT_ITEMS:
        yield (np.arange(2**items)[:, None] >> np.arange(items) & 1).astype(np.float64)
        return
    random = np.random.default_rng(seed)
    for block in _blocks(items, draws):
        yield random.integers(0, 2, (block, items), dtype=np.int8).astype(np.float64)


def two_sides(metric: Metric, ours: Floats, theirs: Floats) -> Floats:
    """Score of one side minus the other's, the sides taking rows of A and B by these weights."""
    first, second = np.hstack([ours, theirs]), np.hstack([theirs, ours])
    return metric(first) - metric(second)


def floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)

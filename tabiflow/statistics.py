"""What scores say and how surely: averages, intervals, tests, agreement. Pure functions of numbers.

Scores and shares are 0 to 100, levels and p-values 0 to 1. Unknown in, unknown out: NaN where a
figure is undefined, ValueError where the numbers cannot be what they are taken for. Whatever
draws at random takes a seed and gives the same answer every time.

Two sources of chance are kept apart. Tests over *items* (`paired_bootstrap`, `permutation`) ask
whether these two trained models differ on texts like these; tests over *seeds* (`welch`) ask
whether training again would turn the order round. A beats B where `beats` says so of every
p-value that there is: the largest one bounds the error of the claim, whichever source it is of.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tabiflow.draws import (
    EXACT_ITEMS,
    Floats,
    Metric,
    floats,
    resampled_means,
    resamples,
    swaps,
    two_sides,
)

DRAWS = 10_000
SEED = 25


class Interval(NamedTuple):
    low: float
    high: float


class Welch(NamedTuple):
    t: float
    df: float
    p: float
    """Two-sided."""


class Comparison(NamedTuple):
    """A minus B."""

    difference: float
    low: float
    high: float
    p: float
    """Two-sided."""


UNKNOWN = Interval(math.nan, math.nan)


# Averages


def weighted_mean(scores: Sequence[float], sizes: Sequence[float]) -> float:
    """sum(score x size) / sum(size), the category score of TabiBERT section 5.2. NaN if empty."""
    if any(size < 0 for size in sizes):
        raise ValueError("sizes are counts, so none can be below 0")
    total = sum(score * size for score, size in zip(scores, sizes, strict=True))
    whole = sum(sizes)
    return total / whole if whole else math.nan


def mean(scores: Sequence[float]) -> float:
    """The plain average; NaN if empty."""
    return sum(scores) / len(scores) if len(scores) else math.nan


def deviation(scores: Sequence[float]) -> float:
    """The sample standard deviation (n - 1); NaN below two scores."""
    if len(scores) < 2:
        return math.nan
    if min(scores) == max(scores):
        # The rounding of their mean would pass for a spread.
        return 0.0
    centre = mean(scores)
    return math.sqrt(sum((score - centre) ** 2 for score in scores) / (len(scores) - 1))


@dataclass(frozen=True)
class Aggregate:
    """One model's scores brought together, the published way and three others."""

    categories: Mapping[str, float]
    """Weighted by test size."""
    total: float
    """Mean of the categories: the published total."""
    balanced: float
    """Mean of the categories, each the plain mean of its data sets."""
    unweighted: float
    """Mean of the data sets."""
    by_row: float
    """Mean of the data sets weighted by test size: every test row counts alike."""


def aggregate(
    scores: Mapping[str, float], sizes: Mapping[str, float], categories: Mapping[str, str]
) -> Aggregate:
    """All three are by data set. A score that is NaN spoils every average that it enters."""
    groups: dict[str, list[str]] = {}
    for dataset in scores:
        groups.setdefault(categories[dataset], []).append(dataset)

    def weighted(datasets: Collection[str]) -> float:
        return weighted_mean(
            [scores[each] for each in datasets], [sizes[each] for each in datasets]
        )

    by_category = {category: weighted(datasets) for category, datasets in groups.items()}
    plain = [mean([scores[each] for each in datasets]) for datasets in groups.values()]
    return Aggregate(
        categories=by_category,
        total=mean(list(by_category.values())),
        balanced=mean(plain),
        unweighted=mean(list(scores.values())),
        by_row=weighted(scores),
    )


# Seeds


def welch(a: Sequence[float], b: Sequence[float]) -> Welch:
    """Welch's t-test of two samples whose variances may differ."""
    return welch_from_summary(mean(a), deviation(a), len(a), mean(b), deviation(b), len(b))


def welch_from_summary(
    mean_a: float, deviation_a: float, n_a: int, mean_b: float, deviation_b: float, n_b: int
) -> Welch:
    """Deviations are sample deviations (n - 1). NaN below two scores or without any spread."""
    error, df = seed_error(deviation_a, n_a, deviation_b, n_b)
    if math.isnan(error):
        return Welch(math.nan, math.nan, math.nan)
    t = (mean_a - mean_b) / error
    return Welch(t, df, 2 * float(_special().stdtr(df, -abs(t))))


def seed_error(deviation_a: float, n_a: int, deviation_b: float, n_b: int) -> tuple[float, float]:
    """Standard error of the difference of two means, and its degrees of freedom (Satterthwaite)."""
    if deviation_a < 0 or deviation_b < 0:
        raise ValueError("a standard deviation cannot be below 0")
    if n_a < 2 or n_b < 2 or not deviation_a + deviation_b > 0:
        return math.nan, math.nan
    a, b = deviation_a**2 / n_a, deviation_b**2 / n_b
    return math.sqrt(a + b), (a + b) ** 2 / (a**2 / (n_a - 1) + b**2 / (n_b - 1))


def item_error(a: ArrayLike, b: ArrayLike) -> tuple[float, float]:
    """Standard error of the mean difference of paired scores, and its degrees of freedom."""
    differences = _differences(a, b)
    n = len(differences)
    if n < 2 or not np.ptp(differences) > 1e-12 * np.abs(differences).max():
        return math.nan, math.nan
    return float(np.std(differences, ddof=1)) / math.sqrt(n), n - 1


def power(difference: float, error: float, df: float, alpha: float = 0.05) -> float:
    """How probably a two-sided t-test finds a true difference; `alpha` at a difference of 0."""
    if not error > 0:
        return math.nan
    critical = _special().stdtrit(df, 1 - _within(alpha, "alpha") / 2)
    shift = abs(difference) / error
    return float(
        1 - _special().nctdtr(df, shift, critical) + _special().nctdtr(df, shift, -critical)
    )


def detectable(error: float, df: float, alpha: float = 0.05, wanted: float = 0.8) -> float:
    """The smallest true difference that a two-sided t-test finds with the power `wanted`.

    `error` and `df` are those of `seed_error` or `item_error`. A smaller difference may be real,
    but this many seeds or items, spread as they are, would more often than not have missed it.
    """
    if not _within(alpha, "alpha") < _within(wanted, "power"):
        raise ValueError("a power of alpha or less needs no difference")
    if not error > 0:
        return math.nan
    low, high = 0.0, error
    while power(high, error, df, alpha) < wanted:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if power(middle, error, df, alpha) < wanted else (low, middle)
    return high


_HALVINGS = 40


# Proportions and items


def wilson(hits: float, n: float, level: float = 0.95) -> Interval:
    """Wilson's score interval of a proportion, in per cent."""
    if hits < 0 or hits > n:
        raise ValueError(f"{hits} of {n} is no proportion")
    if math.isnan(hits + n) or n == 0:
        return UNKNOWN
    z = float(_special().ndtri((1 + _within(level, "level")) / 2))
    share = hits / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return Interval(100 * max(0.0, centre - half), 100 * min(1.0, centre + half))


def bootstrap(
    scores: ArrayLike, *, level: float = 0.95, draws: int = DRAWS, seed: int = SEED
) -> Interval:
    """Percentile interval of the mean of per-item scores; NaN below two items.

    Scores that are all equal give no width, which says nothing: of a proportion take `wilson`.
    """
    values = floats(scores)
    if len(values) < 2:
        return UNKNOWN
    return percentiles(resampled_means(values, draws, seed), level)


def bootstrap_of(
    metric: Metric, items: int, *, level: float = 0.95, draws: int = DRAWS, seed: int = SEED
) -> Interval:
    """Percentile interval of any metric over items drawn again with replacement.

    NaN as soon as the metric is undefined for one draw: the items are too few for it.
    """
    if items < 2:
        return UNKNOWN
    found = np.concatenate([metric(weights) for weights in resamples(items, draws, seed)])
    return percentiles(found, level)


def paired_bootstrap(
    a: ArrayLike, b: ArrayLike, *, level: float = 0.95, draws: int = DRAWS, seed: int = SEED
) -> Comparison:
    """Difference of two means over the same items; `a` and `b` are per-item scores, aligned."""
    differences = _differences(a, b)
    if len(differences) < 2:
        return Comparison(mean(differences.tolist()), math.nan, math.nan, math.nan)
    return compared(float(np.mean(differences)), resampled_means(differences, draws, seed), level)


def paired_bootstrap_of(
    metric: Metric, items: int, *, level: float = 0.95, draws: int = DRAWS, seed: int = SEED
) -> Comparison:
    """Difference of any metric over the same items.

    `metric` is over 2 x `items` rows: all of A, then all of B, each with its own predictions.
    """
    if items < 2:
        return Comparison(math.nan, math.nan, math.nan, math.nan)
    observed = two_sides(metric, np.ones((1, items)), np.zeros((1, items)))
    found = [
        two_sides(metric, weights, np.zeros_like(weights))
        for weights in resamples(items, draws, seed)
    ]
    return compared(float(observed[0]), np.concatenate(found), level)


def permutation(a: ArrayLike, b: ArrayLike, *, draws: int = DRAWS, seed: int = SEED) -> float:
    """Two-sided p of the paired sign-flip test on the mean difference of per-item scores.

    Exact over the items that differ if these are few, else over random flips with the
    observed one counted among them, so that p is never 0.
    """
    differences = _differences(a, b)
    if len(differences) == 0 or np.isnan(differences).any():
        return math.nan
    # Swapping equal scores changes nothing, so the others alone decide.
    decisive = differences[differences != 0]
    sums = (decisive.sum() - 2 * (flips @ decisive) for flips in swaps(decisive.size, draws, seed))
    return exceeding(float(decisive.sum()), np.concatenate(list(sums)), decisive.size)


def permutation_of(metric: Metric, items: int, *, draws: int = DRAWS, seed: int = SEED) -> float:
    """As `permutation`, for any metric; `metric` is over 2 x `items` rows, A's and then B's."""
    if items == 0:
        return math.nan
    observed = two_sides(metric, np.ones((1, items)), np.zeros((1, items)))
    found = [two_sides(metric, 1 - swapped, swapped) for swapped in swaps(items, draws, seed)]
    return exceeding(float(observed[0]), np.concatenate(found), items)


def compared(difference: float, found: Floats, level: float = 0.95) -> Comparison:
    """A difference with what it is in `found`, draws of it: interval, and two-sided p."""
    low, high = percentiles(found, level)
    if math.isnan(low):
        return Comparison(difference, low, high, math.nan)
    tail = min(int((found <= 0).sum()), int((found >= 0).sum()))
    return Comparison(difference, low, high, min(1.0, 2 * (tail + 1) / (len(found) + 1)))


def percentiles(found: Floats, level: float = 0.95) -> Interval:
    """The interval that holds the middle of many draws; NaN as soon as one of them is."""
    outside = (1 - _within(level, "level")) / 2
    low, high = np.quantile(found, [outside, 1 - outside])
    return Interval(float(low), float(high))


def exceeding(observed: float, found: Floats, items: int) -> float:
    """p: the share of permuted differences at least as far from 0 as the observed one.

    All permutations of few items, or some of many, the observed one then counted among them.
    """
    if math.isnan(observed) or np.isnan(found).any():
        return math.nan
    # Sums of the same numbers in another order differ in their last bits, yet are equal.
    rounding = 1e-9 * float(np.abs(found).max())
    extreme = int((np.abs(found) >= abs(observed) - rounding).sum())
    return extreme / len(found) if items <= EXACT_ITEMS else (extreme + 1) / (len(found) + 1)


# Many comparisons


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values in the order given; NaN stays NaN and is no test of the family."""
    if any(p < 0 or p > 1 for p in p_values):
        raise ValueError("a p-value lies between 0 and 1")
    order = sorted(
        (index for index, p in enumerate(p_values) if not math.isnan(p)),
        key=lambda index: p_values[index],
    )
    adjusted = [math.nan] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def beats(difference: float, p_values: Sequence[float], alpha: float = 0.05) -> bool:
    """Whether A, better by `difference`, may be said to beat B: every p is at most `alpha`.

    No p-value, or one that is NaN, is no evidence.
    """
    return difference > 0 and bool(p_values) and all(p <= alpha for p in p_values)


def tie_groups(
    scores: Mapping[str, float],
    p_values: Mapping[tuple[str, str], float],
    alpha: float = 0.05,
) -> tuple[tuple[str, ...], ...]:
    """Models that the data cannot tell apart.

    Two models are told apart if their p-value, Holm-adjusted over all pairs, is at most `alpha`;
    an unknown one tells nothing apart. A group is a largest set of models of which no two are told
    apart. So two models share a group exactly if the data cannot tell them apart, a model may
    stand in several groups (A like B, B like C, A unlike C), and one that differs from all others
    stands alone. Models and groups go from the best score down.
    """
    unknown = [name for name, score in scores.items() if math.isnan(score)]
    if unknown:
        raise ValueError(f"`{unknown[0]}` has no score to be ordered by")
    ordered = sorted(scores, key=lambda name: -scores[name])
    like = _alike(ordered, p_values, alpha)
    rank = {name: place for place, name in enumerate(ordered)}
    groups = [sorted(rank[name] for name in group) for group in _cliques(like)]
    return tuple(tuple(ordered[place] for place in group) for group in sorted(groups))


def _alike(
    names: Sequence[str], p_values: Mapping[tuple[str, str], float], alpha: float
) -> dict[str, set[str]]:
    pairs = list(combinations(names, 2))
    missing = [pair for pair in pairs if pair not in p_values and pair[::-1] not in p_values]
    if missing:
        raise ValueError("no p-value for `{}` and `{}`".format(*missing[0]))
    adjusted = holm([p_values.get(pair, p_values.get(pair[::-1], math.nan)) for pair in pairs])
    like: dict[str, set[str]] = {name: set() for name in names}
    for (a, b), p in zip(pairs, adjusted, strict=True):
        if not p <= alpha:
            like[a].add(b)
            like[b].add(a)
    return like


def _cliques(like: Mapping[str, set[str]]) -> Iterator[set[str]]:
    """The largest sets of which all are alike (Bron and Kerbosch, 1973)."""

    def grow(group: set[str], fitting: set[str], done: set[str]) -> Iterator[set[str]]:
        if group and not fitting and not done:
            yield group
        for name in sorted(fitting):
            yield from grow(group | {name}, fitting & like[name], done & like[name])
            fitting, done = fitting - {name}, done | {name}

    yield from grow(set(), set(like), set())


# Agreement and inequality


def fleiss_kappa(table: Sequence[Sequence[float]]) -> float:
    """`table` is [items, categories], how many raters put the item there; as many for each item.

    NaN without items, or where all ratings are of one category: agreement by chance is then
    certain, so that there is none beyond it to measure.
    """
    counts = np.asarray(table, dtype=np.float64)
    if counts.size == 0 or np.isnan(counts).any():
        return math.nan
    raters = counts[0].sum()
    if counts.min() < 0 or raters < 2 or not (counts.sum(axis=1) == raters).all():
        raise ValueError("every item needs the same number of ratings, two or more")
    agreed = ((counts**2).sum(axis=1) - raters) / (raters * (raters - 1))
    chance = float(((counts.sum(axis=0) / counts.sum()) ** 2).sum())
    return float(agreed.mean() - chance) / (1 - chance) if chance < 1 else math.nan


def majority(votes: Sequence[str], severity: Sequence[str]) -> str:
    """The commonest vote, of equally common ones the severest; `severity` goes from the mildest."""
    if not votes:
        raise ValueError("no vote to count")
    strange = [vote for vote in votes if vote not in severity]
    if strange:
        raise ValueError(f"vote `{strange[0]}` is none of {', '.join(severity)}")
    return max(severity, key=lambda label: (votes.count(label), severity.index(label)))


def gini(values: ArrayLike) -> float:
    """Mean absolute difference of all pairs over twice the mean, each value paired with itself too.

    0 for equal values; without a scale, so that near 0 small differences look large. NaN if
    there is nothing or only zeros.
    """
    found = np.sort(floats(values))
    if np.isnan(found).any() or not found.sum():
        return math.nan
    if found[0] < 0:
        raise ValueError("the Gini coefficient is of values of 0 or more")
    n = len(found)
    return float(((2 * np.arange(1, n + 1) - n - 1) @ found) / (n * found.sum()))


def _differences(a: ArrayLike, b: ArrayLike) -> Floats:
    ours, theirs = floats(a), floats(b)
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} and {len(theirs)} scores are not of the same items")
    return ours - theirs


def _within(value: float, name: str) -> float:
    if not 0 < value < 1:
        raise ValueError(f"{name} {value} is not between 0 and 1")
    return value


def _special() -> Any:
    """Takes half a second to import, which a plan need not wait for."""
    from scipy import special

    return special

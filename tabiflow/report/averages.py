"""Averages over categories and over all, seed by seed and draw by draw as of the scores."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tabiflow.report.scores import Scored, Standing
from tabiflow.statistics import aggregate, mean, weighted_mean
from tabiflow.trial import Cell


@dataclass(frozen=True)
class Category:
    model: str
    category: str
    test: float
    """Average weighted by test size (TabiBERT section 5.2); NaN while a data set is missing."""
    datasets: int
    unweighted: float
    deviation: float = math.nan
    """Of the average, over seeds that every data set has."""
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Average:
    """A model over everything that the sweep holds."""

    model: str
    test: float
    """Mean of the categories."""
    low: float
    high: float
    deviation: float
    unweighted: float
    """Mean of the data sets."""
    balanced: float
    """Mean of the categories, each the plain mean of its data sets."""
    by_row: float
    """Every test row counts alike."""


def categories(cells: Sequence[Scored]) -> list[tuple[Category, Standing]]:
    groups: dict[Cell, list[Scored]] = {}
    for each in cells:
        groups.setdefault(Cell(each.score.model, each.score.category), []).append(each)
    return [_category(model, name, group) for (model, name), group in groups.items()]


def _category(model: str, name: str, group: Sequence[Scored]) -> tuple[Category, Standing]:
    weights = [each.score.weight for each in group]

    # Half a category is another category.
    def weighted(values: Sequence[float]) -> float:
        return math.nan if any(map(math.isnan, values)) else weighted_mean(values, weights)

    standing = _combined(model, "category", name, [each.standing for each in group], weighted)
    low, high = standing.interval
    made = Category(
        model=model,
        category=name,
        test=standing.test,
        datasets=len(group),
        unweighted=mean([each.score.test for each in group]),
        deviation=standing.deviation,
        low=low,
        high=high,
    )
    return made, standing


def average(
    model: str, cells: Sequence[Scored], parts: Sequence[Standing]
) -> tuple[Average, Standing]:
    """`parts` are the model's categories."""
    standing = _combined(model, "average", "average", parts, mean)
    scores = [each.score for each in cells if each.score.model == model]
    whole = aggregate(
        {each.dataset: each.test for each in scores},
        {each.dataset: each.weight for each in scores},
        {each.dataset: each.category for each in scores},
    )
    low, high = standing.interval
    made = Average(
        model=model,
        test=standing.test,
        low=low,
        high=high,
        deviation=standing.deviation,
        unweighted=whole.unweighted,
        balanced=whole.balanced,
        by_row=whole.by_row,
    )
    return made, standing


def _combined(
    model: str,
    scope: str,
    name: str,
    parts: Sequence[Standing],
    combine: Callable[[Sequence[float]], float],
) -> Standing:
    seeds = [seed for seed in parts[0].tests if all(seed in each.tests for each in parts)]
    samples = [each.samples for each in parts if each.samples is not None]
    whole = len(samples) == len(parts)
    return Standing(
        model,
        scope,
        name,
        combine([each.test for each in parts]),
        {seed: combine([each.tests[seed] for each in parts]) for seed in seeds},
        np.array([combine(draw) for draw in np.stack(samples, axis=1).tolist()]) if whole else None,
        tuple(drawn for each in parts for drawn in each.drawn) if whole else (),
    )

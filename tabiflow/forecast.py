"""How long the rest of a sweep will take, learned from its finished trials. Pure.

The logarithm of a trial's seconds is a line over that of its size (`cost`), plus what is peculiar
to its cell, plus the luck of the single trial: early stopping, batch size. The three are drawn
from their posterior (Gibbs sampling, weak priors), so that a cell of which nothing has finished is
less certain than one that has. Before anything has finished, nothing is said: NaN.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tabiflow.cost import Costs, Taken, taken
from tabiflow.plan import CellPlan, Plan
from tabiflow.trial import Cell

INTERVAL = 0.9
"""Probability of the ranges."""
DRAWS, BURN_IN, SEED = 400, 100, 25
SLOPE, SLOPE_SPREAD = 1.0, 0.3
"""Ten times the size takes ten times as long, or half or double that."""
CELL_SPREAD, TRIAL_SPREAD, DOUBT = 0.5, 0.3, 4.0
"""Of logarithms, before anything is known; as sure as if told by so many cells or trials."""
UNKNOWN_SPREAD = 1.5
"""Of the size of a cell whose size is unknown."""


class Range(NamedTuple):
    """`middle` is the median; the ends hold `INTERVAL` between them."""

    low: float
    middle: float
    high: float

    def __add__(self, other: object) -> "Range":
        assert isinstance(other, float)
        return Range(*(each + other for each in self))


UNKNOWN = Range(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Forecast:
    """Seconds of the plan's distinct trials."""

    trials: int
    """Finished ones that this was learned from."""
    cells: int
    spent: float
    """Device-seconds of those: of a GPU the share that a trial holds."""
    left: Range
    """Device-seconds of the trials that are to do."""
    workers: int
    wall: Range
    """Seconds until the last of them ends, on so many workers."""

    @property
    def total(self) -> Range:
        return self.left + self.spent


@dataclass(frozen=True)
class _Ahead:
    """Trials of one size that are to do."""

    cell: Cell
    size: float
    """Logarithm; NaN where it is unknown."""
    count: int
    share: float


def forecast(plan: Plan, workers: int) -> Forecast:
    known = taken(outcome for cell in plan.cells for outcome in cell.outcomes.values())
    shares = {cell.cell: share(plan, cell) for cell in plan.cells}
    spent = float(sum(each.seconds * shares[each.trial.cell] for each in known))
    cells = len({each.trial.cell for each in known})
    ahead = list(_ahead(plan, Costs(known), shares))
    if not ahead:
        done = Range(0.0, 0.0, 0.0)
        return Forecast(len(known), cells, spent, done, workers, done)
    if not known:
        return Forecast(0, 0, math.nan, UNKNOWN, workers, UNKNOWN)
    drawn = [_seconds(ahead, each) for each in _posterior(known, ahead)]
    weights = np.repeat([each.share for each in ahead], [each.count for each in ahead])
    left = _range([float(seconds @ weights) for seconds in drawn])
    wall = _range([_scheduled(seconds, workers) for seconds in drawn])
    return Forecast(len(known), cells, spent, left, workers, wall)


def share(plan: Plan, cell: CellPlan) -> float:
    """Of a device that a trial holds. Neither row nor sweep says: all of one."""
    asked = plan.sweep.gpus if cell.model.gpus is None else cell.model.gpus
    return 1.0 if asked is None else asked or 1.0


def _ahead(plan: Plan, costs: Costs, shares: dict[Cell, float]) -> Iterator[_Ahead]:
    for cell in plan.cells:
        trials = list(cell.having("todo"))
        if cell.study is not None:
            trials += [cell.study.template] * cell.drawable
        sizes: dict[float, int] = {}
        for trial in trials:
            size = costs.size(cell, trial)
            # NaN is no key: it is not equal to itself.
            size = -math.inf if math.isnan(size) or size <= 0 else math.log(size)
            sizes[size] = sizes.get(size, 0) + 1
        for size, count in sizes.items():
            yield _Ahead(
                cell.cell, math.nan if math.isinf(size) else size, count, shares[cell.cell]
            )


@dataclass(frozen=True)
class _Draw:
    """One possible truth."""

    middles: np.ndarray
    """[sizes ahead] Logarithm of a typical trial's seconds."""
    spread: float
    random: np.random.Generator


def _posterior(known: Sequence[Taken], ahead: Sequence[_Ahead]) -> Iterator[_Draw]:
    random = np.random.default_rng(SEED)
    names = {
        cell: place for place, cell in enumerate(dict.fromkeys(each.trial.cell for each in known))
    }
    sizes = np.log([_size(each) for each in known])
    centre = float(sizes.mean())
    design = np.zeros((len(known), 2 + len(names)))
    design[:, 0], design[:, 1] = 1, sizes - centre
    design[np.arange(len(known)), [2 + names[each.trial.cell] for each in known]] = 1
    target = np.log([each.seconds for each in known])
    gram, moment, square = design.T @ design, design.T @ target, float(target @ target)
    level = float(target.mean())
    cell_spread, spread = CELL_SPREAD, TRIAL_SPREAD
    for number in range(BURN_IN + DRAWS):
        prior = np.array([1e-2, SLOPE_SPREAD**-2, *[cell_spread**-2] * len(names)])
        pull = prior * np.array([level, SLOPE, *[0.0] * len(names)])
        root = np.linalg.cholesky(gram / spread**2 + np.diag(prior))
        mean = np.linalg.solve(root.T, np.linalg.solve(root, moment / spread**2 + pull))
        drawn = mean + np.linalg.solve(root.T, random.standard_normal(len(mean)))
        missed = square - 2 * float(drawn @ moment) + float(drawn @ gram @ drawn)
        spread = _spread(random, TRIAL_SPREAD, max(missed, 0.0), len(known))
        cell_spread = _spread(random, CELL_SPREAD, float(drawn[2:] @ drawn[2:]), len(names))
        if number >= BURN_IN:
            yield _Draw(_middles(ahead, names, drawn, centre, cell_spread, random), spread, random)


def _size(done: Taken) -> float:
    return max(1.0, done.parameters * done.tokens * done.trial.protocol.epochs)


def _spread(random: np.random.Generator, usual: float, squares: float, count: int) -> float:
    """Of a scaled inverse chi-square distribution."""
    return math.sqrt((DOUBT * usual**2 + squares) / random.chisquare(DOUBT + count))


def _middles(
    ahead: Sequence[_Ahead],
    names: dict[Cell, int],
    drawn: np.ndarray,
    centre: float,
    cell_spread: float,
    random: np.random.Generator,
) -> np.ndarray:
    peculiar: dict[Cell, float] = {}
    middles = []
    for each in ahead:
        place = names.get(each.cell)
        own = float(drawn[2 + place]) if place is not None else cell_spread * random.normal()
        own = peculiar.setdefault(each.cell, own)
        unknown = math.isnan(each.size)
        distance = UNKNOWN_SPREAD * random.normal() if unknown else each.size - centre
        middles.append(drawn[0] + drawn[1] * distance + own)
    return np.array(middles)


def _seconds(ahead: Sequence[_Ahead], draw: _Draw) -> np.ndarray:
    """[trials ahead]"""
    middles = np.repeat(draw.middles, [each.count for each in ahead])
    seconds: np.ndarray = np.exp(middles + draw.spread * draw.random.standard_normal(len(middles)))
    return seconds


def _range(values: Sequence[float]) -> Range:
    outside = (1 - INTERVAL) / 2
    return Range(*(float(each) for each in np.quantile(values, [outside, 0.5, 1 - outside])))


def _scheduled(seconds: np.ndarray, workers: int) -> float:
    """When the last trial ends, if whoever is free takes the longest that is left."""
    free = [0.0] * workers
    for each in np.sort(seconds)[::-1].tolist():
        heapq.heapreplace(free, free[0] + each)
    return max(free)

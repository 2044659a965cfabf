"""What the search shows of its own space: each setting's effect, winners on its edge, curves."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tabiflow.plan import CellPlan, Plan
from tabiflow.report.scores import Evidence
from tabiflow.selection import Winner
from tabiflow.statistics import deviation, mean
from tabiflow.trial import Cell, Outcome, Status

MOST_VALUES = 8
"""A dimension of more values was sampled: its values are shown in quarters."""


@dataclass(frozen=True)
class Setting:
    """One value of one dimension, over all cells that tried it."""

    parameter: str
    value: str
    trials: int
    validation: float
    """Mean over cells of the cell's mean at this value."""
    effect: float
    """The same less the cell's mean over all its trials: comparable across cells."""
    deviation: float
    """Of the effect over cells; NaN below two."""
    winners: int


@dataclass(frozen=True)
class Edge:
    """Where the winners stand in a dimension of two or more ordered values."""

    parameter: str
    cells: int
    lowest: int
    highest: int


@dataclass(frozen=True)
class Curve:
    """Validation by epoch of a winner's trial in the search."""

    model: str
    dataset: str
    trial: str
    kept: int
    """The epoch whose weights count."""
    points: tuple[tuple[int, float], ...]


def settings(plan: Plan, chosen: Sequence[Winner]) -> tuple[Setting, ...]:
    names = dict.fromkeys(name for cell in plan.cells for name in _dimensions(cell))
    winners = {winner.cell: winner for winner in chosen}
    return tuple(each for name in names for each in _settings(name, plan, winners))


def _settings(name: str, plan: Plan, winners: Mapping[Cell, Winner]) -> Iterable[Setting]:
    cells = [cell for cell in plan.cells if name in _dimensions(cell)]
    shown = _shown([_value(trial, name) for cell in cells for trial in cell.trials])
    by_value: dict[str, list[tuple[Cell, list[float]]]] = {text: [] for text in shown.values()}
    centres: dict[Cell, float] = {}
    for cell in cells:
        scores = _scores(cell, name, shown)
        centres[cell.cell] = mean([each for values in scores.values() for each in values])
        for text, values in scores.items():
            by_value[text].append((cell.cell, values))
    chosen = [
        shown[_value(winners[cell.cell].trial, name)] for cell in cells if cell.cell in winners
    ]
    for text, found in by_value.items():
        means = [mean(values) for _, values in found]
        effects = [mean(values) - centres[cell] for cell, values in found]
        yield Setting(
            parameter=name,
            value=text,
            trials=sum(len(values) for _, values in found),
            validation=mean(means),
            effect=mean(effects),
            deviation=deviation(effects),
            winners=chosen.count(text),
        )


def _dimensions(cell: CellPlan) -> list[str]:
    return [name for name in cell.varying if name != "seed"]


def _value(trial: Any, name: str) -> Any:
    value = trial.point([name])[name]
    return value if isinstance(value, int | float | str) else str(value)


def _scores(cell: CellPlan, name: str, shown: Mapping[Any, str]) -> dict[str, list[float]]:
    """Validation scores of the finished trials; a pruned one's would be of fewer epochs."""
    found: dict[str, list[float]] = {}
    for trial in cell.trials:
        outcome = cell.outcome(trial)
        if outcome and outcome.status is Status.DONE and not math.isnan(outcome.score):
            found.setdefault(shown[_value(trial, name)], []).append(outcome.score)
    return found


def _shown(values: Iterable[Any]) -> dict[Any, str]:
    """Each value's text, in order; many values share that of their quarter."""
    distinct = list(dict.fromkeys(values))
    ordered = all(_is_number(value) for value in distinct)
    distinct = sorted(distinct) if ordered else distinct
    if not ordered or len(distinct) <= MOST_VALUES:
        return {value: shown(value) for value in distinct}
    bounds = [round(quarter * len(distinct) / 4) for quarter in range(5)]
    parts = [distinct[low:high] for low, high in pairwise(bounds)]
    return {value: f"{part[0]:.2g} to {part[-1]:.2g}" for part in parts for value in part}


def shown(value: Any) -> str:
    return f"{value:g}" if _is_number(value) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def edges(plan: Plan, chosen: Sequence[Winner]) -> tuple[Edge, ...]:
    """Of exact grids: the extremes of a sample are no edge of what could have been sampled."""
    found: dict[str, list[tuple[bool, bool]]] = {}
    for winner in chosen:
        cell = plan.of(winner.cell)
        for name in _dimensions(cell) if cell.study is None else ():
            values = {_value(trial, name) for trial in cell.trials}
            if len(values) > 1 and all(_is_number(value) for value in values):
                own = _value(winner.trial, name)
                found.setdefault(name, []).append((own == min(values), own == max(values)))
    return tuple(
        Edge(name, len(places), sum(low for low, _ in places), sum(high for _, high in places))
        for name, places in found.items()
    )


def curves(
    chosen: Sequence[Winner], outcomes: Mapping[str, Outcome], evidence: Evidence
) -> tuple[Curve, ...]:
    # A winner that is taken from another sweep may never have been trained as it stands.
    known = [winner for winner in chosen if winner.trial.id in outcomes]
    run_of = {winner.cell: outcomes[winner.trial.id].run_id for winner in known}
    points = evidence.curves(list(run_of.values())) if run_of else {}
    return tuple(
        Curve(*winner.cell, winner.trial.id, winner.epoch, tuple(points[run_of[winner.cell]]))
        for winner in known
        if points.get(run_of[winner.cell])
    )

"""Test scores of the winners, each with what is known of it: interval, share, other figures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tabiflow.draws import Floats
from tabiflow.plan import CellPlan, Plan
from tabiflow.published import tabibench
from tabiflow.registry.kinds import KINDS
from tabiflow.report.items import Drawn, Items, Share, drawn, items, paired
from tabiflow.selection import Winner, confirming
from tabiflow.statistics import UNKNOWN, deviation, mean, percentiles
from tabiflow.trial import Cell, Outcome, Status

CLOSE = 0.01
"""How far a score may lie from what its kept predictions give, which are rounded in JSON."""


class Evidence(Protocol):
    """What a report reads of the ledger beside outcomes."""

    def predictions(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Test items by run; runs without them are left out."""

    def curves(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[tuple[int, float]]]:
        """(epoch, validation score) by run."""


class NoEvidence:
    """Scores alone."""

    def predictions(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        return {}

    def curves(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[tuple[int, float]]]:
        return {}


@dataclass(frozen=True)
class Score:
    """One model on one data set, on test."""

    model: str
    dataset: str
    category: str
    metric: str
    test: float
    """Mean over the seeds, 0 to 100; NaN until the winner is confirmed."""
    deviation: float
    """Over the seeds; NaN below two."""
    n: int
    """Test items."""
    seeds: tuple[int, ...]
    weight: int
    """In the category's average: published test rows, or `n` where rows were limited."""
    tests: tuple[float, ...] = ()
    """By seed."""
    low: float = math.nan
    """95% bootstrap interval over the test items; NaN without predictions of each."""
    high: float = math.nan
    share: Share | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    """Everything else that was measured on test, mean over the seeds."""
    beside: Mapping[str, float] = field(default_factory=dict)
    """Those of `figures` that compare with published ones where `test` does not."""
    doubt: str = ""
    """Why there is no interval although there are predictions."""


@dataclass(frozen=True)
class Standing:
    """One model's figure, whatever it is of, as comparisons need it."""

    model: str
    scope: str
    """`dataset`, `category` or `average`."""
    name: str
    test: float
    tests: Mapping[int, float]
    """By seed."""
    samples: Floats | None = None
    """[draws]; None where a score's predictions are not known."""
    drawn: tuple[Drawn, ...] = ()
    """What was drawn for `samples`, one a data set."""

    @property
    def items(self) -> int:
        return sum(each.runs[0].size for each in self.drawn)

    def paired_with(self, other: "Standing") -> bool:
        """Whether both were drawn, and from the same items."""
        if not self.drawn or len(self.drawn) != len(other.drawn):
            return False
        return all(paired(a, b) for a, b in zip(self.drawn, other.drawn, strict=True))

    @property
    def interval(self) -> tuple[float, float]:
        return UNKNOWN if self.samples is None else percentiles(self.samples)

    @property
    def deviation(self) -> float:
        return deviation(list(self.tests.values()))


@dataclass(frozen=True)
class Scored:
    """A cell's score with what it is made of."""

    score: Score
    standing: Standing
    done: tuple[Outcome, ...]
    """The confirming trials, one a seed."""


def scored(
    plan: Plan, chosen: Sequence[Winner], outcomes: Mapping[str, Outcome], evidence: Evidence
) -> tuple[Scored, ...]:
    """Of the winners' confirming trials, one for each cell in the plan's order."""
    by_cell = {winner.cell: winner for winner in chosen}
    done = {
        cell.cell: _done(plan, by_cell[cell.cell], outcomes) if cell.cell in by_cell else []
        for cell in plan.cells
    }
    found: dict[Cell, Scored] = {}
    # One data set after the other: their predictions need not be in memory together.
    for dataset in plan.datasets:
        cells = [cell for cell in plan.cells if cell.dataset.name == dataset]
        found |= _of_dataset(plan, cells, done, evidence)
    return tuple(found[cell.cell] for cell in plan.cells)


def _done(plan: Plan, winner: Winner, outcomes: Mapping[str, Outcome]) -> list[Outcome]:
    trials = confirming(winner, plan.sweep.confirm.seeds)
    known = [outcomes[trial.id] for trial in trials if trial.id in outcomes]
    return [each for each in known if each.status is Status.DONE]


def _of_dataset(
    plan: Plan,
    cells: Sequence[CellPlan],
    done: Mapping[Cell, Sequence[Outcome]],
    evidence: Evidence,
) -> dict[Cell, Scored]:
    run_ids = [each.run_id for cell in cells for each in done[cell.cell]]
    kept = evidence.predictions(run_ids) if run_ids else {}
    read = {cell.cell: read_items(cell, done[cell.cell], kept) for cell in cells}
    runs = {cell.model: found for cell, (found, _) in read.items() if found}
    samples = drawn(cells[0].dataset.name, runs)
    made = {}
    for cell in cells:
        mine, doubt = done[cell.cell], read[cell.cell][1]
        standing = _standing(cell, mine, samples.get(cell.model.name))
        score = _score(plan, cell, mine, standing, doubt)
        made[cell.cell] = Scored(score, standing, tuple(mine))
    return made


def _standing(cell: CellPlan, done: Sequence[Outcome], found: Drawn | None) -> Standing:
    tests = {each.trial.seed: each.test for each in done}
    return Standing(
        cell.model.name,
        "dataset",
        cell.dataset.name,
        mean(list(tests.values())),
        tests,
        None if found is None else found.samples,
        () if found is None else (found,),
    )


def _score(
    plan: Plan, cell: CellPlan, done: Sequence[Outcome], standing: Standing, doubt: str
) -> Score:
    n = done[0].n if done else 0
    limited = "test" in plan.sweep.limit.model_dump(exclude_none=True)
    published = 0 if limited else cell.dataset.sizes.get("test", 0)
    low, high = standing.interval
    figures = _figures(done)
    comparable = {each.beside for each in tabibench().differences_of(cell.dataset.name)}
    return Score(
        model=cell.model.name,
        dataset=cell.dataset.name,
        category=cell.dataset.group,
        metric=KINDS[cell.dataset.task].metric,
        test=standing.test,
        deviation=standing.deviation,
        n=n,
        seeds=tuple(standing.tests),
        weight=published or n,
        tests=tuple(standing.tests.values()),
        low=low,
        high=high,
        share=standing.drawn[0].share if standing.drawn else None,
        figures=figures,
        beside={name: value for name, value in figures.items() if name in comparable},
        doubt=doubt,
    )


def read_items(
    cell: CellPlan, done: Sequence[Outcome], kept: Mapping[str, Sequence[Mapping[str, Any]]]
) -> tuple[list[Items], str]:
    """The items of each seed, or none and why they are not used."""
    missing = sum(each.run_id not in kept for each in done)
    if missing:
        # A rehearsal has none to keep.
        rehearsed = bool(done[0].trial.runner)
        return [], "" if rehearsed else f"{missing} of {len(done)} seeds have no predictions kept"
    runs = [items(KINDS[cell.dataset.task].metric, kept[each.run_id]) for each in done]
    known = [each for each in runs if each is not None]
    if len(known) < len(runs):
        return [], ""
    for outcome, each in zip(done, known, strict=True):
        if math.isnan(each.score) and math.isnan(outcome.test):
            return [], f"the metric is undefined for the predictions of {outcome.trial.id}"
        if not abs(each.score - outcome.test) <= CLOSE:
            return [], f"the predictions of {outcome.trial.id} give {each.score:.2f}"
    return known, ""


def _figures(done: Sequence[Outcome]) -> dict[str, float]:
    names = dict.fromkeys(name for each in done for name in each.metrics)
    return {
        name.removeprefix("test_"): mean([each.metrics.get(name, math.nan) for each in done])
        for name in names
        if name.startswith("test_")
    }

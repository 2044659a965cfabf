"""Which trials of a plan are to be run now: the missing, the spoiled, or the winners'. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tabiflow.plan import CellPlan, Plan
from tabiflow.trial import HOLDING, FailureKind, Opening, Outcome, Status, Trial


@dataclass(frozen=True)
class Work:
    """What is to be run of one cell."""

    cell: CellPlan
    trials: tuple[Trial, ...] = ()
    samples: int = 0
    """Configurations to draw beside `trials`, in a sampled cell."""
    openings: Mapping[str, Opening] = field(default_factory=dict)
    """By trial id: confirming trials may look at the test split."""

    @property
    def example(self) -> Trial:
        """Any trial of the cell: they share model and data set."""
        return self.trials[0] if self.cell.study is None else self.cell.study.template


def missing(plan: Plan) -> tuple[Work, ...]:
    """What `sweep` runs: everything without an end, but for the rest of held cells. Of winners
    nothing: their trials need openings."""
    if plan.sweep.winners_of is not None:
        return ()
    return _some(Work(cell, cell.having("todo"), cell.drawable) for cell in plan.cells)


def spoiled(
    plan: Plan, outcomes: Mapping[str, Outcome], kinds: Sequence[str] = ()
) -> tuple[Work, ...]:
    """What `resubmit` runs: failed, held and killed trials; of the given kinds, all if empty."""
    return _some(_again(cell, outcomes, kinds) for cell in plan.cells)


def confirming(
    plan: Plan, trials: Sequence[Trial], openings: Mapping[str, Opening]
) -> tuple[Work, ...]:
    """What `confirm` runs. A confirming trial may read test only with its opening."""
    works = []
    for cell in plan.cells:
        mine = tuple(trial for trial in trials if trial.cell == cell.cell)
        works.append(Work(cell, mine, openings={each.id: openings[each.id] for each in mine}))
    return _some(works)


def _some(works: Iterable[Work]) -> tuple[Work, ...]:
    return tuple(work for work in works if work.trials or work.samples)


def _again(cell: CellPlan, outcomes: Mapping[str, Outcome], kinds: Sequence[str]) -> Work:
    blamed = _blamed(cell, outcomes)
    chosen = {id: kind for id, kind in blamed.items() if not kinds or kind in kinds}
    trials = tuple(trial for trial in cell.trials if trial.id in chosen)
    undrawn = cell.hold is not None and (not kinds or cell.hold.kind in kinds)
    return Work(cell, trials, cell.to_come if undrawn else 0)


def _blamed(cell: CellPlan, outcomes: Mapping[str, Outcome]) -> dict[str, FailureKind | None]:
    """Trial id -> the kind of failure that left it without an end; None for an interruption.

    A mended model or data set gives its trials new ids: they stand in the slots of the failed ones,
    and the rest of the cell was held with those.
    """
    ended_badly = {
        outcome.trial.slot: outcome.kind
        for outcome in outcomes.values()
        if outcome.trial.cell == cell.cell and outcome.status in (Status.FAILED, Status.KILLED)
    }
    waiting = cell.having("failed", "held", "todo")
    holding = cell.hold.kind if cell.hold else _replaced(cell, ended_badly)
    return {
        trial.id: ended_badly.get(trial.slot, holding)
        for trial in waiting
        if trial.slot in ended_badly or holding is not None
    }


def _replaced(cell: CellPlan, ended_badly: Mapping[str, FailureKind | None]) -> FailureKind | None:
    """The kind that held this cell under an earlier revision of its model or data set."""
    kinds = [ended_badly.get(trial.slot) for trial in cell.having("todo")]
    return next((kind for kind in kinds if kind in HOLDING), None)

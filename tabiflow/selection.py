"""Outcomes -> winners -> the trials that confirm them. Sees validation scores only. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tabiflow.plan import CellPlan, Plan
from tabiflow.trial import Cell, Outcome, Status, Trial


@dataclass(frozen=True)
class Winner:
    """The best configuration of a cell by its validation score."""

    cell: Cell
    trial: Trial
    """Of the first seed; the other seeds share its configuration."""
    score: float
    """Mean of the headline metric over the sweep's seeds, at each trial's kept epoch."""
    epoch: int
    """The kept epoch of `trial`."""
    ties: int
    """Other configurations with exactly this score; the first in grid order was taken."""
    candidates: int
    complete: bool
    """False while trials of the cell are missing: another configuration may yet win."""


def winners(plan: Plan) -> tuple[Winner, ...]:
    """One for each cell that has a finished configuration, in the plan's order."""
    found = (_winner(cell) for cell in plan.cells)
    return tuple(winner for winner in found if winner is not None)


def _winner(cell: CellPlan) -> Winner | None:
    groups: dict[str, list[Trial]] = {}
    for trial in cell.trials:
        groups.setdefault(trial.configuration, []).append(trial)
    # A pruned trial was cut short, so its score cannot stand beside full ones.
    scored = {
        key: fmean(cell.outcomes[trial.id].score for trial in group)
        for key, group in groups.items()
        if all(_scored(cell.outcomes.get(trial.id)) for trial in group)
    }
    if not scored:
        return None
    best = max(scored.values())
    tied = [key for key, score in scored.items() if score == best]
    first = groups[tied[0]][0]
    return Winner(
        cell=cell.cell,
        trial=first,
        score=best,
        epoch=cell.outcomes[first.id].epoch,
        ties=len(tied) - 1,
        candidates=len(scored),
        complete=cell.complete,
    )


def _scored(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.status is Status.DONE and not math.isnan(outcome.score)


@dataclass(frozen=True)
class Confirmation:
    """What `confirm` would do."""

    todo: tuple[Trial, ...]
    """Confirming trials without a test score, opened before or not."""
    done: tuple[Outcome, ...]
    conflicts: Mapping[Cell, tuple[Outcome, ...]]
    """Cells whose test split this sweep has opened for another configuration."""

    @property
    def trials(self) -> int:
        return len(self.todo) + len(self.done)


def confirming(winner: Winner, seeds: Sequence[int]) -> tuple[Trial, ...]:
    return tuple(replace(winner.trial, split="test", seed=seed) for seed in seeds)


def confirmation(
    chosen: Sequence[Winner], sweep: str, seeds: Sequence[int], outcomes: Mapping[str, Outcome]
) -> Confirmation:
    """Splits the winners' confirming trials by what the ledger knows of them."""
    trials = [trial for winner in chosen for trial in confirming(winner, seeds)]
    scored = {
        trial.id: outcomes[trial.id]
        for trial in trials
        if trial.id in outcomes and outcomes[trial.id].status is Status.DONE
    }
    opened: dict[Cell, list[Outcome]] = {}
    for outcome in outcomes.values():
        if outcome.sweep == sweep and outcome.trial.split == "test":
            opened.setdefault(outcome.trial.cell, []).append(outcome)
    conflicts = {
        winner.cell: _others(winner, opened.get(winner.cell, []))
        for winner in chosen
        if any(trial.id not in outcomes for trial in confirming(winner, seeds))
    }
    return Confirmation(
        todo=tuple(trial for trial in trials if trial.id not in scored),
        done=tuple(scored.values()),
        conflicts={cell: others for cell, others in conflicts.items() if others},
    )


def _others(winner: Winner, opened: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """Openings of the cell for other configurations; none once the winner's own was opened."""
    mine = replace(winner.trial, split="test").configuration
    if any(outcome.trial.configuration == mine for outcome in opened):
        return ()
    return tuple(opened)

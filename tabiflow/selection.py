"""Outcomes -> winners -> the trials that confirm them. Sees validation scores only. Pure.

A sweep of winners is planned here as well: what it asks for follows from another sweep's winners.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeGuard

from tabiflow.plan import CellPlan, Plan, Winner, plan
from tabiflow.registry import Grid
from tabiflow.spec import Dataset, Model, Sweep
from tabiflow.trial import Cell, Hold, Outcome, Status, Trial

__all__ = [
    "Confirmation",
    "Winner",
    "confirmation",
    "confirming",
    "planned",
    "undefined",
    "winners",
]


def winners(plan: Plan) -> tuple[Winner, ...]:
    """One for each cell that has a finished configuration, in the plan's order."""
    fixed = plan.sweep.confirm.fixed_epochs
    found = (cell.origin or _winner(cell, fixed_epochs=fixed) for cell in plan.cells)
    return tuple(winner for winner in found if winner is not None)


def undefined(plan: Plan) -> tuple[Cell, ...]:
    """Cells whose every trial is finished, none with a score that is a number: no winner to come.

    So ends a metric that is undefined on validation, such as Pearson's of equal labels.
    """
    finished = [cell for cell in plan.cells if cell.complete and cell.origin is None]
    return tuple(cell.cell for cell in finished if _winner(cell, fixed_epochs=False) is None)


def _winner(cell: CellPlan, *, fixed_epochs: bool) -> Winner | None:
    groups: dict[str, list[Trial]] = {}
    for trial in cell.trials:
        groups.setdefault(trial.configuration, []).append(trial)
    # A pruned trial was cut short, so its score cannot stand beside full ones.
    scored = {
        key: fmean(outcome.score for outcome in ended)
        for key, group in groups.items()
        if len(ended := [each for each in map(cell.outcome, group) if _scored(each)]) == len(group)
    }
    if not scored:
        return None
    best = max(scored.values())
    tied = [key for key, score in scored.items() if score == best]
    first = cell.run_of(groups[tied[0]][0])
    outcome = cell.outcomes[first.id]
    return Winner(
        cell=cell.cell,
        trial=first,
        final=_fixed(outcome) if fixed_epochs else first,
        score=best,
        epoch=outcome.epoch,
        ties=len(tied) - 1,
        candidates=len(scored),
        complete=cell.complete,
    )


def _fixed(outcome: Outcome) -> Trial:
    """The trial for as many epochs as TabiBench's released code would record of it: without those
    that early stopping has waited for, and with nothing left to stop it."""
    protocol = outcome.trial.protocol
    trained = int(outcome.tags.get("trained_epochs", protocol.epochs))
    waited = protocol.patience or 0
    epochs = trained - waited if trained < protocol.epochs else trained
    changed = protocol.model_copy(update={"epochs": max(1, epochs), "patience": None})
    return replace(outcome.trial, protocol=changed)


def _scored(outcome: Outcome | None) -> TypeGuard[Outcome]:
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
    return tuple(replace(winner.final, split="test", seed=seed) for seed in seeds)


def planned(
    sweep: Sweep,
    grid: Grid,
    outcomes: Mapping[str, Outcome] | None = None,
    holds: Sequence[Hold] = (),
) -> Plan:
    """`plan`; of a sweep of winners, what confirms those that the named sweep has by now."""
    if sweep.winners_of is None or grid.origin is None:
        return plan(sweep, grid, outcomes, holds)
    outcomes = outcomes or {}
    named = planned(sweep.winners_of.sweep, grid.origin, outcomes)
    won = {winner.cell: winner for winner in winners(named)}
    rows = {
        Cell(model.name, dataset.name): (model, dataset)
        for datasets, _ in grid.searches
        for dataset in datasets
        for model in grid.models
    }
    cells = [
        _studied(
            *(sweep, *pair, _awaits(named, *pair, won.get(cell), outcomes), won.get(cell)),
            *(outcomes, holds),
        )
        for cell, pair in rows.items()
    ]
    return Plan(sweep, tuple(cells))


def _awaits(
    named: Plan,
    model: Model,
    dataset: Dataset,
    winner: Winner | None,
    outcomes: Mapping[str, Outcome],
) -> str:
    """Why a cell has no winner in the named sweep that could be taken; empty when it has."""
    sweep, name = named.sweep.name, Cell(model.name, dataset.name)
    cell = next((each for each in named.cells if each.cell == name), None)
    if cell is None:
        return f"it is no cell of {sweep}"
    if not cell.decided and not _taken_as_it_is(cell, winner, named.sweep, outcomes):
        return cell.awaits or f"{sweep} has finished {cell.counts['known']} of its {cell.size}"
    if winner is None:
        return f"no trial of {sweep} has a score"
    for ours, theirs in ((model, cell.model), (dataset, cell.dataset)):
        if ours.identity != theirs.identity:
            return f"`{ours.name}` is another row in {sweep}"
    return ""


def _taken_as_it_is(
    cell: CellPlan, winner: Winner | None, sweep: Sweep, outcomes: Mapping[str, Outcome]
) -> bool:
    """Whether that sweep has confirmed the winner although trials have failed or are held: one
    that diverged never ends otherwise. Trials that are merely to be run may still win."""
    trials = confirming(winner, sweep.confirm.seeds) if winner else ()
    known = [outcomes[trial.id] for trial in trials if trial.id in outcomes]
    confirmed = any(each.sweep == sweep.name and each.status is Status.DONE for each in known)
    return confirmed and not cell.counts["todo"]


def _studied(
    sweep: Sweep,
    model: Model,
    dataset: Dataset,
    awaits: str,
    winner: Winner | None,
    outcomes: Mapping[str, Outcome],
    holds: Sequence[Hold],
) -> CellPlan:
    seeds = sweep.confirm.seeds
    origin = _restated(sweep, winner) if winner is not None and not awaits else None
    trials = confirming(origin, seeds) if origin else ()
    return CellPlan(
        model=model,
        dataset=dataset,
        trials=trials,
        varying=("seed",) if len(seeds) > 1 else (),
        outcomes={each.id: outcomes[each.id] for each in trials if each.id in outcomes},
        hold=next((hold for hold in holds for each in trials if hold.covers(each)), None),
        asked=len(seeds),
        origin=origin,
        unchanged=winner if origin else None,
        awaits=awaits,
    )


def _restated(sweep: Sweep, winner: Winner) -> Winner:
    """The winner under what this sweep changes."""
    assert sweep.winners_of is not None
    changes = sweep.winners_of.protocol
    limit = sweep.limit.model_dump(exclude_none=True)

    def changed(trial: Trial) -> Trial:
        return replace(trial, protocol=trial.protocol.model_copy(update=changes), limit=limit)

    return replace(winner, trial=changed(winner.trial), final=changed(winner.final))


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
    mine = replace(winner.final, split="test").configuration
    if any(outcome.trial.configuration == mine for outcome in opened):
        return ()
    return tuple(opened)

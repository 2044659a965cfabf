"""Sweep x registry - outcomes -> what is to be run. Pure, and the same every time.

Restarting, widening a space, adding a model and resubmitting failures are all this function with
another input.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from tabiflow.protocol import FP32_LOST, Params, decay_is_lost
from tabiflow.registry import Grid
from tabiflow.registry.kinds import KINDS
from tabiflow.spec import Dataset, Model, Space, Sweep, configured
from tabiflow.trial import Cell, Hold, Outcome, Status, Trial

State = Literal["todo", "known", "failed", "held"]


@dataclass(frozen=True)
class Study:
    """A sampled search of one cell: its trials are found while it runs."""

    template: Trial
    space: Space
    samples: int

    def trial(self, settings: Mapping[str, Any]) -> Trial:
        params, protocol = configured(self.template.protocol, settings)
        return replace(self.template, params=params, protocol=protocol)

    def owns(self, trial: Trial) -> bool:
        """Whether a trial of the ledger could have been sampled here."""
        if trial.cell != self.template.cell:
            return False
        point = trial.point(self.space.dimensions)
        return self.space.holds(point) and self.trial(point).id == trial.id


@dataclass(frozen=True)
class Equal:
    """Trials of one cell that are proven to give the same weights, bit for bit."""

    run: Trial
    """The one that is run: the first in grid order, but for one that is finished already."""
    aliases: tuple[Trial, ...]
    """The others, whose outcome is its outcome."""
    proof: str


@dataclass(frozen=True)
class Winner:
    """The best configuration of a cell by its validation score."""

    cell: Cell
    trial: Trial
    """Of the first seed; the other seeds share its configuration."""
    final: Trial
    """What confirming trials repeat, but for their seed and split: `trial`, or the same for as
    many epochs as it has recorded where the sweep says `fixed_epochs`."""
    score: float
    """Mean of the headline metric over the sweep's seeds, at each trial's kept epoch."""
    epoch: int
    """The kept epoch of `trial`."""
    ties: int
    """Other configurations with exactly this score; the first in grid order was taken."""
    candidates: int
    complete: bool
    """False while trials of the cell are missing: another configuration may yet win."""


@dataclass(frozen=True)
class CellPlan:
    """One model on one data set: the trials that compete, and what is known of them."""

    model: Model
    dataset: Dataset
    trials: tuple[Trial, ...]
    """In grid order; of a sampled cell those that the ledger already knows, oldest first; of a
    sweep of winners the confirming ones."""
    varying: tuple[str, ...]
    """What differs between the trials: their names show it."""
    outcomes: Mapping[str, Outcome]
    study: Study | None = None
    hold: Hold | None = None
    asked: int = 0
    """Trials asked for, where some have no id yet: samples, confirming trials of a later winner."""
    origin: Winner | None = None
    """In a sweep of winners: what the cell won in the sweep named there, as it is trained here."""
    unchanged: Winner | None = None
    """The same as it is trained there."""
    awaits: str = ""
    """In a sweep of winners: why there is no `origin`."""

    @property
    def cell(self) -> Cell:
        return Cell(self.model.name, self.dataset.name)

    @property
    def size(self) -> int:
        return max(len(self.trials), self.asked)

    @cached_property
    def equal(self) -> tuple[Equal, ...]:
        """Classes of more than one trial. Samples are drawn to be run, so none is merged."""
        classes: dict[str, list[Trial]] = {}
        for trial in self.trials if self.study is None else ():
            classes.setdefault(_undecayed(trial).id, []).append(trial)
        return tuple(self._merged(each) for each in classes.values() if len(each) > 1)

    def _merged(self, trials: Sequence[Trial]) -> Equal:
        finished = (each for each in trials if each.id in self.outcomes)
        run = next((each for each in finished if self.outcomes[each.id].finished), trials[0])
        return Equal(run, tuple(each for each in trials if each is not run), _proof(trials))

    @cached_property
    def _runs(self) -> dict[str, Trial]:
        return {alias.id: each.run for each in self.equal for alias in each.aliases}

    def run_of(self, trial: Trial) -> Trial:
        """The trial itself, or the one that is run in its place."""
        return self._runs.get(trial.id, trial)

    def outcome(self, trial: Trial) -> Outcome | None:
        return self.outcomes.get(self.run_of(trial).id)

    def equal_to(self, trial: Trial) -> Equal | None:
        """The class that the trial is run for."""
        return next((each for each in self.equal if each.run.id == trial.id), None)

    @property
    def distinct(self) -> tuple[Trial, ...]:
        """The trials without those that another one is run for."""
        return tuple(trial for trial in self.trials if trial.id not in self._runs)

    def state(self, trial: Trial) -> State:
        """An alias is where the trial is that is run for it."""
        outcome = self.outcome(trial)
        if outcome is not None and outcome.finished:
            return "known"
        if outcome is not None and outcome.status is Status.FAILED:
            return "failed"
        return "held" if self.hold is not None and self.hold.covers(trial) else "todo"

    def having(self, *states: State) -> tuple[Trial, ...]:
        """The distinct trials in one of these states."""
        return tuple(trial for trial in self.distinct if self.state(trial) in states)

    @property
    def to_come(self) -> int:
        """Trials asked for that have no id yet."""
        return self.size - len(self.trials)

    @property
    def drawable(self) -> int:
        """Those of them that may be drawn now; a held cell draws none."""
        if self.study is None or (self.hold is not None and self.hold.covers(self.study.template)):
            return 0
        return self.to_come

    @cached_property
    def counts(self) -> dict[State, int]:
        counts: dict[State, int] = {"known": 0, "failed": 0, "held": 0, "todo": 0}
        for trial in self.trials:
            counts[self.state(trial)] += 1
        blocked = self.study is not None and not self.drawable
        counts["held" if blocked else "todo"] += self.to_come
        return counts

    @property
    def complete(self) -> bool:
        return self.counts["known"] == self.size

    @property
    def decided(self) -> bool:
        """Whether no missing trial can change its winner."""
        return self.origin is not None or (self.complete and not self.awaits)


@dataclass(frozen=True)
class Plan:
    """Everything a sweep asks for, cell by cell."""

    sweep: Sweep
    cells: tuple[CellPlan, ...]

    @property
    def trials(self) -> Iterator[Trial]:
        for cell in self.cells:
            yield from cell.trials

    @cached_property
    def counts(self) -> dict[str, int]:
        sums = {
            state: sum(cell.counts[state] for cell in self.cells)
            for state in ("todo", "known", "failed", "held")
        }
        size = sum(cell.size for cell in self.cells)
        distinct = sum(len(cell.distinct) + cell.to_come for cell in self.cells)
        return {"trials": size, **sums, "distinct": distinct, "cells": len(self.cells)}

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(cell.model.name for cell in self.cells))

    @property
    def datasets(self) -> list[str]:
        return list(dict.fromkeys(cell.dataset.name for cell in self.cells))

    def of(self, cell: Cell) -> CellPlan:
        return next(each for each in self.cells if each.cell == cell)


def plan(
    sweep: Sweep,
    grid: Grid,
    outcomes: Mapping[str, Outcome] | None = None,
    holds: Sequence[Hold] = (),
) -> Plan:
    """The whole of a sweep, with what the ledger knows marked in it.

    `outcomes` holds each trial's latest attempt by trial id, of every experiment.
    """
    outcomes = outcomes or {}
    by_cell: dict[Cell, list[Outcome]] = {}
    for outcome in outcomes.values():
        by_cell.setdefault(outcome.trial.cell, []).append(outcome)
    cells: dict[Cell, CellPlan] = {}
    for datasets, space in grid.searches:
        for dataset in datasets:
            for model in grid.models:
                cell = Cell(model.name, dataset.name)
                base = _template(sweep, model, dataset, KINDS[dataset.task].version)
                known = by_cell.get(cell, [])
                fresh = _cell_plan(sweep, model, dataset, space, base, known, holds)
                cells[cell] = _merged(sweep, cells[cell], fresh) if cell in cells else fresh
    return Plan(sweep, tuple(cells.values()))


def _template(sweep: Sweep, model: Model, dataset: Dataset, task_version: int) -> Trial:
    params, protocol = configured(sweep.protocol, {"learning_rate": 1e-5})
    return Trial(
        model=model.name,
        dataset=dataset.name,
        model_identity=model.identity,
        dataset_identity={**dataset.identity, "version": task_version},
        params=params,
        protocol=protocol,
        seed=sweep.seeds[0],
        limit=sweep.limit.model_dump(exclude_none=True),
        runner=_runner(sweep),
    )


def _runner(sweep: Sweep) -> dict[str, Any]:
    """Part of the identity: a rehearsed score must never pass for a real one."""
    if sweep.runner == "finetune":
        return {}
    return {"name": sweep.runner, **sweep.rehearse.model_dump(exclude_defaults=True)}


def _cell_plan(
    sweep: Sweep,
    model: Model,
    dataset: Dataset,
    space: Space,
    base: Trial,
    known: Sequence[Outcome],
    holds: Sequence[Hold],
) -> CellPlan:
    study = None
    varying = space.varying + (("seed",) if len(sweep.seeds) > 1 else ())
    if space.samples is None:
        trials = tuple(_grid(base, space, sweep.seeds))
    else:
        study = Study(base, space, space.samples)
        trials = tuple(_sampled(study, known))
    ids = {trial.id for trial in trials}
    return CellPlan(
        model=model,
        dataset=dataset,
        trials=trials,
        varying=varying,
        outcomes={each.trial.id: each for each in known if each.trial.id in ids},
        study=study,
        hold=next((hold for hold in holds if hold.covers(base)), None),
        asked=space.samples or 0,
    )


def _grid(base: Trial, space: Space, seeds: Sequence[int]) -> Iterator[Trial]:
    for settings in space.grid():
        params, protocol = configured(base.protocol, settings)
        for seed in seeds:
            yield replace(base, params=params, protocol=protocol, seed=seed)


def _undecayed(trial: Trial) -> Trial:
    """The same trial without weight decay, where its decay changes no weight."""
    if not decay_is_lost(trial.trained, trial.protocol):
        return trial
    return replace(trial, params=trial.trained.model_copy(update={"weight_decay": 0.0}))


def _proof(trials: Sequence[Trial]) -> str:
    largest = max(each.trained.learning_rate * each.trained.weight_decay for each in trials)
    return (
        f"learning_rate x weight_decay is at most {largest:.3g}, below 2^-25 = {FP32_LOST:.3g}: "
        "in fp32 every step multiplies the weights by exactly 1"
    )


def _sampled(study: Study, known: Sequence[Outcome]) -> list[Trial]:
    """The trials that the study has drawn so far, oldest first, at most as many as asked for."""
    drawn = [outcome for outcome in known if study.owns(outcome.trial)]
    # An unknown start, NaN, would leave the order to chance.
    drawn.sort(
        key=lambda each: (math.inf if math.isnan(each.started) else each.started, each.trial.id)
    )
    return [outcome.trial for outcome in drawn[: study.samples]]


def _merged(sweep: Sweep, first: CellPlan, second: CellPlan) -> CellPlan:
    """A data set that stands in two searches competes in both spaces at once."""
    if first.study or second.study:
        raise sweep.source.error(
            f"data set `{first.dataset.name}` stands in two searches, one of them sampled", "search"
        )
    trials = {trial.id: trial for trial in (*first.trials, *second.trials)}
    return replace(
        first,
        trials=tuple(trials.values()),
        varying=_varying(tuple(trials.values())),
        outcomes={**first.outcomes, **second.outcomes},
    )


def _varying(trials: Sequence[Trial]) -> tuple[str, ...]:
    """The settings in which trials of several spaces differ; one space knows its own."""
    changed = (name for trial in trials for name in trial.protocol.changed())
    names = dict.fromkeys((*Params.model_fields, *changed, "seed"))
    return tuple(
        name for name in names if len({repr(trial.point([name])[name]) for trial in trials}) > 1
    )

"""Rehearsed sweeps on a real local Ray: what runs, what is retried, held, cut or interrupted."""

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.tune.execution.class_cache import _ActorClassCache
from studies import dataset, known, outcome, planned

from tabiflow import engine
from tabiflow.driver import Driver
from tabiflow.engine import Options, Summary
from tabiflow.errors import DataError, LeaseHeld
from tabiflow.ledger import Ending, Failure, Killed, Pruned
from tabiflow.plan import Plan
from tabiflow.trial import Cell, Epoch, Hold, Opening, Outcome, Result, Status, Trial
from tabiflow.work import Work, missing

pytestmark = pytest.mark.usefixtures("local_ray")
STATUS = {
    Result: Status.DONE,
    Failure: Status.FAILED,
    Killed: Status.KILLED,
    Pruned: Status.PRUNED,
}


@dataclass
class Memory:
    """A Recorder that remembers, and refuses what no ledger would take."""

    id: str = "study"
    cells: list[Cell] = field(default_factory=list)
    started: list[tuple[str, int]] = field(default_factory=list)
    opened: list[Opening] = field(default_factory=list)
    epochs: dict[str, list[Epoch]] = field(default_factory=dict)
    ended: dict[str, list[Ending]] = field(default_factory=dict)
    trials: dict[str, Trial] = field(default_factory=dict)
    held: list[Hold] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)

    def cell(self, cell: Cell, category: str, metric: str, facts: Any = None) -> None:
        self.cells.append(cell)

    def start(self, trial: Trial, attempt: int, label: str, tags: Any = None) -> None:
        assert trial.cell in self.cells and (trial.id, attempt) not in self.started
        self.started.append((trial.id, attempt))
        self.labels.append(label)
        self.trials[trial.id] = trial
        self.epochs[trial.id] = []

    def open_test(
        self, trial: Trial, attempt: int, label: str, opening: Opening, tags: Any = None
    ) -> None:
        self.start(trial, attempt, label)
        self.opened.append(opening)

    def epoch(self, trial_id: str, attempt: int, epoch: Epoch) -> bool:
        assert epoch.epoch == len(self.epochs[trial_id]) + 1
        self.epochs[trial_id].append(epoch)
        return True

    def finish(self, trial_id: str, attempt: int, ending: Ending) -> bool:
        self.ended.setdefault(trial_id, []).append(ending)
        assert len(self.ended[trial_id]) <= len([id for id, _ in self.started if id == trial_id])
        return True

    def hold(self, hold: Hold) -> None:
        self.held.append(hold)

    def release(self, cell: Cell) -> None:
        self.held = [hold for hold in self.held if hold.cell != cell]

    def flush(self, timeout: float = 60.0) -> bool:
        return True

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        return {id: self._outcome(id, endings[-1]) for id, endings in self.ended.items()}

    def _outcome(self, id: str, ending: Ending) -> Outcome:
        attempt = max(number for each, number in self.started if each == id)
        fields = {
            name: getattr(ending, name)
            for name in ("score", "epoch", "kind", "error", "test", "n")
            if hasattr(ending, name)
        }
        at = float(len(self.trials))
        return outcome(
            self.trials[id], STATUS[type(ending)], attempt=attempt, run_id=id, started=at, **fields
        )

    @property
    def curves(self) -> Mapping[str, list[tuple[int, float]]]:
        return {id: [(at.epoch, at.score) for at in curve] for id, curve in self.epochs.items()}


def _plan(folder: Path, recorder: Memory | None = None, **changes: Any) -> Plan:
    outcomes = recorder.outcomes.values() if recorder else ()
    return planned(folder, outcomes, **{"runner": "rehearse", **changes})


def _run(plan: Plan, recorder: Memory, work: Any = None, **options: Any) -> Summary:
    return engine.run(
        missing(plan) if work is None else work,
        plan.sweep,
        recorder,
        recorder.outcomes,
        curves=recorder.curves,
        options=Options(**{"pause": 0.1, "workers": 1, **options}),
    )


def _grid(cells: int = 1, rates: int = 3) -> list[dict[str, Any]]:
    rows = [dataset(f"data{index}") for index in range(cells)]
    space = {"learning_rate": [index * 1e-5 for index in range(1, rates + 1)]}
    return [{"datasets": rows, "space": space}]


def test_a_sweep_runs_every_trial_once_and_again_none(tmp_path: Path) -> None:
    recorder = Memory()
    summary = _run(_plan(tmp_path, search=_grid(cells=2)), recorder)

    assert (summary.done, summary.failed, summary.stopped) == (6, 0, "")
    assert len(recorder.started) == len(set(recorder.started)) == 6
    assert all(len(curve) == 10 for curve in recorder.epochs.values())
    assert _run(_plan(tmp_path, recorder, search=_grid(cells=2)), recorder) == Summary()


def test_trials_run_in_the_processes_that_ray_has_started_already() -> None:
    class Actor:
        def environment(self) -> dict[str, Any]:
            return dict(ray.get_runtime_context().runtime_env)

    with engine._plain():
        actor = _ActorClassCache().get(Actor).remote()

    assert ray.get(actor.environment.remote()) == {}


def test_a_wider_space_runs_only_the_new_trials(tmp_path: Path) -> None:
    recorder = Memory()
    _run(_plan(tmp_path, search=_grid(rates=3)), recorder)
    summary = _run(_plan(tmp_path, recorder, search=_grid(rates=5)), recorder)

    assert summary.done == 2
    assert len(recorder.started) == 5


def test_runs_are_named_by_what_differs(tmp_path: Path) -> None:
    recorder = Memory()
    _run(_plan(tmp_path), recorder)

    assert sorted(recorder.labels) == ["lr=1e-05", "lr=2e-05", "lr=3e-05"]


def _with(plan: Plan, cell: int, **misfortunes: float) -> list[Work]:
    """The plan's work, with one cell's trials rehearsing a misfortune."""
    works = list(missing(plan))
    trials = (replace(each, runner={**each.runner, **misfortunes}) for each in works[cell].trials)
    works[cell] = replace(works[cell], trials=tuple(trials))
    return works


def test_a_failing_cell_is_held_after_two_equal_failures_while_others_finish(
    tmp_path: Path,
) -> None:
    recorder, plan = Memory(), _plan(tmp_path, search=_grid(cells=2, rates=8))
    summary = _run(plan, recorder, _with(plan, 0, failing=1.0))

    assert summary.done == 8 and 2 <= summary.failed <= 3
    assert [hold.cell for hold in recorder.held] == [Cell("model", "data0")]
    assert (recorder.held[0].kind, summary.stopped) == ("bug", "")


@pytest.mark.parametrize("misfortune", ["faulty", "lost"])
def test_a_trial_that_was_not_at_fault_is_run_again(tmp_path: Path, misfortune: str) -> None:
    recorder, plan = Memory(), _plan(tmp_path, search=_grid(cells=2, rates=2))
    summary = _run(plan, recorder, _with(plan, 0, **{misfortune: 1.0}))

    assert (summary.done, summary.failed, summary.retries) == (4, 0, 2)
    assert sorted(number for _, number in recorder.started) == [1, 1, 1, 1, 2, 2]


def test_a_trial_that_shared_its_node_is_tried_alone_before_memory_was_too_small(
    tmp_path: Path,
) -> None:
    recorder, plan = Memory(), _plan(tmp_path, search=_grid(cells=2, rates=2))
    summary = _run(plan, recorder, _with(plan, 0, crowded=1.0), workers=2)

    assert (summary.done, summary.failed, summary.retries) == (4, 0, 2)


def test_a_trial_that_memory_does_not_hold_even_alone_is_out_of_memory(tmp_path: Path) -> None:
    limits = {"retries": 0}
    recorder, plan = Memory(), _plan(tmp_path, search=_grid(rates=2), limits=limits)
    summary = _run(plan, recorder, _with(plan, 0, oversized=1.0), workers=2)

    assert (summary.done, summary.failed, summary.retries) == (0, 2, 2)
    for first, second in recorder.ended.values():
        assert isinstance(first, Killed) and first.cause.startswith("oom")
        assert isinstance(second, Failure) and second.kind == "oom"


def test_a_trial_that_had_its_node_to_itself_is_not_tried_again(tmp_path: Path) -> None:
    recorder, plan = Memory(), _plan(tmp_path, search=_grid(rates=1), cpus=2)
    summary = _run(plan, recorder, _with(plan, 0, oversized=1.0))

    assert (summary.failed, summary.retries) == (1, 0)


def test_a_lost_trial_fails_when_its_retries_are_used_up(tmp_path: Path) -> None:
    recorder, plan = Memory(), _plan(tmp_path, search=_grid(rates=1), limits={"retries": 0})
    _run(plan, recorder, _with(plan, 0, lost=1.0))

    [[ending]] = recorder.ended.values()
    assert isinstance(ending, Failure) and ending.kind == "node_lost"


def test_a_diverged_trial_is_neither_retried_nor_held(tmp_path: Path) -> None:
    recorder, plan = Memory(), _plan(tmp_path, search=_grid(rates=3))
    summary = _run(plan, recorder, _with(plan, 0, diverging=1.0))

    assert (summary.failed, summary.retries, summary.holds) == (3, 0, [])
    assert {each.kind for [each] in recorder.ended.values()} == {"diverged"}


def test_a_trial_that_takes_too_long_ends_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    recorder = Memory()
    slow = _plan(
        tmp_path, search=_grid(rates=1), rehearse={"seconds": 30}, limits={"trial_hours": 5e-5}
    )
    _run(slow, recorder)

    [[ending]] = recorder.ended.values()
    assert isinstance(ending, Failure) and ending.kind == "timeout"


def test_while_trials_compute_the_driver_lets_them(tmp_path: Path, monkeypatch: Any) -> None:
    """Tune's loop would look for events ten times a second."""
    steps: list[float] = []

    def step(driver: Driver, **told: Any) -> None:
        steps.append(time.monotonic())

    monkeypatch.setattr(Driver, "on_step_end", step)
    slow = {"rehearse": {"seconds": 2}, "protocol": {"epochs": 2}}
    assert _run(_plan(tmp_path, search=_grid(rates=1), **slow), Memory()).done == 1
    assert steps[-1] - steps[0] > 4
    assert len(steps) < 4 * (steps[-1] - steps[0])


def test_a_confirming_trial_opens_its_test_split_and_repeats_the_score(tmp_path: Path) -> None:
    recorder, plan = Memory(), _plan(tmp_path, search=_grid(rates=1))
    [trial] = plan.trials
    _run(plan, recorder)
    confirming = replace(trial, split="test")
    opening = Opening(confirming.id, "someone", "2026-01-01T00:00:00Z", "-")
    work = Work(plan.cells[0], (confirming,), openings={confirming.id: opening})
    _run(plan, recorder, [work])

    result = recorder.outcomes[confirming.id]
    (opened,) = recorder.opened
    assert opened == replace(opening, at=opened.at) and opened.at > opening.at
    assert result.score == recorder.outcomes[trial.id].score
    assert result.n == 100 and abs(result.test - result.score) <= 1


def _twelve(folder: Path, recorder: Memory | None = None, samples: int = 30) -> Plan:
    rows = [dataset(f"data{index}") for index in range(12)]
    space = {"learning_rate": {"log_uniform": [1e-6, 1e-3]}}
    search = [{"datasets": rows, "space": space, "samples": samples}]
    return _plan(folder, recorder, search=search, pruning="asha")


def test_asha_per_cell_leaves_a_full_length_trial_in_every_cell(tmp_path: Path) -> None:
    recorder = Memory()
    _run(_twelve(tmp_path, samples=12), recorder)
    summary = _run(_twelve(tmp_path, recorder), recorder)

    done = {each.trial.cell for each in recorder.outcomes.values() if each.status is Status.DONE}
    assert len(done) == 12 and summary.pruned > 0
    assert len(recorder.started) == len(set(recorder.started)) == 12 * 30
    assert all(cell.complete for cell in _twelve(tmp_path, recorder).cells)


class _Interrupting(Memory):
    """Sends the driver a signal when the third trial starts."""

    number = signal.SIGINT

    def start(self, *args: Any, **kwargs: Any) -> None:
        super().start(*args, **kwargs)
        if len(self.started) == 3:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_in_order_and_leaves_running_trials_killed(
    tmp_path: Path, number: signal.Signals
) -> None:
    recorder, slow = _Interrupting(), {"search": _grid(rates=9), "rehearse": {"seconds": 0.05}}
    recorder.number = number
    summary = _run(_plan(tmp_path, **slow), recorder)

    assert summary.interrupted and summary.stopped == "interrupted"
    assert summary.done + summary.killed == len(recorder.started) < 9
    assert {len(endings) for endings in recorder.ended.values()} == {1}
    recorder.number = signal.SIGCHLD
    _run(_plan(tmp_path, recorder, **slow), recorder)
    assert all(each.status is Status.DONE for each in recorder.outcomes.values())
    assert len(recorder.outcomes) == 9


class _Fenced(Memory):
    def epoch(self, trial_id: str, attempt: int, epoch: Epoch) -> bool:
        raise LeaseHeld("another driver has taken the sweep over")


def test_what_the_recorder_raises_ends_the_run_as_itself(tmp_path: Path) -> None:
    with pytest.raises(LeaseHeld, match="another driver"):
        _run(_plan(tmp_path), _Fenced())


def test_a_row_that_cannot_be_resolved_is_held_before_the_first_trial(tmp_path: Path) -> None:
    def ask(row: Any) -> str:
        if row.name == "data0":
            raise DataError("data set `owner/data0` of the hub does not exist")
        return "c" * 40

    recorder = Memory()
    plan = _plan(tmp_path, search=_grid(cells=1), runner="finetune")
    summary = _run(plan, recorder, resolve=ask)

    assert (summary.done, summary.failed, recorder.started) == (0, 0, [])
    assert [(hold.cell.dataset, hold.kind) for hold in recorder.held] == [("data0", "data")]


def test_a_revision_that_moved_is_held_and_both_commits_named(tmp_path: Path) -> None:
    plan = _plan(tmp_path, runner="finetune")
    first = outcome(plan.cells[0].trials[0], tags={"model_commit": "a" * 40})
    recorder = Memory()
    engine.run(
        missing(plan),
        plan.sweep,
        recorder,
        known([first]),
        options=Options(resolve=lambda _: "b" * 40),
    )

    assert recorder.started == []
    [hold] = recorder.held
    assert hold.kind == "model"
    assert all(word in hold.error for word in ("a" * 40, "b" * 40, "`revision:"))

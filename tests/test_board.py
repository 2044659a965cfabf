"""What the board counts and shows."""

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from studies import dataset, known, model, outcome, planned, scored, searched

from tabiflow.board import Board, Progress, board, duration, shown
from tabiflow.ledger import Failure, Killed
from tabiflow.plan import Plan
from tabiflow.trial import Epoch, Hold, Opening, Result, Status, Trial
from tabiflow.work import confirming, missing, spoiled


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Two cells of three trials, nothing known."""
    return planned(tmp_path, models=[model(), model("other")])


def drawn(progress: Progress) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(Board(progress))
    text: str = console.file.getvalue()
    return text


def of(plan: Plan) -> Progress:
    return Progress.of(plan, missing(plan))


def ended(score: float) -> Result:
    return Result(epoch=1, score=score)


def test_what_the_ledger_knows_is_counted_before_anything_runs(tmp_path: Path) -> None:
    trials = list(planned(tmp_path).trials)
    found = [*scored(trials[:1], 70.0), outcome(trials[1], Status.FAILED, kind="oom")]
    progress = of(planned(tmp_path, found))
    (square,) = progress.cells.values()
    assert (square.done, square.failed, square.best, progress.left) == (1, 1, 70.0, 1)
    assert math.isnan(progress.seconds_left())


def test_events_move_a_trial_from_open_to_running_to_done(plan: Plan) -> None:
    trial, *_ = plan.trials
    progress = of(plan)
    progress.start(trial, 1)
    progress.epoch(trial, Epoch(1, 55.0, 0.5))
    assert "epoch 1, validation 55.00" in drawn(progress)
    progress.end(trial, ended(61.0))
    assert not progress.running and progress.left == 5 and "61.00" in drawn(progress)
    assert progress.seconds_left() >= 0


def test_a_trial_on_its_way_when_its_cell_is_held_is_not_held(plan: Plan) -> None:
    first, second, *_ = plan.trials
    progress = of(plan)
    progress.start(first, 1)
    progress.end(first, Failure("bug", "a bug", ""))
    progress.hold(first.cell)
    progress.start(second, 1)
    progress.end(second, ended(50.0))
    square = progress.cells[first.cell]
    assert (square.failed, square.done, square.held, square.waiting) == (1, 1, 1, 0)
    assert progress.left == 3


def test_a_drawn_trial_is_named_by_what_differs_in_it(tmp_path: Path) -> None:
    space = {"learning_rate": {"log_uniform": [1e-5, 1e-3]}, "samples": 3}
    plan = planned(tmp_path, search=searched(**space))
    (cell,) = plan.cells
    assert cell.study is not None
    trial = cell.study.trial({"learning_rate": 1.23e-4})
    progress = of(plan)
    progress.start(trial, 1)
    assert "lr=0.000123" in drawn(progress)


def test_failures_are_counted_by_kind_and_interruptions_are_none(plan: Plan) -> None:
    first, second, *_ = plan.trials
    progress = of(plan)
    progress.end(first, Failure("diverged", "loss is nan"))
    progress.end(second, Killed("the driver stopped"))
    assert "failures: 1 diverged" in drawn(progress)
    assert progress.left == 5 and progress.ended == 1


def test_a_held_cell_leaves_only_what_runs(plan: Plan) -> None:
    first, *_ = plan.trials
    progress = of(plan)
    progress.start(first, 1)
    progress.hold(first.cell)
    assert progress.cells[first.cell].held == 2 and progress.left == 4


def test_what_runs_again_is_no_longer_failed(tmp_path: Path) -> None:
    first, second, _ = planned(tmp_path).trials
    failed = known([outcome(each, Status.FAILED, kind="oom") for each in (first, second)])
    plan = planned(tmp_path, failed.values())
    progress = Progress.of(plan, spoiled(plan, failed))
    (square,) = progress.cells.values()
    assert (square.failed, progress.left) == (0, 2)


def test_while_winners_are_confirmed_only_they_are_counted(plan: Plan) -> None:
    trial = replace(next(plan.trials), split="test")
    opening = Opening(trial.id, "me", "now", "abc")
    progress = Progress.of(plan, confirming(plan, [trial], {trial.id: opening}))
    assert list(progress.cells) == [trial.cell] and progress.left == 1
    progress.end(trial, ended(61.0))
    assert progress.left == 0


def test_an_unknown_score_never_becomes_the_best(plan: Plan) -> None:
    first, second, *_ = plan.trials
    progress = of(plan)
    progress.end(first, ended(math.nan))
    assert math.isnan(progress.cells[first.cell].best)
    progress.end(second, ended(3.0))
    assert progress.cells[first.cell].best == 3.0


def test_elsewhere_than_on_a_terminal_each_end_is_a_line(
    plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    trial: Trial = next(plan.trials)
    caplog.set_level("INFO", logger="tabiflow.board")
    console = Console(file=io.StringIO())
    with board(of(plan), console) as listener:
        listener.on_start(trial, 1)
        listener.on_end(trial, ended(61.0))
        listener.on_hold(Hold.of(trial, "model", "broken weights"))
    end, held = (record.getMessage() for record in caplog.records)
    assert end.startswith("model x data [lr=1e-05] validation 61.00; 5 left")
    assert held == "held model x data: model: broken weights" and not console.file.getvalue()


def test_a_cell_that_a_sweep_does_not_have_is_a_dash(tmp_path: Path) -> None:
    both = planned(
        tmp_path,
        models=[model()],
        search=[{"datasets": [dataset(), dataset("two")], "space": {"learning_rate": [1e-5]}}],
    )
    assert "two" in drawn(of(both))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(math.nan, "–"), (12.4, "12 s"), (200, "3 min 20 s"), (3900, "1 h 05 min")],
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_an_unknown_number_is_a_dash() -> None:
    assert shown(math.nan) == "–" and shown(1.005, ".1f") == "1.0"

"""Which attempt comes next: order, retries, holds, limits, and the studies of sampled cells."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from studies import RATES, dataset, model, outcome, planned, searched

from tabiflow.plan import Plan
from tabiflow.pruning import AshaPerCell
from tabiflow.search import Attempt, Queue, signature
from tabiflow.spec import Limits, Pruning
from tabiflow.trial import Cell, Status, Trial
from tabiflow.work import missing

RANGE = {"learning_rate": {"log_uniform": [1e-6, 1e-3]}}


def _queue(plan: Plan, limits: Limits | None = None, **options: Any) -> Queue:
    outcomes = {id: each for cell in plan.cells for id, each in cell.outcomes.items()}
    return Queue(missing(plan), outcomes, limits or Limits(), **{"pause": 0.0, **options})


def _all(queue: Queue) -> list[Attempt]:
    """Everything that is handed out when every trial trains and none ever ends."""
    attempts = []
    while (attempt := queue.next()) is not None:
        queue.trained(attempt.trial.cell)
        attempts.append(attempt)
    return attempts


def test_losses_are_counted_apart_from_being_tried_alone(tmp_path: Path) -> None:
    queue = _queue(planned(tmp_path), Limits(retries=1))
    first = queue.next()
    assert first is not None and first.alone is None
    assert queue.failed(first, "oom", "MemoryError", "gpu").retry
    alone = queue.next()
    assert alone is not None and (alone.trial, alone.alone) == (first.trial, "gpu")
    assert queue.failed(alone, "node_lost", "gone").retry
    again = queue.next()
    assert again is not None and (again.number, again.alone) == (3, "gpu")
    assert not queue.failed(again, "oom", "MemoryError", None).retry


def test_an_attempt_that_went_down_with_others_costs_no_retry(tmp_path: Path) -> None:
    queue = _queue(planned(tmp_path), Limits(retries=0))
    first = queue.next()
    assert first is not None
    queue.dropped(first)
    again = queue.next()
    assert again is not None and (again.trial, again.number) == (first.trial, 2)


def _cells(**changes: Any) -> dict[str, Any]:
    rows = [dataset("small", sizes={"train": 10}), dataset("big", sizes={"train": 1000})]
    return {
        "models": [model(parameters=5)],
        "search": [{"datasets": rows, "space": {"learning_rate": RATES}}],
        **changes,
    }


def _fail(queue: Queue, kind: Any = "bug", error: str = "KeyError: 'x'") -> Any:
    attempt = queue.next()
    assert attempt is not None
    return queue.failed(attempt, kind, error)


def test_the_longest_cells_come_first(tmp_path: Path) -> None:
    order = [attempt.trial.dataset for attempt in _all(_queue(planned(tmp_path, **_cells())))]

    assert order == ["big"] * 3 + ["small"] * 3


def test_a_cell_that_has_not_trained_yet_risks_no_more_trials_than_may_fail_alike(
    tmp_path: Path,
) -> None:
    queue = _queue(planned(tmp_path, **_cells()))
    order = [attempt.trial.dataset for attempt in iter(queue.next, None)]
    assert order == ["big", "big", "small", "small"]
    queue.trained(Cell("model", "big"))
    assert [attempt.trial.dataset for attempt in iter(queue.next, None)] == ["big"]


def test_a_cell_of_unknown_cost_leads(tmp_path: Path) -> None:
    rows = [dataset("big", sizes={"train": 1000}), dataset("unknown")]
    search = [{"datasets": rows, "space": {"learning_rate": RATES}}]
    plan = planned(tmp_path, models=[model(parameters=5)], search=search)

    assert _all(_queue(plan))[0].trial.dataset == "unknown"


def test_attempts_go_on_counting_where_the_ledger_is(tmp_path: Path) -> None:
    killed = outcome(planned(tmp_path).cells[0].trials[1], Status.KILLED, attempt=3)
    numbers = [attempt.number for attempt in _all(_queue(planned(tmp_path, [killed])))]

    assert numbers == [1, 4, 1]


@pytest.mark.parametrize("kind", ["environment", "node_lost"])
def test_a_fault_that_may_pass_is_tried_again(tmp_path: Path, kind: str) -> None:
    queue = _queue(planned(tmp_path), Limits(retries=2))
    first = queue.next()
    assert first is not None and queue.failed(first, kind, "disk full").retry
    second = queue.next()

    assert second is not None
    assert (second.trial.id, second.number) == (first.trial.id, 2)


def test_retries_end_in_a_failure(tmp_path: Path) -> None:
    queue = _queue(planned(tmp_path), Limits(retries=2))
    verdicts = [_fail(queue, "node_lost") for _ in range(3)]

    assert [verdict.retry for verdict in verdicts] == [True, True, False]
    assert not queue.finished


def test_an_environment_fault_waits_while_others_go_on(tmp_path: Path) -> None:
    queue = _queue(planned(tmp_path), pause=60.0)
    _fail(queue, "environment")

    assert len(_all(queue)) == 2
    assert queue.left and not queue.finished


@pytest.mark.parametrize("kind", ["oom", "timeout", "diverged"])
def test_other_failures_neither_come_back_nor_hold(tmp_path: Path, kind: str) -> None:
    queue = _queue(planned(tmp_path))
    verdicts = [_fail(queue, kind) for _ in range(3)]

    assert not any(verdict.retry or verdict.hold for verdict in verdicts)
    assert queue.finished


@pytest.mark.parametrize("kind", ["data", "model", "bug"])
def test_the_same_error_twice_holds_the_rest_of_the_cell_only(tmp_path: Path, kind: str) -> None:
    queue = _queue(planned(tmp_path, **_cells()))
    first, second = _fail(queue, kind), _fail(queue, kind)

    assert (first.hold, second.hold.cell, second.hold.kind) == (None, Cell("model", "big"), kind)
    assert [attempt.trial.dataset for attempt in _all(queue)] == ["small"] * 3


def test_different_errors_hold_nothing(tmp_path: Path) -> None:
    queue = _queue(planned(tmp_path))
    errors = ["KeyError: 'x'", "ValueError: 'x'", "KeyError: 'y'"]

    assert not any(_fail(queue, "bug", error).hold for error in errors)


def test_a_failure_of_an_earlier_run_counts_towards_a_hold(tmp_path: Path) -> None:
    first = planned(tmp_path).cells[0].trials[0]
    earlier = outcome(first, Status.FAILED, kind="bug", error="KeyError: 'x'")

    assert _fail(_queue(planned(tmp_path, [earlier]))).hold is not None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("OSError: no /a/b.json", "OSError: no /c/d.json", True),
        ("RuntimeError: row 17 of 20", "RuntimeError: row 3 of 20", True),
        ("Error: at 0x7f3a", "Error: at 0x11bc", True),
        ("KeyError: 'a'", "KeyError: 'b'", False),
        ("KeyError: 'a'", "ValueError: 'a'", False),
        ("", "", True),
    ],
)
def test_errors_are_the_same_but_for_paths_and_numbers(one: str, other: str, same: bool) -> None:
    assert (signature(one) == signature(other)) is same


def test_after_too_many_failures_nothing_starts(tmp_path: Path) -> None:
    queue = _queue(planned(tmp_path), Limits(failures=1))
    _fail(queue, "oom"), _fail(queue, "oom")

    assert queue.next() is None
    assert queue.finished and queue.left and "limits.failures" in queue.stopped


def test_after_the_hours_nothing_starts(tmp_path: Path) -> None:
    queue = _queue(planned(tmp_path), Limits(hours=1e-9))

    assert queue.next() is None
    assert queue.finished and "limits.hours" in queue.stopped


def _sampled(folder: Path, *given: Any, samples: int = 12, space: Any = RANGE) -> Plan:
    search = searched(**space)
    return planned(folder, *given, search=[{**search[0], "samples": samples}])


def _play(queue: Queue, most: int = 100) -> list[Trial]:
    """Runs what is handed out one by one; the score falls with the distance from 1e-5."""
    played = []
    while len(played) < most and (attempt := queue.next()) is not None:
        played.append(attempt.trial)
        distance = abs(math.log10(attempt.trial.params.learning_rate) + 5)
        queue.done(attempt, Status.DONE, 90 - 10 * distance, 3)
    return played


def _rates(trials: Iterable[Trial]) -> list[float]:
    return [trial.params.learning_rate for trial in trials]


def test_a_sampled_cell_ends_with_exactly_its_samples(tmp_path: Path) -> None:
    played = _play(_queue(_sampled(tmp_path)))

    assert len({trial.id for trial in played}) == len(played) == 12


def test_a_study_learns_from_what_ended(tmp_path: Path) -> None:
    rates = _rates(_play(_queue(_sampled(tmp_path, samples=40))))
    distances = [abs(math.log10(rate) + 5) for rate in rates]

    assert sum(distances[-10:]) < sum(distances[:10])


def test_a_study_is_the_same_every_time(tmp_path: Path) -> None:
    first, second = (_play(_queue(_sampled(tmp_path))) for _ in range(2))

    assert _rates(first) == _rates(second)


def _ended(trials: list[Trial], status: Status = Status.DONE) -> list[Any]:
    return [
        outcome(trial, status, score=80.0, epoch=2, started=float(index))
        for index, trial in enumerate(trials)
    ]


@pytest.mark.parametrize("status", [Status.DONE, Status.PRUNED, Status.FAILED])
def test_a_restarted_study_goes_on_to_its_samples(tmp_path: Path, status: Status) -> None:
    before = _play(_queue(_sampled(tmp_path)), most=5)
    after = _play(_queue(_sampled(tmp_path, _ended(before, status))))

    assert len({trial.id for trial in (*before, *after)}) == len(before) + len(after) == 12


def test_killed_trials_of_a_study_run_again_with_their_values(tmp_path: Path) -> None:
    before = _play(_queue(_sampled(tmp_path)), most=5)
    outcomes = [*_ended(before[:3]), *_ended(before[3:], Status.KILLED)]
    after = _play(_queue(_sampled(tmp_path, outcomes)))

    assert _rates(after)[:2] == _rates(before)[3:]
    assert len({trial.id for trial in (*before, *after)}) == 12


def test_a_space_of_choices_is_sampled_until_it_is_empty(tmp_path: Path) -> None:
    space = {"learning_rate": RATES, "batch_size": [16, 32]}

    assert len(_play(_queue(_sampled(tmp_path, samples=6, space=space)))) == 6
    assert len(_play(_queue(_sampled(tmp_path, samples=9, space=space)))) == 6


def test_samples_are_spread_over_the_cells(tmp_path: Path) -> None:
    search = [{"datasets": [dataset("a"), dataset("b")], "space": RANGE, "samples": 4}]
    queue = _queue(planned(tmp_path, search=search))
    first_four = [queue.next() for _ in range(4)]

    assert sorted(each.trial.dataset for each in first_four if each) == ["a", "a", "b", "b"]


def _asha(trials: Iterable[Trial], **settings: Any) -> AshaPerCell:
    by_id = {trial.id: trial for trial in trials}
    return AshaPerCell(Pruning(**{"reduction_factor": 3, **settings}), by_id.__getitem__)


class _Tuned:
    """Tune's trial, as a scheduler sees it."""

    def __init__(self, trial: Trial) -> None:
        self.trial_id = trial.id


def _decisions(asha: AshaPerCell, trial: Trial, scores: Iterable[float]) -> list[str]:
    return [
        asha.on_trial_result(None, _Tuned(trial), {"epoch": epoch, "score": score})
        for epoch, score in enumerate(scores, start=1)
    ]


def test_a_trial_competes_with_its_own_cell_only(tmp_path: Path) -> None:
    easy, hard = planned(tmp_path, **_cells()).cells
    asha = _asha([*easy.trials, *hard.trials])
    _decisions(asha, easy.trials[0], [90.0] * 10)

    assert _decisions(asha, easy.trials[1], [50.0]) == ["STOP"]
    assert _decisions(asha, hard.trials[0], [20.0] * 10) == ["CONTINUE"] * 10


def test_a_trial_of_full_length_is_not_cut_at_its_end(tmp_path: Path) -> None:
    one, other, _ = planned(tmp_path, protocol={"epochs": 3}).cells[0].trials
    asha = _asha([one, other])
    _decisions(asha, one, [50.0, 50.0, 90.0])

    assert _decisions(asha, other, [50.0, 50.0, 10.0])[-1] == "CONTINUE"


def test_a_score_of_nan_is_neither_cut_nor_compared_with(tmp_path: Path) -> None:
    one, other, _ = planned(tmp_path).cells[0].trials
    asha = _asha([one, other])

    assert _decisions(asha, one, [math.nan] * 4) == ["CONTINUE"] * 4
    assert _decisions(asha, other, [1.0] * 4) == ["CONTINUE"] * 4


def test_brackets_are_refilled_with_earlier_curves(tmp_path: Path) -> None:
    one, other, _ = planned(tmp_path).cells[0].trials
    asha = _asha([one, other])
    asha.refill([(one, [(1, 80.0), (2, 85.0)])])

    assert _decisions(asha, other, [10.0]) == ["STOP"]
    assert _decisions(asha, one, [80.0, 85.0]) == ["CONTINUE"] * 2

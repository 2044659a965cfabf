"""The forecast against sweeps whose whole course is made up and therefore known."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tabiflow.cost import Costs, Taken, taken
from tabiflow.forecast import Forecast, forecast
from tabiflow.plan import Plan
from tabiflow.trial import Outcome, Trial
from tests.studies import dataset, model, outcome, planned

RATES = [1e-6, 2e-6, 3e-6, 5e-6, 1e-5, 2e-5, 3e-5, 5e-5]
ROWS = {"huge": 50_000, "large": 16_000, "middle": 5_000, "small": 1_600, "tiny": 500}
TOKENS = 30


def a_plan(folder: Path, done: list[Outcome] | None = None) -> Plan:
    rows = [dataset(name, sizes={"train": size}) for name, size in ROWS.items()]
    search = [{"datasets": rows, "space": {"learning_rate": RATES}}]
    return planned(folder, done or [], models=[model(parameters=10**8)], search=search)


def finished(trial: Trial, seconds: float, parameters: float = 1e8) -> Outcome:
    rows = ROWS[trial.dataset]
    facts = {
        "held_seconds": seconds,
        "trained_epochs": 5,
        "parameters": parameters,
        "train_tokens": TOKENS * rows,
        "train_rows": rows,
    }
    return outcome(trial, tags={name: str(fact) for name, fact in facts.items()})


def course(plan: Plan, seed: int) -> Iterator[tuple[Trial, float]]:
    """Seconds of every trial, the longest cells first: a speed and a stopping a cell of its own."""
    random = np.random.default_rng(seed)
    for cell in plan.cells:
        peculiar = random.normal(0, 0.4)
        for trial in cell.trials:
            size = (TOKENS * ROWS[trial.dataset]) ** random.normal(1.0, 0.02)
            yield trial, float(size / 1000 * np.exp(peculiar + random.normal(0, 0.25)))


def after(share: float, whole: list[tuple[Trial, float]], folder: Path) -> Forecast:
    """When this share of the work is done."""
    limit, spent, done = share * sum(seconds for _, seconds in whole), 0.0, []
    for trial, seconds in whole:
        if spent >= limit:
            break
        spent += seconds
        done.append(finished(trial, seconds))
    return forecast(a_plan(folder, done), 2)


def test_after_a_twentieth_of_the_work_the_interval_holds_what_it_will_take(tmp_path):
    plan, covered = a_plan(tmp_path), 0
    for seed in range(12):
        whole = list(course(plan, seed))
        total = after(0.05, whole, tmp_path).total
        covered += total.low <= sum(seconds for _, seconds in whole) <= total.high
    assert covered >= 9


def test_the_interval_narrows_as_trials_finish(tmp_path):
    whole = list(course(a_plan(tmp_path), 0))
    widths = [
        math.log(each.total.high / each.total.low)
        for each in (after(share, whole, tmp_path) for share in (0.05, 0.6, 0.95))
    ]
    assert widths[0] > widths[1] > widths[2] > 0


def test_before_a_trial_has_finished_nothing_is_said(tmp_path):
    told = forecast(a_plan(tmp_path), 2)
    assert told.trials == 0
    assert all(map(math.isnan, (*told.left, *told.total, *told.wall)))


def test_a_finished_sweep_has_nothing_left(tmp_path):
    whole = list(course(a_plan(tmp_path), 0))
    told = forecast(a_plan(tmp_path, [finished(*each) for each in whole]), 2)
    assert told.left == told.wall == (0, 0, 0)
    assert told.spent == pytest.approx(sum(seconds for _, seconds in whole))


def test_more_workers_take_less_wall_time_and_the_same_device_time(tmp_path):
    done = [finished(*each) for each in list(course(a_plan(tmp_path), 0))[:6]]
    one, four = (forecast(a_plan(tmp_path, done), workers) for workers in (1, 4))
    assert one.left == four.left
    assert one.wall.middle == pytest.approx(one.left.middle)
    assert one.wall.middle / 4 <= four.wall.middle < one.wall.middle / 3


def test_the_same_ledger_gives_the_same_forecast(tmp_path):
    done = [finished(*each) for each in list(course(a_plan(tmp_path), 0))[:6]]
    assert forecast(a_plan(tmp_path, done), 2) == forecast(a_plan(tmp_path, done), 2)


# Sizes and what corrects them.


def test_a_size_is_parameters_by_tokens_by_epochs(tmp_path):
    plan = a_plan(tmp_path)
    first = plan.cells[0]
    known = Costs(taken([finished(first.trials[0], 100.0, parameters=2e8)]))
    assert Costs().size(first, first.trials[0]) == 1e8 * 50_000 * 10
    assert known.size(first, first.trials[0]) == 2e8 * TOKENS * 50_000 * 10
    assert known.size(plan.cells[1], plan.cells[1].trials[0]) == 2e8 * TOKENS * 16_000 * 10


def test_finished_trials_correct_what_a_cell_costs(tmp_path):
    plan = a_plan(tmp_path)
    slow = plan.cells[3]
    costs = Costs(taken([finished(plan.cells[0].trials[0], 100.0)]))
    before = costs.seconds(slow, slow.trials[1])
    told = Taken.of(slow.trials[0], finished(slow.trials[0], 70.0).tags)
    costs.learn(told)
    assert before == pytest.approx(100 * 1_600 / 50_000)
    assert costs.seconds(slow, slow.trials[1]) == pytest.approx(70.0)


def test_imports_of_a_worker_are_not_taken_for_a_trials(tmp_path):
    trial = a_plan(tmp_path).cells[0].trials[0]
    facts = {**finished(trial, 90.0).tags, "train_seconds": "20", "model_seconds": "1"}
    assert Taken.of(trial, {**facts, "process_seconds": "4"}).seconds == 21
    assert Taken.of(trial, {**facts, "process_seconds": "0", "waiting_seconds": "2"}).seconds == 92


def test_a_trial_that_told_nothing_teaches_nothing(tmp_path):
    assert taken([outcome(a_plan(tmp_path).cells[0].trials[0])]) == []

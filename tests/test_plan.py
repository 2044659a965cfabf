"""What a sweep asks for, less what is known: restarting, widening, holding, sampling."""

import json
import math
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from studies import RATES, dataset, known, model, outcome, planned, scored, searched, written

from tabiflow.errors import SpecError
from tabiflow.plan import CellPlan, Plan, plan
from tabiflow.registry import resolve
from tabiflow.spec import Sweep
from tabiflow.trial import Cell, Hold, Status, Trial

RANGE = {"learning_rate": {"log_uniform": [1e-6, 1e-4]}}


def _cell(folder: Path, *given: Any, **changes: Any) -> CellPlan:
    [cell] = planned(folder, *given, **changes).cells
    return cell


def _counts(of: Plan) -> tuple[int, ...]:
    names = ("trials", "todo", "known", "failed", "held", "cells")
    return tuple(of.counts[name] for name in names)


def _two_by_two(**changes: Any) -> dict[str, Any]:
    models, rows = [model("m1"), model("m2")], [dataset("d1"), dataset("d2")]
    space = {"learning_rate": RATES}
    return {"models": models, "search": [{"datasets": rows, "space": space}], **changes}


def _drawn(of: CellPlan, rate: float) -> Trial:
    assert of.study is not None
    return of.study.trial({"learning_rate": rate})


def test_a_plan_is_models_by_data_sets_by_configurations_by_seeds(tmp_path: Path) -> None:
    whole = planned(tmp_path, **_two_by_two(seeds=[1, 2]))

    assert _counts(whole) == (24, 24, 0, 0, 0, 4)
    assert (whole.models, whole.datasets) == (["m1", "m2"], ["d1", "d2"])
    assert len({trial.id for trial in whole.trials}) == 24
    assert whole.of(Cell("m2", "d1")).cell == Cell("m2", "d1")


def test_a_plan_is_the_same_every_time(tmp_path: Path) -> None:
    first, second = (planned(tmp_path, **_two_by_two(seeds=[1, 2])) for _ in range(2))

    assert [trial.id for trial in first.trials] == [trial.id for trial in second.trials]


def test_trials_stand_in_grid_order_with_the_seed_fastest(tmp_path: Path) -> None:
    cell = _cell(tmp_path, search=searched(learning_rate=[2, 1], batch_size=[8]), seeds=[2, 1])

    assert [(each.params.learning_rate, each.seed) for each in cell.trials] == [
        (2.0, 2),
        (2.0, 1),
        (1.0, 2),
        (1.0, 1),
    ]
    assert cell.varying == ("learning_rate", "seed")


def test_counts_are_disjoint_and_sum_up(tmp_path: Path) -> None:
    trials = list(planned(tmp_path, **_two_by_two()).trials)
    statuses = [Status.DONE, Status.PRUNED, Status.FAILED, Status.KILLED, Status.RUNNING]
    outcomes = [outcome(*pair) for pair in zip(trials[:5], statuses, strict=True)]
    hold = Hold.of(trials[-1], "model", "no weights")

    counts = planned(tmp_path, outcomes, [hold], **_two_by_two()).counts

    assert (counts["known"], counts["failed"], counts["held"], counts["todo"]) == (2, 1, 3, 6)
    assert counts["trials"] == 12 == sum(counts[name] for name in ("known", "failed", "held")) + 6


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (Status.DONE, "known"),
        (Status.PRUNED, "known"),
        (Status.FAILED, "failed"),
        (Status.KILLED, "todo"),
        (Status.RUNNING, "todo"),
    ],
)
def test_only_finished_and_failed_trials_are_left_alone(
    tmp_path: Path, status: Status, state: str
) -> None:
    first = next(planned(tmp_path).trials)
    cell = _cell(tmp_path, [outcome(first, status)])

    assert cell.state(first) == state
    assert cell.having("todo") == cell.trials[0 if state == "todo" else 1 :]


def test_a_wider_space_runs_only_the_new_trials(tmp_path: Path) -> None:
    before = planned(tmp_path).trials
    cell = _cell(
        tmp_path,
        [outcome(trial, score=1.0) for trial in before],
        search=searched(learning_rate=[5e-6, *RATES]),
    )

    assert [trial.params.learning_rate for trial in cell.having("todo")] == [5e-6]
    assert not cell.complete


def test_a_narrower_space_runs_nothing_and_forgets_the_rest(tmp_path: Path) -> None:
    before = planned(tmp_path).trials
    cell = _cell(
        tmp_path,
        [outcome(trial, score=1.0) for trial in before],
        search=searched(learning_rate=RATES[:1]),
    )

    assert cell.having("todo") == () and cell.complete
    assert set(cell.outcomes) == {trial.id for trial in cell.trials}


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "another"},
        {"cpus": 2},
        {"limits": {"retries": 0}},
        {"confirm": {"seeds": [1, 2]}},
        {"pruning": "asha"},
        {"models": [model(title="T", notes="n", cpus=3)]},
        {"protocol": {"epochs": 10}},
        {"search": searched(batch_size=16, weight_decay=0, learning_rate=RATES)},
    ],
    ids=str,
)
def test_how_a_sweep_runs_is_not_what_it_means(tmp_path: Path, changes: dict[str, Any]) -> None:
    ids = [trial.id for trial in planned(tmp_path).trials]

    assert [trial.id for trial in planned(tmp_path, **changes).trials] == ids


@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": [26]},
        {"limit": {"train": 9}},
        {"protocol": {"epochs": 9}},
        {"protocol": {"weight_decay": {"mode": "adamw"}}},
        {"runner": "rehearse"},
        {"models": [model(revision="abc")]},
        {"models": [model(context=128)]},
        {"search": searched(learning_rate=RATES, batch_size=32)},
        {"search": [{"datasets": [dataset(revision="abc")], "space": {"learning_rate": RATES}}]},
    ],
    ids=str,
)
def test_what_a_sweep_means_is_in_every_id(tmp_path: Path, changes: dict[str, Any]) -> None:
    ids = {trial.id for trial in planned(tmp_path).trials}

    assert not ids & {trial.id for trial in planned(tmp_path, **changes).trials}


def test_outcomes_of_other_sweeps_are_known(tmp_path: Path) -> None:
    trials = planned(tmp_path).trials
    cell = _cell(tmp_path, [outcome(trial, sweep="elsewhere") for trial in trials])

    assert cell.complete


def test_a_confirming_outcome_is_not_taken_for_its_trial(tmp_path: Path) -> None:
    first = next(planned(tmp_path).trials)

    assert _counts(planned(tmp_path, [outcome(replace(first, split="test"))]))[:3] == (3, 3, 0)


def test_a_mended_row_is_not_held(tmp_path: Path) -> None:
    first = next(planned(tmp_path).trials)
    hold = Hold.of(first, "model", "no weights")
    mended = [model(revision="mended")]

    assert planned(tmp_path, [], [hold]).counts["held"] == 3
    assert planned(tmp_path, [], [hold], models=mended).counts["held"] == 0


def test_a_hold_leaves_what_is_known_or_failed(tmp_path: Path) -> None:
    done, failed, _ = planned(tmp_path).trials
    outcomes = [outcome(done), outcome(failed, Status.FAILED)]
    held = planned(tmp_path, outcomes, [Hold.of(done, "model", "no weights")])

    assert _counts(held) == (3, 0, 1, 1, 1, 1)


def test_a_sampled_cell_asks_for_trials_that_have_no_id_yet(tmp_path: Path) -> None:
    cell = _cell(tmp_path, search=searched(**RANGE, samples=5))

    assert (cell.trials, cell.size, cell.to_come) == ((), 5, 5)
    assert cell.counts == {"known": 0, "failed": 0, "held": 0, "todo": 5}


def test_samples_of_the_ledger_count_where_the_space_holds_them(tmp_path: Path) -> None:
    search = searched(**RANGE, samples=5)
    cell = _cell(tmp_path, search=search)
    inside, failed, outside = (_drawn(cell, rate) for rate in (1e-5, 1e-4, 2e-4))
    others = [
        replace(inside, seed=7),
        replace(inside, split="test"),
        replace(inside, limit={"a": 1}),
    ]
    others += [replace(inside, params=inside.params.model_copy(update={"batch_size": 8}))]
    outcomes = [outcome(each) for each in (inside, outside, *others)]

    again = _cell(tmp_path, [*outcomes, outcome(failed, Status.FAILED)], search=search)

    assert {trial.id for trial in again.trials} == {inside.id, failed.id}
    assert again.counts == {"known": 1, "failed": 1, "held": 0, "todo": 3}


def test_samples_stand_oldest_first_and_never_exceed_the_number_asked_for(tmp_path: Path) -> None:
    drawn = [
        _drawn(_cell(tmp_path, search=searched(**RANGE, samples=9)), rate)
        for rate in (1e-5, 2e-5, 3e-5, 4e-5)
    ]
    starts = (3.0, math.nan, 1.0, 2.0)
    outcomes = [outcome(trial, started=start) for trial, start in zip(drawn, starts, strict=True)]

    for samples, expected in [(9, [2, 3, 0, 1]), (3, [2, 3, 0])]:
        cell = _cell(tmp_path, outcomes, search=searched(**RANGE, samples=samples))
        assert cell.trials == tuple(drawn[index] for index in expected)
    assert cell.complete


def test_a_held_cell_draws_no_samples(tmp_path: Path) -> None:
    search = searched(**RANGE, samples=5)
    first = _drawn(_cell(tmp_path, search=search), 1e-5)
    hold = Hold.of(first, "model", "no weights")

    cell = _cell(tmp_path, [outcome(first)], [hold], search=search)

    assert cell.counts == {"known": 1, "failed": 0, "held": 4, "todo": 0}


def test_a_study_gives_sampled_points_their_fields(tmp_path: Path) -> None:
    search = searched(**RANGE, epochs=[1, 2], samples=5)
    study = _cell(tmp_path, search=search, protocol={"patience": 1}).study
    assert study is not None

    trial = study.trial({"learning_rate": 1e-5, "epochs": 2})

    assert (trial.protocol.epochs, trial.protocol.patience, trial.seed) == (2, 1, 25)
    assert study.owns(trial) and not study.owns(replace(trial, model="other"))


def test_a_data_set_in_two_searches_competes_in_both_spaces_once(tmp_path: Path) -> None:
    first = searched(learning_rate=RATES, batch_size=16)
    second = searched(learning_rate=RATES[:2], batch_size=[32, 16])

    cell = _cell(tmp_path, search=first + second)

    assert len(cell.trials) == 5 == len({trial.id for trial in cell.trials})
    assert cell.varying == ("learning_rate", "batch_size")


def test_a_data_set_in_two_searches_cannot_be_sampled(tmp_path: Path) -> None:
    search = searched(learning_rate=RATES) + searched(**RANGE, samples=5)

    with pytest.raises(SpecError, match="`data` stands in two searches, one of them sampled"):
        planned(tmp_path, search=search)


def test_a_rehearsed_score_never_passes_for_a_real_one(tmp_path: Path) -> None:
    real, slow = planned(tmp_path), planned(tmp_path, runner="rehearse", rehearse={"seconds": 0.1})
    quick = planned(tmp_path, runner="rehearse")

    ids = [{trial.id for trial in each.trials} for each in (real, slow, quick)]
    assert not (ids[0] & ids[1] or ids[0] & ids[2] or ids[1] & ids[2])


def test_two_thousand_trials_are_planned_against_as_many_outcomes_at_once(tmp_path: Path) -> None:
    rates = [step * 1e-6 for step in range(1, 17)]
    search = [{"datasets": ["tabibench"], "space": {"learning_rate": rates}}]
    sweep = Sweep.read(written(tmp_path, models=["encoders"], search=search))
    grid = resolve(sweep)
    trials = [Trial.from_json(trial.to_json()) for trial in plan(sweep, grid).trials]
    outcomes = known(scored(trials, *range(len(trials))))

    start = time.process_time()
    counts = plan(sweep, grid, outcomes).counts

    assert (counts["known"], counts["cells"]) == (2160, 135)
    assert time.process_time() - start < 1.0


def test_planning_imports_no_heavy_library() -> None:
    script = (
        "import json, sys, tabiflow.plan, tabiflow.registry, tabiflow.selection;"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    heavy = {"torch", "ray", "mlflow", "datasets", "pandas", "numpy", "pyarrow", "transformers"}
    assert not heavy & set(json.loads(done.stdout))

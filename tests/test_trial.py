"""A trial's id says what it means: all that changes the result, and nothing else."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from tabiflow.protocol import Params, Protocol, WeightDecay
from tabiflow.trial import Hold, Outcome, Status, Trial, canonical

TRIAL = Trial(
    model="berturk",
    dataset="news_cat",
    model_identity={"hub": "dbmdz/bert-base-turkish-cased", "revision": "main"},
    dataset_identity={"hub": "boun-tabilab/News-Cat", "revision": "main", "version": 1},
    params=Params(learning_rate=3e-5, weight_decay=1e-6, batch_size=32),
)
OTHERS = {
    "model": replace(TRIAL, model="other"),
    "model revision": replace(TRIAL, model_identity={"revision": "abc"}),
    "data set": replace(TRIAL, dataset="other"),
    "data set revision": replace(TRIAL, dataset_identity={"revision": "abc"}),
    "task version": replace(TRIAL, dataset_identity={**TRIAL.dataset_identity, "version": 2}),
    "learning rate": replace(TRIAL, params=Params(learning_rate=2e-5)),
    "protocol": replace(TRIAL, protocol=Protocol(epochs=3)),
    "decay mode": replace(TRIAL, protocol=Protocol(weight_decay=WeightDecay(mode="adamw"))),
    "protocol version": replace(TRIAL, protocol=Protocol(version=2)),
    "seed": replace(TRIAL, seed=26),
    "split": replace(TRIAL, split="test"),
    "limit": replace(TRIAL, limit={"train": 100}),
    "runner": replace(TRIAL, runner={"name": "rehearse"}),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_what_changes_the_result_changes_the_id(other: Trial) -> None:
    assert other.id != TRIAL.id


def test_no_two_of_these_meanings_share_an_id() -> None:
    assert len({other.id for other in OTHERS.values()}) == len(OTHERS)


@pytest.mark.parametrize(
    ("trial", "pinned"),
    [
        (TRIAL, "c6d3df9178e9"),
        (replace(TRIAL, split="test"), "c25762e0b3bf"),
        (replace(TRIAL, protocol=Protocol(max_length=512), limit={"train": 9}), "47ded4c46f19"),
        (replace(TRIAL, runner={"name": "rehearse"}, seed=1), "f2877419f163"),
    ],
)
def test_ids_are_the_same_on_every_machine_and_in_every_version(trial: Trial, pinned: str) -> None:
    assert trial.id == pinned


def test_the_order_of_keys_never_matters() -> None:
    turned = {key: TRIAL.dataset_identity[key] for key in reversed(TRIAL.dataset_identity)}
    limits = [{"train": 1, "test": 2}, {"test": 2, "train": 1}]

    assert replace(TRIAL, dataset_identity=turned).id == TRIAL.id
    assert len({replace(TRIAL, limit=limit).id for limit in limits}) == 1


@pytest.mark.parametrize(
    "fields",
    [{"epochs": 10}, {"patience": 2, "floor": 0.02}, {"weight_decay": {"mode": "decoupled"}}],
)
def test_defaults_written_out_leave_the_id_alone(fields: dict[str, Any]) -> None:
    assert replace(TRIAL, protocol=Protocol.model_validate(fields)).id == TRIAL.id


def test_a_new_protocol_field_with_a_default_leaves_old_ids_alone() -> None:
    class Grown(Protocol):
        smoothing: float = 0.0

    assert replace(TRIAL, protocol=Grown()).id == TRIAL.id
    assert replace(TRIAL, protocol=Grown(epochs=3)).id == OTHERS["protocol"].id
    assert replace(TRIAL, protocol=Grown(smoothing=0.1)).id != TRIAL.id


def test_one_number_has_one_id_however_it_is_written() -> None:
    as_text = json.loads("[1e-5, 0.00001, 1.0E-5, 10e-6]")

    assert len({replace(TRIAL, params=Params(learning_rate=rate)).id for rate in as_text}) == 1
    assert Params(learning_rate=1, weight_decay=0) == Params(learning_rate=1.0, weight_decay=0.0)


@pytest.mark.parametrize("trial", [TRIAL, *OTHERS.values()], ids=["first", *OTHERS])
def test_a_record_gives_back_the_same_trial(trial: Trial) -> None:
    again = Trial.from_json(trial.to_json())

    assert again == trial
    assert (again.id, again.slot, again.configuration) == (
        trial.id,
        trial.slot,
        trial.configuration,
    )


@pytest.mark.parametrize(
    "text", ["", "x", "{}", "[]", "5", '{"params": {}}', '{"params": {"learning_rate": 1}}']
)
def test_a_foreign_record_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        Trial.from_json(text)


def test_a_record_with_unknown_keys_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="not the record of a trial"):
        Trial.from_json(canonical({**TRIAL.meaning, "colour": "red"}))


@pytest.mark.parametrize("kept", ["model revision", "data set revision", "task version"])
def test_a_mended_row_keeps_the_slot(kept: str) -> None:
    assert OTHERS[kept].slot == TRIAL.slot


@pytest.mark.parametrize("name", ["model", "data set", "learning rate", "seed", "split", "limit"])
def test_anything_else_is_another_slot(name: str) -> None:
    assert OTHERS[name].slot != TRIAL.slot


def test_a_configuration_is_all_but_the_seed() -> None:
    same = {name for name, other in OTHERS.items() if other.configuration == TRIAL.configuration}

    assert same == {"seed"}


def test_settings_are_flat_and_hold_changes_only() -> None:
    assert OTHERS["decay mode"].settings == {
        "learning_rate": 3e-5,
        "weight_decay": 1e-6,
        "batch_size": 32,
        "weight_decay.mode": "adamw",
        "seed": 25,
    }


def test_a_point_holds_defaults_too() -> None:
    names = ["batch_size", "weight_decay", "epochs", "dropout", "seed"]

    assert TRIAL.point(names) == {
        "batch_size": 32,
        "weight_decay": 1e-6,
        "epochs": 10,
        "dropout": None,
        "seed": 25,
    }


@pytest.mark.parametrize("status", Status)
def test_only_done_and_pruned_are_finished(status: Status) -> None:
    outcome = Outcome(TRIAL, status, attempt=1, run_id="run", sweep="study")

    assert outcome.finished == (status in {Status.DONE, Status.PRUNED})


def test_what_is_not_known_of_an_outcome_is_not_a_number() -> None:
    outcome = Outcome(TRIAL, Status.RUNNING, attempt=1, run_id="run", sweep="study")

    assert all(math.isnan(each) for each in (outcome.score, outcome.test, outcome.started))


def test_a_hold_covers_its_cell_until_the_row_is_mended() -> None:
    hold = Hold.of(TRIAL, "model", "no weights")
    covered = {name for name, other in OTHERS.items() if hold.covers(other)}

    assert hold.covers(TRIAL)
    assert not covered & {"model", "model revision", "data set", "data set revision"}
    assert {"seed", "learning rate", "split"} <= covered


def test_a_hold_comes_back_from_its_record() -> None:
    hold = Hold.of(TRIAL, "data", "no column `label`\nin train")

    assert Hold.from_json(hold.to_json()) == hold

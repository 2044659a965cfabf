"""Whole trials on tiny models: warm like cold, sealed, honest about what failed."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

from tabiflow.errors import ModelError, SealError, TrialError, UserError
from tabiflow.registry.kinds import KINDS
from tabiflow.runners import Job, metrics
from tabiflow.runners.failures import kind_of
from tabiflow.runners.finetune import run
from tabiflow.trial import Epoch, Opening, Result
from tests import samples


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trials")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TABIFLOW_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def finish(job: Job) -> tuple[list[Epoch], Result]:
    epochs, trial = [], run(job)
    while True:
        try:
            epochs.append(next(trial))
        except StopIteration as end:
            return epochs, end.value


def curve(job: Job) -> list[tuple[float, float, float]]:
    """What must be bit-identical: everything but the time that it took."""
    return [(each.loss, each.score, each.metrics["train_loss"]) for each in finish(job)[0]]


def confirming(job: Job) -> Job:
    trial = replace(job.trial, split="test")
    return replace(job, trial=trial, opening=Opening(trial.id, "me", "2026-01-01T00:00:00Z", "-"))


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_of_task_trains_and_learns(kind, folder):
    epochs, result = finish(samples.job(folder, kind, "modernbert"))
    assert epochs[-1].metrics["train_loss"] < epochs[0].metrics["train_loss"]
    assert result.epoch == min(epochs, key=lambda each: each.loss).epoch
    assert result.score == epochs[result.epoch - 1].score


def test_facts_say_what_computed_the_trial_and_on_what(folder):
    _, result = finish(replace(samples.job(folder, epochs=1), cpus=1.5))
    facts = result.facts
    expected = {"device": "cpu", "threads": 1, "precision": "fp32", "attention": "sdpa_unpadded"}
    assert expected.items() <= facts.items()
    assert (facts["train_rows"], facts["validation_rows"], facts["trained_epochs"]) == (40, 24, 1)
    assert facts["max_length_text"] % 8 == 0
    # A warm process may not grow for so small a trial.
    assert facts["process_memory_mb"] > facts["peak_memory_mb"] >= 0
    assert {"data_train", "tokenizer", "torch", "transformers", "train_seconds"} <= facts.keys()
    # A value of a library's own type would make the driver import the library.
    assert {type(value) for value in facts.values()} <= {str, int, float}


# Warmth.

COLD = "import sys; from tests.test_finetune import *; print(curve(Job.from_json(sys.argv[1])))"


def test_a_trial_is_bit_identical_cold_and_warm(folder):
    job = samples.job(folder, "classification", "bert")
    cold = subprocess.run(
        [sys.executable, "-c", COLD, job.to_json()], capture_output=True, text=True, check=True
    )
    first = curve(job)
    finish(samples.job(folder, "retrieval", "modernbert", epochs=1, dropout=0.3))
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("medium")
    torch.rand(3)
    assert str(first) == str(curve(job)) == cold.stdout.strip()


def test_a_trial_dropped_midway_leaves_nothing_behind(folder):
    job = samples.job(folder, "pos", "bert", epochs=2)
    before = curve(job)
    dropped = run(samples.job(folder, "classification", "bert"))
    next(dropped)
    dropped.close()
    assert curve(job) == before


def test_two_trials_in_turns_do_not_disturb_each_other(folder):
    jobs = [samples.job(folder, kind, "bert", epochs=2) for kind in ("sts", "pos")]
    alone = [curve(job) for job in jobs]
    pairs = zip(*map(run, jobs), strict=True)
    together = [[(each.loss, each.score) for each in epochs] for epochs in zip(*pairs, strict=True)]
    assert together == [[each[:2] for each in epochs] for epochs in alone]


def test_another_seed_is_another_trial(folder):
    job = samples.job(folder, "classification", "bert", epochs=1)
    other = replace(job, trial=replace(job.trial, seed=26))
    assert curve(job) != curve(other)


def test_the_protocols_dropout_replaces_the_models_own(folder):
    job = samples.job(folder, "classification", "bert", epochs=1)
    without = samples.job(folder, "classification", "bert", epochs=1, dropout=0.0)
    usual = samples.job(folder, "classification", "bert", epochs=1, dropout=0.1)
    assert curve(job) == curve(usual) != curve(without)


# The seal.


@pytest.mark.parametrize("opening", [None, Opening("another", "me", "2026-01-01T00:00:00Z", "-")])
def test_the_test_split_needs_the_trials_own_opening(opening, folder):
    job = replace(confirming(samples.job(folder)), opening=opening)
    with pytest.raises(SealError, match="sealed"):
        next(run(job))


def test_a_sweeps_trial_has_no_test_figures_whatever_it_carries(folder):
    job = samples.job(folder, epochs=1)
    _, result = finish(replace(job, opening=Opening(job.trial.id, "me", "now", "-")))
    assert (result.n, result.predictions) == (0, ())
    assert not [name for name in result.metrics if name.startswith("test")]


@pytest.mark.parametrize("kind", ["classification", "ner", "sts", "qa", "retrieval"])
def test_a_confirming_trial_reproduces_validation_and_scores_test(kind, folder):
    job = samples.job(folder, kind, epochs=2)
    selected, confirmed = finish(job)[1], finish(confirming(job))[1]
    assert (confirmed.epoch, confirmed.score) == (selected.epoch, selected.score)
    assert confirmed.n == len(confirmed.predictions) == 20
    assert -100 <= confirmed.test <= 100
    assert json.loads(json.dumps(confirmed.predictions))[0].keys() == {
        "row",
        "prediction",
        "reference",
    }


# Additional metrics.

METRIC = """
import datasets
import evaluate

class Agreement(evaluate.Metric):
    def _info(self):
        value = datasets.Value("int64")
        features = datasets.Features({"predictions": value, "references": value})
        return evaluate.MetricInfo(
            description="", citation="", inputs_description="", features=features
        )

    def _compute(self, predictions, references):
        same = [one == other for one, other in zip(predictions, references)]
        return {"agreement": sum(same) / len(same), "rows": len(same), "name": "agreement"}
"""


def metric(folder: Path, code: str) -> str:
    home = folder / "agreement"
    home.mkdir()
    (home / "agreement.py").write_text(code)
    return str(home)


@pytest.fixture(autouse=True)
def evaluates_own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path_factory.getbasetemp() / "hub"))


def test_additional_metrics_stand_beside_the_headline(folder, tmp_path):
    job = replace(samples.job(folder, epochs=1), metrics=(metric(tmp_path, METRIC),))
    _, result = finish(confirming(job))
    for split, rows in (("validation", 24), ("test", 20)):
        accuracy = result.metrics[f"{split}_accuracy"] / 100
        assert result.metrics[f"{split}_agreement"] == pytest.approx(accuracy)
        assert result.metrics[f"{split}_agreement_rows"] == rows
    assert "validation_agreement_name" not in result.metrics


def test_a_metric_that_cannot_be_loaded_is_said_before_any_trial(tmp_path):
    broken = metric(tmp_path, "import nothing_of_this_name\n" + METRIC)
    with pytest.raises(UserError, match=r"metric cannot be loaded.*nothing_of_this_name") as caught:
        metrics.check([broken])
    assert caught.value.where == broken


def test_metrics_of_one_name_are_refused(tmp_path):
    (tmp_path / "other").mkdir()
    paths = [metric(tmp_path, METRIC), metric(tmp_path / "other", METRIC)]
    metrics.check(paths[:1])
    with pytest.raises(UserError, match="2 metrics are called `agreement`"):
        metrics.check(paths)


def test_a_metric_that_does_not_take_what_a_kind_predicts_is_left_out_and_named(
    folder, tmp_path, caplog
):
    code = metric(tmp_path, METRIC)
    _, result = finish(replace(samples.job(folder, "ner", epochs=1), metrics=(code,)))
    assert result.facts["metrics_left_out"] == "agreement"
    assert not any("agreement" in name for name in result.metrics)
    metrics.check([code], ["nli", "ner", "sts"])
    assert "metric `agreement` does not take what ner, sts predicts" in caplog.text
    with pytest.raises(UserError, match="does not take what retrieval predicts"):
        metrics.check([code], ["retrieval"])


def test_an_additional_metric_that_fails_is_named(folder, tmp_path):
    code = METRIC.replace("sum(same)", "missing")
    job = replace(samples.job(folder, epochs=1), metrics=(metric(tmp_path, code),))
    with pytest.raises(TrialError, match=r"metric `agreement` failed.*missing") as caught:
        finish(job)
    assert kind_of(caught.value) == "bug"


# Broken models.


def truncate(model: Path) -> None:
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])


def unreadable(model: Path) -> None:
    (model / "config.json").write_text("{")


def weightless(model: Path) -> None:
    (model / "model.safetensors").unlink()


def test_pickled_weights_are_taken_only_from_whom_is_trusted(tmp_path):
    job = samples.job(tmp_path, epochs=1)
    weights = tmp_path / "bert" / "model.safetensors"
    torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))
    weights.unlink()
    with pytest.raises(ModelError, match=r"only pickled weights.* save them as safetensors"):
        finish(job)
    trusted = job.model.model_copy(update={"trust_remote_code": True})
    assert finish(replace(job, model=trusted))[1].epoch == 1


def outgrown(model: Path) -> None:
    loaded = AutoModel.from_pretrained(model)
    loaded.resize_token_embeddings(50)
    loaded.save_pretrained(model)


@pytest.mark.parametrize("spoil", [truncate, unreadable, weightless, outgrown])
def test_a_broken_model_is_named_in_one_line(spoil, tmp_path):
    job = samples.job(tmp_path)
    spoil(tmp_path / "bert")
    with pytest.raises(ModelError) as caught:
        finish(job)
    assert kind_of(caught.value) == "model"
    assert len(str(caught.value).splitlines()) == 1
    assert "bert" in str(caught.value)


def test_a_diverged_trial_says_so(folder):
    job = samples.job(folder, "sts", "modernbert", {"learning_rate": 1e30})
    with pytest.raises(Exception, match=r"loss.* is (nan|inf)") as caught:
        finish(job)
    assert kind_of(caught.value) == "diverged"

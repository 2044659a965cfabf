"""Trials that are interrupted between two epochs and gone on with by another attempt."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tabiflow.checkpoints import Storage, Version
from tabiflow.errors import Interrupted
from tabiflow.runners import Job, Place
from tabiflow.runners.finetune import run
from tabiflow.runners.keeping import is_worth
from tabiflow.trial import Epoch, Opening, Result
from tests import samples


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trials")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TABIFLOW_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def stored(job: Job, place: Path, attempt: int = 1, keeping: str = "epoch") -> Job:
    return replace(job, place=Place(str(place), "study"), keeping=keeping, attempt=attempt)


# Their rates soon make them worse: patience ends them, whatever happens on the way.
IMPATIENT = {
    "sts": ({"learning_rate": 2e-2}, 5),
    "classification": ({"learning_rate": 2e-2}, 4),
    "retrieval": ({"learning_rate": 5e-3}, 4),
}
BOUNDARIES = [(kind, each) for kind, (_, trained) in IMPATIENT.items() for each in range(trained)]


def impatient(folder: Path, kind: str = "sts") -> Job:
    return samples.job(folder, kind, "bert", IMPATIENT[kind][0], epochs=8)


def finish(job: Job) -> tuple[list[Epoch], Result]:
    epochs, trial = [], run(job)
    while True:
        try:
            epochs.append(next(trial))
        except StopIteration as end:
            return epochs, end.value


def interrupt(job: Job, after: int) -> None:
    trial = run(job)
    for _ in range(after):
        next(trial)
    with pytest.raises(Interrupted):
        trial.throw(Interrupted("enough"))


def storage(job: Job) -> Storage:
    return Storage(job.place.address, job.place.record)


def last(job: Job) -> dict:
    """What the newest checkpoint holds of the training, but for the time that it took."""
    newest = storage(job).versions(job.trial.id)[0]
    content = io.BytesIO(storage(job).read(job.trial.id, newest))
    state = torch.load(content, weights_only=True)["training"]
    state["kept"].pop("metrics")
    return {name: state[name] for name in state if name != "seconds"}


def same(first, second) -> bool:
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second


def curve(epochs: list[Epoch]) -> list[tuple]:
    return [(each.epoch, each.score, each.loss, each.metrics["train_loss"]) for each in epochs]


@pytest.fixture(scope="module")
def uninterrupted(folder):
    """By kind: what an attempt that nothing disturbs tells and leaves."""
    known = {}

    def of(kind: str):
        if kind not in known:
            job = stored(impatient(folder, kind), folder / "whole")
            known[kind] = (*finish(job), last(job))
        return known[kind]

    return of


@pytest.mark.parametrize(("kind", "boundary"), [(kind, at + 1) for kind, at in BOUNDARIES])
def test_a_trial_interrupted_at_any_boundary_ends_bit_identical(
    kind, boundary, folder, tmp_path, uninterrupted
):
    whole, result, state = uninterrupted(kind)
    job = impatient(folder, kind)
    interrupt(stored(job, tmp_path, keeping="auto"), after=boundary)
    torch.rand(7)
    resumed = stored(job, tmp_path, attempt=2)
    epochs, again = finish(resumed)

    assert len(whole) == IMPATIENT[kind][1] < 8
    assert curve(epochs) == curve(whole)
    assert (again.epoch, again.score) == (result.epoch, result.score)
    assert again.facts["resumed_after_epoch"] == boundary
    if boundary < len(whole):
        assert same(last(resumed), state)


def test_what_was_told_before_is_not_trained_again(folder, tmp_path):
    job = impatient(folder)
    interrupt(stored(job, tmp_path), after=3)
    attempt = run(stored(job, tmp_path, attempt=2))
    told = [next(attempt) for _ in range(3)]
    newest = Storage(str(tmp_path), "study").versions(job.trial.id)[0]

    assert [each.epoch for each in told] == [1, 2, 3]
    assert newest == Version(1, 3)


def test_a_trial_interrupted_again_and_again_still_ends_bit_identical(
    folder, tmp_path, uninterrupted
):
    whole, _, state = uninterrupted("sts")
    for attempt in range(1, 5):
        interrupt(stored(impatient(folder), tmp_path, attempt), after=attempt)
    final = stored(impatient(folder), tmp_path, attempt=5)

    assert curve(finish(final)[0]) == curve(whole)
    assert same(last(final), state)


def test_a_confirming_trial_goes_on_and_scores_test_the_same(folder, tmp_path):
    job = impatient(folder)
    trial = replace(job.trial, split="test")
    job = replace(job, trial=trial, opening=Opening(trial.id, "me", "2026-01-01T00:00:00Z", "-"))
    interrupt(stored(job, tmp_path), after=2)

    _, resumed = finish(stored(job, tmp_path, attempt=2))
    _, whole = finish(job)
    assert resumed.predictions == whole.predictions and resumed.test == whole.test


# What is no checkpoint of this trial.


def torn(object: Path) -> None:
    object.write_bytes(object.read_bytes()[:-1])


def spoiled(object: Path) -> None:
    content = bytearray(object.read_bytes())
    content[len(content) // 2] ^= 1
    object.write_bytes(content)


def gone(object: Path) -> None:
    object.unlink()


def unmarked(object: Path) -> None:
    marker(object).unlink()


def scribbled(object: Path) -> None:
    marker(object).write_bytes(b"\xff{")


def marker(object: Path) -> Path:
    return object.with_name(f"{object.name}.json")


@pytest.mark.parametrize("spoil", [torn, spoiled, gone, unmarked, scribbled])
def test_a_torn_checkpoint_is_passed_over_for_none(spoil, folder, tmp_path, caplog):
    job = impatient(folder)
    interrupt(stored(job, tmp_path), after=2)
    spoil(tmp_path / "study" / job.trial.id / Version(1, 2).name)
    epochs, result = finish(stored(job, tmp_path, attempt=2))

    assert len(epochs) == 5 and "resumed_after_epoch" not in result.facts
    assert "is ignored" in caplog.text


def test_another_trials_checkpoint_is_passed_over(folder, tmp_path, caplog):
    job, other = impatient(folder), impatient(folder, "classification")
    interrupt(stored(other, tmp_path), after=2)
    (tmp_path / "study" / other.trial.id).rename(tmp_path / "study" / job.trial.id)
    _, result = finish(stored(job, tmp_path, attempt=2))

    assert "resumed_after_epoch" not in result.facts
    assert "another trial" in caplog.text


class Trap:
    def __reduce__(self):
        return (Path.touch, (Path("sprung"),))


def test_code_in_a_checkpoint_is_not_run(folder, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    job = stored(impatient(folder), tmp_path)
    storage(job).write(job.trial.id, Version(1, 2), lambda file: torch.save(Trap(), file))
    _, result = finish(replace(job, attempt=2))

    assert "resumed_after_epoch" not in result.facts
    assert "is ignored" in caplog.text and not Path("sprung").exists()


# When it is worth it.


@pytest.mark.parametrize(("at_risk", "worth"), [(19.9, False), (20.0, True)])
def test_a_second_of_writing_must_save_twenty_of_training(at_risk, worth):
    assert is_worth(at_risk, cost=1.0) is worth


def test_every_epoch_is_written_where_the_sweep_asks_for_it(folder, tmp_path):
    job = stored(impatient(folder), tmp_path)
    trial, newest = run(job), []
    for _ in range(3):
        next(trial)
        newest += storage(job).versions(job.trial.id)
    assert newest == [Version(1, 1), Version(1, 2), Version(1, 3)]

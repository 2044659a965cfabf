"""Where workers' seconds went, and which share of a GPU would have done."""

import math
import time

import pytest

from tabiflow.packing import fits
from tabiflow.spent import Spent, Stay, last_workers, together, with_useful
from tests.studies import outcome, planned

FACTS = {
    "driver": "d1",
    "worker": "host:1",
    "train_seconds": 60.0,
    "validation_seconds": 10.0,
    "data_seconds": 2.0,
    "held_seconds": 80.0,
    "tracking_seconds": 3.0,
    "waiting_seconds": 1.0,
    "process_seconds": 9.0,
    "left_at": 1000.0,
}


@pytest.fixture
def trials(tmp_path):
    return planned(tmp_path).cells[0].trials


def told(trial, **changes):
    return outcome(trial, tags={name: str(fact) for name, fact in {**FACTS, **changes}.items()})


def test_every_second_of_a_trial_has_a_name():
    spent = Spent.of(FACTS)
    assert spent == Spent(training=60, validation=10, start=9 + 5, data=2, tracking=3, waiting=1)
    assert spent.allocated == 80 + 1 + 9
    assert spent.useful == pytest.approx(70 / 90)
    assert with_useful(FACTS)["useful_fraction"] == round(70 / 90, 4)


def test_what_an_earlier_attempt_trained_is_not_this_ones():
    resumed = {**FACTS, "earlier_train_seconds": 40.0, "earlier_validation_seconds": 6.0}
    spent = Spent.of(resumed)
    assert (spent.training, spent.validation) == (20, 4)
    assert spent.allocated == Spent.of(FACTS).allocated


def test_a_rehearsed_trial_tells_nothing_of_seconds():
    assert Spent.of({"held_seconds": 1.0}) is None
    assert with_useful({"held_seconds": 1.0}) == {"held_seconds": 1.0}
    assert math.isnan(Spent().useful)


def test_a_worker_that_is_done_early_waits_for_the_last_one(trials):
    ended = [
        told(trials[0], worker="host:1", left_at=700.0),
        told(trials[1], worker="host:1", left_at=1000.0),
        told(trials[2], worker="host:2", left_at=960.0),
        told(trials[2], worker="host:3", left_at=400.0, driver="d0"),
    ]
    assert together(each.tags for each in ended).waiting == 4 * 1 + 40
    assert last_workers(ended) == 2
    assert last_workers([outcome(trials[0])]) == 0


def test_a_stay_knows_what_was_work_and_what_was_not():
    stay = Stay(time.time() - 5, fresh=False)
    with stay.working():
        time.sleep(0.05)
    time.sleep(0.02)
    facts = stay.facts()
    assert facts["waiting_seconds"] == pytest.approx(5, abs=0.5)
    rounded = 0.001  # each of the two is told in whole milliseconds
    assert facts["held_seconds"] - facts["tracking_seconds"] >= 0.05 - rounded - 1e-9
    assert facts["tracking_seconds"] >= 0.02
    assert Stay(time.time() - 5, fresh=True).facts()["process_seconds"] == pytest.approx(5, abs=0.5)


@pytest.mark.parametrize(
    ("peak", "share"), [(9_000, 1 / 8), (20_000, 1 / 3), (40_000, 1), (100_000, 1.389)]
)
def test_the_share_of_a_gpu_follows_the_highest_peak(trials, peak, share):
    gpu = {"device": "GPU", "device_memory_mb": 80_000, "peak_memory_mb": 5_000}
    ended = [told(trials[0], **gpu), told(trials[1], **{**gpu, "peak_memory_mb": peak})]
    (found,) = fits([*ended, told(trials[2], peak_memory_mb=10**6)])
    assert found.peak_mb == peak
    assert found.share == pytest.approx(share, abs=1e-3)

"""Drivers that die and servers that go away: nothing lost, nothing twice, nothing left running."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from ledgers import SWEEP, begin, copied, epoch, history, record, runs, trial
from servers import free_port, mlflow_server

from tabiflow.ledger import feed as feeding
from tabiflow.ledger import wal
from tabiflow.ledger.feed import Feed
from tabiflow.ledger.store import Store
from tabiflow.ledger.wal import Ended, EpochTold, Event, Started, WriteAheadLog
from tabiflow.ledger.writer import Writer
from tabiflow.trial import Cell, Opening, Result, Status

HERE = Path(__file__).parent


@pytest.fixture
def store(ledger_template: Path, tmp_path: Path) -> Store:
    return copied(ledger_template, tmp_path / "ledger")


def _events(count: int = 3) -> list[Event]:
    """Of one trial that ends well."""
    made, cell = trial(), Cell("bert", "reviews")
    start = Started(
        made.id, 1, cell, made.slot, "lr", {"kind": "trial"} | _tags(), {"seed": "25"}, 1
    )
    told = [
        EpochTold(made.id, 1, n, {"validation_score": 50.0 + n}, n) for n in range(1, count + 1)
    ]
    done = {"status": "done"}
    return [
        start,
        *told,
        Ended(made.id, 1, made.slot, Status.DONE, done, {"kept_score": 53.0}, 9, 3),
    ]


def _tags() -> dict[str, str]:
    made = trial()
    return {"trial": made.id, "slot": made.slot, "attempt": "1", "identity": made.to_json()}


class Away:
    """A writer whose server is away for some calls."""

    def __init__(self, calls: float) -> None:
        self.calls, self.taken = calls, []

    def apply(self, events: Sequence[Event], *, again: bool) -> None:
        self.calls -= 1
        if self.calls >= 0:
            raise ConnectionError("refused")
        self.taken += events


@pytest.fixture
def _hurried(monkeypatch):
    monkeypatch.setattr(feeding, "BACK_OFF_SECONDS", (0.01,))
    monkeypatch.setattr(feeding, "LINGER_SECONDS", 0.01)


@pytest.mark.usefixtures("_hurried")
def test_what_was_told_while_the_server_was_away_arrives_in_order(tmp_path):
    writer = Away(calls=5)
    feed = Feed(WriteAheadLog(tmp_path / "log"), writer, threading.Event())
    for event in _events():
        feed.put(event)
    assert feed.close(10)
    assert writer.taken == _events()
    assert (tmp_path / "log").read_bytes() == b""


@pytest.mark.usefixtures("_hurried")
def test_a_server_that_stays_away_leaves_the_log_behind(tmp_path):
    stop = threading.Event()
    feed = Feed(WriteAheadLog(tmp_path / "log"), Away(calls=float("inf")), stop)
    for event in _events():
        feed.put(event)
    assert not feed.close(0.1)
    assert list(wal.read(tmp_path / "log")) == _events()
    stop.set()


def test_events_applied_twice_stand_once(store):
    tracking = store.tracking
    experiment = tracking.open_experiment(SWEEP, None)
    Writer(tracking, experiment).apply(_events(), again=False)
    Writer(tracking, experiment).apply(_events(), again=True)
    [run] = runs(store, "tags.kind = 'trial'")
    assert history(store, run.info.run_id, "validation_score") == [(1, 51.0), (2, 52.0), (3, 53.0)]
    assert history(store, run.info.run_id, "kept_score") == [(3, 53.0)]
    assert len(runs(store, "tags.kind = 'cell'")) == 1


DIES = """
import os, signal, sys
from ledgers import SWEEP, begin, record, trial
from tabiflow.ledger.store import Store

with Store.open(sys.argv[1]).recorder(SWEEP) as recorder:
    begin(recorder, trial(rate=2e-5))
    recorder.flush()
    record(recorder, trial())
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_drivers_results_are_kept_and_its_running_trials_closed(store):
    with store.recorder("another") as other:
        begin(other, trial(rate=3e-5))
        assert other.flush()
        driver = subprocess.run([sys.executable, "-c", DIES, store.uri], cwd=HERE, check=False)
        assert driver.returncode == -signal.SIGKILL
        with store.recorder(SWEEP):
            outcomes = store.outcomes()
        assert outcomes[trial().id].status is Status.DONE
        assert outcomes[trial(rate=2e-5).id].status is Status.KILLED
        assert outcomes[trial(rate=3e-5).id].status is Status.RUNNING
    assert {run.info.status for run in runs(store)} == {"FINISHED", "KILLED"}
    assert list(store.folder.glob("*.jsonl")) == []


TRIALS = 30
SWEEPS = f"""
import sys, time
from ledgers import SWEEP, begin, epoch, trial
from tabiflow.ledger.store import Store
from tabiflow.trial import Result

store = Store.open(sys.argv[1])
with store.recorder(SWEEP) as recorder:
    known = store.outcomes()
    print("ready", flush=True)
    for made in (trial(rate=number * 1e-6) for number in range(1, {TRIALS} + 1)):
        before = known.get(made.id)
        if before is not None and before.finished:
            continue
        attempt = before.attempt + 1 if before else 1
        begin(recorder, made, attempt)
        for number in (1, 2, 3):
            recorder.epoch(made.id, attempt, epoch(number))
            time.sleep(0.02)
        recorder.finish(made.id, attempt, Result(3, 53.0))
        print(made.id, flush=True)
"""


def _sweep_killed_after(seconds: float | None, uri: str) -> list[str]:
    """The ids whose end was told before the kill; the ledger must not ask for them again."""
    process = subprocess.Popen(
        [sys.executable, "-c", SWEEPS, uri], cwd=HERE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    if seconds is not None:
        time.sleep(seconds)
        process.kill()
    return process.communicate()[0].split()


@pytest.mark.slow
def test_a_sweep_killed_at_random_moments_loses_nothing_and_repeats_nothing(store):
    moments = random.Random(25)
    told = []
    for _ in range(8):
        told += _sweep_killed_after(moments.uniform(0, 1.5), store.uri)
    told += _sweep_killed_after(None, store.uri)
    assert len(told) == len(set(told)) == TRIALS
    assert {outcome.status for outcome in store.outcomes().values()} == {Status.DONE}
    finished = runs(store, "tags.status = 'done'")
    assert len(finished) == TRIALS
    for run in finished:
        assert [step for step, _ in history(store, run.info.run_id, "train_loss")] == [1, 2, 3]
    assert runs(store, "attributes.status = 'RUNNING'") == []


@pytest.mark.slow
def test_a_server_that_is_away_in_the_middle_costs_nothing(ledger_template, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copied(ledger_template, tmp_path)
    port, address = free_port(), f"sqlite:///{tmp_path}/mlflow.db"
    with mlflow_server(address, tmp_path, port):
        store = Store.open(f"http://127.0.0.1:{port}")
        manager = store.recorder(SWEEP)
        recorder = manager.__enter__()
        record(recorder, trial(rate=1e-6))
        begin(recorder, trial())
        recorder.epoch(trial().id, 1, epoch(1))
        assert recorder.flush()
    recorder.epoch(trial().id, 1, epoch(2))
    for number in range(2, 6):
        record(recorder, trial(rate=number * 1e-6))
    assert not recorder.flush(5)
    with mlflow_server(address, tmp_path, port):
        recorder.finish(trial().id, 1, Result(2, 52.0))
        confirming = trial(split="test")
        recorder.open_test(confirming, 1, "seed25", Opening(confirming.id, "ayşe", "now", "-"))
        assert store.openings().keys() == {confirming.id}
        recorder.finish(confirming.id, 1, Result(1, 50.0, predictions=({"row": 0},)))
        manager.__exit__(None, None, None)
        outcomes = store.outcomes()
        assert len(outcomes) == 7 and {each.status for each in outcomes.values()} == {Status.DONE}
        assert store.curves([outcomes[trial().id].run_id]) == {
            outcomes[trial().id].run_id: [(1, 51.0), (2, 52.0)]
        }
        assert {run.info.status for run in runs(store)} == {"FINISHED"}

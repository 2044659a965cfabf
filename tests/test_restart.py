"""A driver that dies in the middle of a sweep, and the next one, on a real ledger."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ledgers import runs, trials_of
from studies import dataset, written

from tabiflow.ledger.store import Store

SCRIPT = Path(__file__).with_name("sweeping.py")


def _driver(file: Path, *arguments: str) -> subprocess.Popen[str]:
    # A Ray that the test-suite has started must not be joined: it would outlive the driver.
    environment = {**os.environ, "MLFLOW_TRACKING_URI": "", "RAY_ADDRESS": ""}
    return subprocess.Popen(
        [sys.executable, *(arguments or (str(SCRIPT), str(file)))],
        cwd=file.parent,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _killed_after(driver: subprocess.Popen[str], line: str, times: int) -> None:
    """As soon as it has said so many lines with this in them."""
    assert driver.stderr is not None
    told = []
    while times:
        told.append(driver.stderr.readline())
        assert told[-1], f"the driver ended before it could be killed: {told}"
        times -= line in told[-1]
    driver.send_signal(signal.SIGKILL)
    driver.communicate()


def _finished(file: Path) -> dict[str, Any]:
    out, err = _driver(file).communicate()
    assert len(out.splitlines()) == 1, err
    summary: dict[str, Any] = json.loads(out)
    return summary


def _runs(file: Path) -> Counter[tuple[str, str]]:
    """(status of MLflow, status of the trial) of every attempt."""
    store = Store.open(f"sqlite:///{file.parent / '.tabiflow' / 'mlflow.db'}")
    found = runs(store, "tags.trial != ''", sweep="study")
    assert len(trials_of(found)) == 24
    return Counter((run.info.status, run.data.tags["status"]) for run in found)


@pytest.mark.slow
@pytest.mark.parametrize("sampled", [False, True])
def test_a_killed_driver_loses_nothing_and_nothing_runs_twice(
    tmp_path: Path, sampled: bool
) -> None:
    rows = [dataset(f"data{index}") for index in range(4)]
    grid = {"learning_rate": [index * 1e-5 for index in range(1, 7)]}
    search = {"datasets": rows, "space": grid}
    if sampled:
        space = {"learning_rate": {"log_uniform": [1e-6, 1e-3]}}
        search = {"datasets": rows, "space": space, "samples": 6}
    file = written(tmp_path, search=[search], runner="rehearse", rehearse={"seconds": 0.02})
    _killed_after(_driver(file), "ended", times=5)
    _killed_after(_driver(file), "ended", times=5)
    summary = _finished(file)

    attempts = _runs(file)
    assert 0 < summary["done"] < 24 and summary["failed"] == 0
    assert attempts["FINISHED", "done"] == 24
    assert not any(of_mlflow == "RUNNING" for of_mlflow, _ in attempts)
    assert _finished(file)["done"] == 0


def _confirming(file: Path) -> subprocess.Popen[str]:
    script = "from tabiflow.cli import main; main()"
    return _driver(file, "-c", script, "confirm", str(file), "--json")


@pytest.mark.slow
def test_a_killed_confirmation_loses_nothing_and_opens_nothing_twice(tmp_path: Path) -> None:
    rows = [dataset(f"data{index}") for index in range(4)]
    search = [{"datasets": rows, "space": {"learning_rate": 1e-5}}]
    seeds = {"seeds": [1, 2, 3, 4, 5, 6]}
    rehearsal = {"runner": "rehearse", "rehearse": {"seconds": 0.03}}
    file = written(tmp_path, search=search, confirm=seeds, **rehearsal)
    assert _finished(file)["done"] == 4
    _killed_after(_confirming(file), " left, ", times=4)
    store = Store.open(f"sqlite:///{tmp_path / '.tabiflow' / 'mlflow.db'}")
    before = store.openings()
    _killed_after(_confirming(file), " left, ", times=4)
    out, err = _confirming(file).communicate()

    openings = json.loads(out)["openings"]
    found = runs(store, "tags.split = 'test'", sweep="study")
    ends = Counter((run.info.status, run.data.tags["status"]) for run in found)
    assert len(openings) == 24 and ends["FINISHED", "done"] == 24, err
    assert not any(of_mlflow == "RUNNING" for of_mlflow, _ in ends)
    assert all("test_score" in run.data.metrics for run in found if run.info.status == "FINISHED")
    # Whose opening was recorded is never recorded again as another.
    assert before.items() <= store.openings().items() and 4 <= len(before) < 24

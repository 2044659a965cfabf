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


def _driver(file: Path) -> subprocess.Popen[str]:
    # A Ray that the test-suite has started must not be joined: it would outlive the driver.
    environment = {**os.environ, "MLFLOW_TRACKING_URI": "", "RAY_ADDRESS": ""}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(file)],
        cwd=file.parent,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _killed_after(file: Path, endings: int) -> None:
    driver = _driver(file)
    assert driver.stderr is not None
    told = []
    while endings:
        told.append(driver.stderr.readline())
        assert told[-1], f"the driver ended before it could be killed: {told}"
        endings -= told[-1].startswith("ended")
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
    _killed_after(file, endings=5)
    _killed_after(file, endings=5)
    summary = _finished(file)

    attempts = _runs(file)
    assert 0 < summary["done"] < 24 and summary["failed"] == 0
    assert attempts["FINISHED", "done"] == 24
    assert not any(of_mlflow == "RUNNING" for of_mlflow, _ in attempts)
    assert _finished(file)["done"] == 0

"""Ctrl-C and SIGTERM at the command line, while trials really train."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tabiflow.ledger import sqlite
from tabiflow.ledger.records import Run
from tabiflow.ledger.store import SCORE

VERB = (sys.executable, "-c", "from tabiflow.cli import main; main()", "sweep", "study.yaml")
EPOCHS = 12
SWEEP: dict[str, Any] = {
    "name": "study",
    "models": ["example-bert"],
    "search": [{"datasets": ["example-sts"], "space": {"learning_rate": [1e-3, 2e-3, 3e-3]}}],
    "protocol": {"epochs": EPOCHS, "patience": None},
    "limit": {"train": 200, "validation": 50},
}

AT_ONCE = 30.0
RAY_GIVES_UP = 90.0
"""After 60 seconds without its own processes it ends the driver, with a code of its own."""
Send = Callable[[subprocess.Popen[str]], None]


def _ctrl_c(driver: subprocess.Popen[str]) -> None:
    """As a terminal sends it, to all of the group."""
    os.killpg(driver.pid, signal.SIGINT)


def _ctrl_c_twice(driver: subprocess.Popen[str]) -> None:
    _ctrl_c(driver)
    time.sleep(0.1)
    _ctrl_c(driver)


def _terminate(driver: subprocess.Popen[str]) -> None:
    driver.terminate()


def _terminate_ray_too(driver: subprocess.Popen[str]) -> None:
    """As `timeout` and a batch system do it."""
    os.killpg(driver.pid, signal.SIGTERM)


class Sweep:
    """A sweep in a folder of its own, driven by processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "study.yaml").write_text(json.dumps(SWEEP))

    @contextmanager
    def driver(self) -> Iterator[subprocess.Popen[str]]:
        """In a process group of its own, which a terminal would send Ctrl-C to."""
        pipe = subprocess.PIPE
        environment = {**os.environ, "MLFLOW_TRACKING_URI": "", "RAY_ADDRESS": ""}
        environment["TABIFLOW_CACHE"] = str(self.folder / "cache")
        with subprocess.Popen(
            VERB,
            cwd=self.folder,
            env=environment,
            text=True,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        ) as driver:
            try:
                yield driver
            finally:
                driver.kill()

    def runs(self) -> list[Run]:
        """Read without MLflow's client, which would make the tables that the driver is making."""
        return sqlite.runs(self._ledger, "trial")

    def epochs(self) -> dict[str, int]:
        """Those that the ledger has, by run."""
        curves = sqlite.curves(self._ledger, [run.run_id for run in self.runs()], SCORE)
        return {run_id: len(curve) for run_id, curve in curves.items()}

    @property
    def _ledger(self) -> Path:
        return self.folder / ".tabiflow" / "mlflow.db"

    def wait_for_epochs(self, driver: subprocess.Popen[str], number: int) -> None:
        logs = self.folder / ".tabiflow" / "wal"
        while not list(logs.glob("*.jsonl")) or max(self.epochs().values(), default=0) < number:
            assert driver.poll() is None, driver.communicate()
            time.sleep(0.5)


@pytest.mark.slow
@pytest.mark.parametrize("send", [_ctrl_c, _terminate])
def test_a_signal_writes_running_trials_down_and_the_next_start_goes_on(
    send: Send, tmp_path: Path
) -> None:
    sweep = Sweep(tmp_path)
    with sweep.driver() as driver:
        sweep.wait_for_epochs(driver, 2)
        send(driver)
        _, err = driver.communicate()

    assert driver.returncode == 130, err
    assert "stopped: interrupted; `tabiflow sweep study.yaml` goes on" in err
    killed = [run for run in sweep.runs() if run.tags["status"] == "killed"]
    told = {run.tags["trial"]: sweep.epochs().get(run.run_id, 0) for run in killed}
    assert killed and max(told.values()) >= 2
    assert not [run for run in sweep.runs() if run.tags["status"] == "running"]

    with sweep.driver() as driver:
        _, err = driver.communicate()
    done = {run.tags["trial"]: run for run in sweep.runs() if run.tags["status"] == "done"}
    assert driver.returncode == 0 and len(done) == 3, err
    assert {sweep.epochs()[run.run_id] for run in done.values()} == {EPOCHS}
    for trial, epochs in told.items():
        assert int(done[trial].tags.get("resumed_after_epoch", 0)) >= epochs
    assert list((tmp_path / ".tabiflow").glob("checkpoints/*/*/*")) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("send", "code", "seconds"),
    [(_ctrl_c_twice, 130, AT_ONCE), (_terminate_ray_too, 1, RAY_GIVES_UP)],
)
def test_what_leaves_no_time_stops_soon_and_the_next_start_recovers(
    send: Send, code: int, seconds: float, tmp_path: Path
) -> None:
    sweep = Sweep(tmp_path)
    with sweep.driver() as driver:
        sweep.wait_for_epochs(driver, 2)
        began = time.monotonic()
        send(driver)
        _, err = driver.communicate()

    assert driver.returncode == code and time.monotonic() - began < seconds, err
    with sweep.driver() as driver:
        _, err = driver.communicate()
    statuses = [run.tags["status"] for run in sweep.runs()]
    assert driver.returncode == 0 and statuses.count("done") == 3, err
    assert "running" not in statuses

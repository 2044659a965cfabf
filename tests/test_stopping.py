"""Ctrl-C and SIGTERM at the command line, while trials really train."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tabiflow.ledger.records import Run
from tabiflow.ledger.store import Store

VERB = (sys.executable, "-c", "from tabiflow.cli import main; main()", "sweep", "study.yaml")
EPOCHS = 12
SWEEP: dict[str, Any] = {
    "name": "study",
    "models": ["example-bert"],
    "search": [{"datasets": ["example-sts"], "space": {"learning_rate": [1e-3, 2e-3, 3e-3]}}],
    "protocol": {"epochs": EPOCHS, "patience": None},
    "limit": {"train": 200, "validation": 50},
}


class Sweep:
    """A sweep in a folder of its own, driven by processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "study.yaml").write_text(json.dumps(SWEEP))

    def start(self) -> subprocess.Popen[str]:
        """In a process group of its own, which a terminal would send Ctrl-C to."""
        pipe = subprocess.PIPE
        environment = {**os.environ, "MLFLOW_TRACKING_URI": "", "RAY_ADDRESS": ""}
        environment["TABIFLOW_CACHE"] = str(self.folder / "cache")
        return subprocess.Popen(
            VERB,
            cwd=self.folder,
            env=environment,
            text=True,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )

    @property
    def store(self) -> Store:
        return Store.open(f"sqlite:///{self.folder / '.tabiflow' / 'mlflow.db'}")

    def runs(self) -> list[Run]:
        return self.store.tracking.runs("trial")

    def epochs(self) -> dict[str, int]:
        """Those that the ledger has, by run."""
        curves = self.store.curves([run.run_id for run in self.runs()])
        return {run_id: len(curve) for run_id, curve in curves.items()}

    def wait_for_epochs(self, driver: subprocess.Popen[str], number: int) -> None:
        ledger = self.folder / ".tabiflow" / "mlflow.db"
        while not ledger.exists() or max(self.epochs().values(), default=0) < number:
            assert driver.poll() is None, driver.communicate()
            time.sleep(0.5)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_writes_running_trials_down_and_the_next_start_goes_on(
    number: signal.Signals, tmp_path: Path
) -> None:
    sweep = Sweep(tmp_path)
    driver = sweep.start()
    sweep.wait_for_epochs(driver, 2)
    os.killpg(driver.pid, number)
    _, err = driver.communicate()

    assert driver.returncode == 130, err
    assert "stopped: interrupted; `tabiflow sweep study.yaml` goes on" in err
    killed = [run for run in sweep.runs() if run.tags["status"] == "killed"]
    told = {run.tags["trial"]: sweep.epochs().get(run.run_id, 0) for run in killed}
    assert killed and max(told.values()) >= 2
    assert not [run for run in sweep.runs() if run.tags["status"] == "running"]

    driver = sweep.start()
    _, err = driver.communicate()
    done = {run.tags["trial"]: run for run in sweep.runs() if run.tags["status"] == "done"}
    assert driver.returncode == 0 and len(done) == 3, err
    assert {sweep.epochs()[run.run_id] for run in done.values()} == {EPOCHS}
    for trial, epochs in told.items():
        assert int(done[trial].tags.get("resumed_after_epoch", 0)) >= epochs
    assert list((tmp_path / ".tabiflow").glob("checkpoints/*/*/*")) == []


@pytest.mark.slow
def test_a_second_signal_stops_at_once_and_the_next_start_recovers(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    driver = sweep.start()
    sweep.wait_for_epochs(driver, 2)
    os.killpg(driver.pid, signal.SIGINT)
    time.sleep(0.1)
    began = time.monotonic()
    os.killpg(driver.pid, signal.SIGINT)
    _, err = driver.communicate()

    assert driver.returncode == 130 and time.monotonic() - began < 30, err
    driver = sweep.start()
    _, err = driver.communicate()
    statuses = [run.tags["status"] for run in sweep.runs()]
    assert driver.returncode == 0 and statuses.count("done") == 3, err
    assert "running" not in statuses

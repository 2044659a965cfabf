"""TabiBench's 2,160 trials of ten epochs, rehearsed, through the engine into real ledgers.

Prints what it measures. Bounds of the driver are on processor seconds, which a busy machine does
not change as it changes the time on the clock; that is `benchmarks/floor.py`'s.
"""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from ledgers import record, trial
from servers import free_port, mlflow_server, postgresql

from tabiflow.errors import LeaseHeld
from tabiflow.ledger.store import Store

HERE = Path(__file__).resolve().parent
FLOOR = HERE.parent / "benchmarks" / "floor.py"
SWEEP = HERE.parent / "sweeps" / "tabibench.yaml"
TRIALS, EPOCHS = 2160, 10
AWAY_SECONDS = 60
STATUS = ("status", str(SWEEP), "--rehearse", "--json")
STATUS_SECONDS = 6.0
TRACKING_SECONDS = 0.05
"""Of the driver's processor, for a trial."""
GROWTH = 32 * 1024
"""Bytes of the driver's memory, for a trial."""
BACKLOG = 16 * 1024
"""More of them, for a trial that waits in the driver while the server is away."""
FILES_BESIDE = 60
"""Of Tune, the ledger and its log, however many trials there are."""
RECORDED = f"""
    SELECT COUNT(*), SUM(CASE WHEN points = {EPOCHS} THEN 1 ELSE 0 END) FROM (
        SELECT COUNT(DISTINCT m.step) AS points FROM metrics m JOIN runs r USING (run_uuid)
        JOIN experiments e USING (experiment_id)
        WHERE m.key = 'validation_loss' AND r.status = 'FINISHED' AND e.name = 'load'
        GROUP BY m.run_uuid HAVING COUNT(*) = {EPOCHS}) AS complete
"""
STATES = """
    SELECT r.status, COUNT(*) FROM runs r JOIN experiments e USING (experiment_id)
    JOIN tags t ON t.run_uuid = r.run_uuid AND t.key = 'kind' AND t.value = 'trial'
    WHERE e.name = 'load' GROUP BY r.status
"""
Ask = Callable[[str], Sequence[Sequence[Any]]]


@contextmanager
def _driver(system: str, folder: Path, address: str) -> Iterator[subprocess.Popen[str]]:
    folder.mkdir()
    own = {"MLFLOW_TRACKING_URI": address, "TMPDIR": str(folder), "RAY_TMPDIR": "/tmp"}
    own |= {"RAY_ADDRESS": "", "RAY_raylet_start_wait_time_s": "120"}
    command = [sys.executable, str(FLOOR), "--one", system, "--sweep", "load"]
    with subprocess.Popen(
        [*command, "--trials", str(TRIALS)],
        cwd=folder,
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        try:
            yield driver
        finally:
            driver.terminate()


def _measured(driver: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = driver.communicate()
    assert driver.returncode == 0
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    print(
        f"\n{found['system']}: {found['wall']:.0f} s in all, driver {found['driver'] / TRIALS:.4f} "
        f"processor s/trial, {found['slope'] / 1024:.1f} KiB/trial, {found['files']} files, "
        f"load {found['load']:.1f}"
    )
    return found


@pytest.fixture(scope="module")
def untracked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("load") / "untracked"
    with _driver("tabiflow, untracked", folder, "") as driver:
        return _measured(driver)


def _assert_bounded(found: dict[str, Any], untracked: dict[str, Any], growth: int = GROWTH) -> None:
    tracking = (found["driver"] - untracked["driver"]) / TRIALS
    print(f"tracking: {tracking:.4f} processor seconds of the driver a trial")
    assert tracking <= TRACKING_SECONDS
    assert found["slope"] <= growth
    assert found["files"] <= TRIALS + FILES_BESIDE


def _assert_complete(ask: Ask) -> None:
    assert [tuple(row) for row in ask(RECORDED)] == [(TRIALS, TRIALS)]
    assert [tuple(row) for row in ask(STATES)] == [("FINISHED", TRIALS)]


@pytest.mark.slow
def test_the_whole_grid_fits_a_file(untracked: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    with _driver("tabiflow, tracked in SQLite", tmp_path / "work", f"sqlite:///{file}") as driver:
        _assert_bounded(_measured(driver), untracked)
    database = sqlite3.connect(file)
    _assert_complete(lambda query: database.execute(query).fetchall())
    database.close()


@pytest.mark.slow
def test_a_server_that_is_away_for_a_minute_loses_no_point(
    untracked: dict[str, Any], tmp_path: Path
) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with ExitStack() as stack:
        store = stack.enter_context(postgresql())
        database = stack.enter_context(psycopg.connect(_plain(store), autocommit=True))

        def ask(query: str) -> Sequence[Sequence[Any]]:
            return database.execute(query.encode()).fetchall()

        with mlflow_server(store, tmp_path, port, workers=2):
            driving = _driver("tabiflow, tracked on a server", tmp_path / "work", address)
            driver = stack.enter_context(driving)
            _wait(ask, TRIALS // 3, driver)
            _others_are_kept_apart(address)
        time.sleep(AWAY_SECONDS)
        with mlflow_server(store, tmp_path, port, workers=2):
            found = _measured(driver)
            _assert_complete(ask)
            _status_is_quick(address, tmp_path)
        drivers = ask("SELECT COUNT(DISTINCT value) FROM tags WHERE key = 'driver'")
        assert [tuple(row) for row in drivers] == [(2,)]
    _assert_bounded(found, untracked, GROWTH + BACKLOG)


def _plain(store: str) -> str:
    return store.replace("postgresql+psycopg:", "postgresql:")


def _wait(ask: Ask, trials: int, driver: subprocess.Popen[str]) -> None:
    done = "SELECT COUNT(*) FROM runs WHERE status = 'FINISHED'"
    while not _tables(ask) or ask(done)[0][0] < trials:
        assert driver.poll() is None, "the sweep ended before the server could be stopped"
        time.sleep(0.5)


def _tables(ask: Ask) -> bool:
    return bool(ask("SELECT 1 FROM pg_tables WHERE tablename = 'runs'"))


def _others_are_kept_apart(address: str) -> None:
    """Another driver of the same sweep, and another sweep with trials of its own."""
    store = Store.open(address)
    with pytest.raises(LeaseHeld), store.recorder("load"):
        pass
    with store.recorder("other") as recorder:
        for number in range(1, 9):
            record(recorder, trial(rate=number * 1e-6))
    others = [each for each in store.outcomes().values() if each.sweep == "other"]
    assert len(others) == 8 and all(each.finished for each in others)


def _status_is_quick(address: str, folder: Path) -> None:
    """The quickest of three: what else the machine does is not the answer's fault."""
    walls = []
    for _ in range(3):
        began = time.monotonic()
        done = subprocess.run(
            [Path(sys.executable).with_name("tabiflow"), *STATUS],
            cwd=folder,
            env={**os.environ, "MLFLOW_TRACKING_URI": address},
            stdout=subprocess.PIPE,
            check=True,
        )
        walls.append(time.monotonic() - began)
        assert json.loads(done.stdout)["counts"]["done"] == TRIALS
    print(f"status: {walls} s, load {os.getloadavg()[0]:.1f}")
    assert min(walls) < STATUS_SECONDS

"""Kills the driver of a sweep at random moments, and counts what the ledger holds afterwards.

    python benchmarks/kill_driver.py --kills 25         # rehearsed trials
    python benchmarks/kill_driver.py --kills 3 --real   # the example's encoders, trained

Every driver is a process of its own, killed with SIGKILL: one in five somewhere while it starts,
the others at a random moment after their first epoch; the next driver goes on. A sweep that ends
before the kills are used up is checked, and another begun.
Prints a line a sweep and one for all; exits with 1 where something was lost or done twice.
"""

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tabiflow import selection
from tabiflow.ledger.store import Store
from tabiflow.registry import resolve
from tabiflow.spec import Sweep
from tabiflow.trial import Status

VERB = (sys.executable, "-c", "from tabiflow.cli import main; main()", "sweep", "sweep.yaml")
STARTS = 5
"""On a busy machine Ray may not start within the 30 seconds that it gives itself."""
STARTING = 0.2
"""Share of the kills that meet a driver before its first epoch."""
EPOCHS_SINCE = """
    SELECT COUNT(*) FROM metrics JOIN runs USING (run_uuid)
    WHERE metrics.key = 'validation_score' AND runs.start_time >= ?
"""
EPOCHS = 10
REHEARSED: dict[str, Any] = {
    "models": ["berturk"],
    "search": [
        {
            "datasets": ["news_cat", "stsb_tr", "multinli_tr", "wikiann_tr"],
            "space": {"learning_rate": [index * 1e-6 for index in range(1, 26)]},
        }
    ],
    "runner": "rehearse",
    "rehearse": {"seconds": 0.1},
    "protocol": {"patience": None},
}
REAL: dict[str, Any] = {
    "models": ["example-bert"],
    "search": [
        {
            "datasets": ["example-classification", "example-sts"],
            "space": {"learning_rate": [1e-3, 2e-3, 3e-3], "batch_size": [16, 32]},
        }
    ],
    "protocol": {"epochs": EPOCHS, "patience": None},
    "limit": {"train": 200, "validation": 50},
    "checkpoint": "epoch",
}


@dataclass
class Count:
    """What a finished sweep's ledger says."""

    kills: int = 0
    trials: int = 0
    attempts: int = 0
    resumed: int = 0
    """Attempts that went on from a checkpoint."""
    lost: int = 0
    """Trials without a FINISHED run, or with one whose curve has a gap."""
    twice: int = 0
    """Trials with two FINISHED runs, or with a run that began after the trial was done."""
    running: int = 0
    """Runs that are left RUNNING."""
    left: int = 0
    """Checkpoints that are left behind."""

    def __add__(self, other: "Count") -> "Count":
        mine, theirs = asdict(self), asdict(other)
        return Count(**{name: mine[name] + theirs[name] for name in mine})

    @property
    def sound(self) -> bool:
        return not (self.lost or self.twice or self.running or self.left)

    def __str__(self) -> str:
        return ", ".join(f"{value} {name}" for name, value in asdict(self).items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--real", action="store_true", help="train instead of rehearsing")
    parser.add_argument("--seed", type=int, default=25)
    options = parser.parse_args()
    content, draw = REAL if options.real else REHEARSED, random.Random(options.seed)
    times, total = _undisturbed(content), Count()
    print(
        f"undisturbed: {times.starting:.0f} s to the first epoch, then {times.working:.0f} s",
        flush=True,
    )
    while total.kills < options.kills:
        with _folder(content) as folder:
            moments = (times.draw(draw) for _ in range(options.kills - total.kills))
            count = _survived(folder, moments)
        total = total + count
        print(count, flush=True)
    print(f"in all: {total}: {'sound' if total.sound else 'NOT SOUND'}")
    return 0 if total.sound else 1


@contextmanager
def _folder(content: dict[str, Any]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="killed-") as name:
        folder = Path(name)
        (folder / "sweep.yaml").write_text(json.dumps({"name": "killed", **content}))
        yield folder


@dataclass(frozen=True)
class Moment:
    """When a driver is killed: so many seconds after its start, or after its first epoch."""

    seconds: float
    starting: bool

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s {'from the start' if self.starting else 'into the work'}"


@dataclass(frozen=True)
class Times:
    """Of a driver that nobody disturbs, in seconds."""

    starting: float
    working: float

    def draw(self, draw: random.Random) -> Moment:
        starting = draw.random() < STARTING
        longest = self.starting if starting else self.working
        return Moment(draw.uniform(0.0, longest), starting)


def _undisturbed(content: dict[str, Any]) -> Times:
    with _folder(content) as folder:
        began = time.monotonic()
        driver = _driver(folder)
        _wait_for_an_epoch(driver, folder)
        first = time.monotonic()
        if driver.wait():
            raise SystemExit(_log(folder))
        return Times(first - began, time.monotonic() - first)


def _survived(folder: Path, moments: Iterable[Moment]) -> Count:
    """Drivers one after another, until one of them reaches the end."""
    kills = []
    for moment in moments:
        if not _killed(folder, moment):
            break
        kills.append(str(moment))
    print(f"killed {', '.join(kills)}", flush=True)
    # Where a driver has reached the end already, this one finds nothing to do.
    _finish(folder)
    return _counted(folder, len(kills))


def _finish(folder: Path) -> None:
    for _ in range(STARTS):
        if _driver(folder).wait() == 0:
            return
    raise SystemExit(_log(folder))


def _driver(folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "MLFLOW_TRACKING_URI": "", "RAY_ADDRESS": ""}
    environment["TABIFLOW_CACHE"] = str(Path.cwd() / ".tabiflow" / "cache")
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(VERB, cwd=folder, env=environment, stdout=log, stderr=log)


def _killed(folder: Path, moment: Moment) -> bool:
    """False where the sweep has ended before."""
    for _ in range(STARTS):
        driver = _driver(folder)
        if not moment.starting:
            _wait_for_an_epoch(driver, folder)
        try:
            if driver.wait(moment.seconds) == 0:
                return False
        except subprocess.TimeoutExpired:
            driver.send_signal(signal.SIGKILL)
            driver.wait()
            return True
    raise SystemExit(_log(folder))


def _wait_for_an_epoch(driver: subprocess.Popen[bytes], folder: Path) -> None:
    """One of a run that this driver, just begun, has opened; or the driver's end."""
    began = time.time_ns() // 1_000_000
    while driver.poll() is None and not _epochs(folder, began):
        time.sleep(0.1)


def _epochs(folder: Path, began: int) -> int:
    """In the ledger, of runs opened since (milliseconds since 1970)."""
    file = folder / ".tabiflow" / "mlflow.db"
    if not file.exists():
        return 0
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        try:
            return int(database.execute(EPOCHS_SINCE, (began,)).fetchone()[0])
        except sqlite3.OperationalError:  # it has no tables yet
            return 0


def _log(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")[-2000:]


def _counted(folder: Path, kills: int) -> Count:
    store = Store.open(f"sqlite:///{folder / '.tabiflow' / 'mlflow.db'}")
    runs = store.tracking.runs("trial")
    attempts = defaultdict(list)
    for run in runs:
        attempts[run.tags["trial"]].append(run)
    curves = store.curves([run.run_id for run in runs])
    whole = list(range(1, EPOCHS + 1))
    sweep = Sweep.read(folder / "sweep.yaml")
    planned = tuple(selection.planned(sweep, resolve(sweep)).trials)
    missing = {trial.id for trial in planned} - attempts.keys()
    count = Count(kills, len(planned), len(runs), lost=len(missing))
    for found in attempts.values():
        done = [run for run in found if run.tags["status"] == Status.DONE]
        count.lost += not any([at for at, _ in curves[run.run_id]] == whole for run in done)
        ended = min((run.ended for run in done), default=float("inf"))
        count.twice += len(done) > 1 or any(run.started >= ended for run in found)
        count.running += sum(run.tags["status"] == Status.RUNNING for run in found)
        count.resumed += sum("resumed_after_epoch" in run.tags for run in found)
    count.left = len(list((folder / ".tabiflow").glob("checkpoints/*/*/*.ckpt")))
    return count


if __name__ == "__main__":
    sys.exit(main())

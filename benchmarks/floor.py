"""What the engine itself costs: trials that do nothing, beside plain Ray Tune.

    python benchmarks/floor.py                     three runs of all; see --help
    python benchmarks/floor.py --runs 1 --trials 100
    python benchmarks/floor.py --server http://127.0.0.1:5000    also through an MLflow server

Every trial reports ten epochs and computes nothing. Each measurement is a process of its own; Ray
and an empty ledger are ready before the clock starts, and the ledger is complete before it stops.
What comes before the end of the first trial (workers start and import) is told apart. Plain Tune is
a function that reports ten times: with its defaults, and with actors reused and its loggers off.
With its defaults it starts a process a trial, so it is measured at the fewest trials only.

Every measurement is appended to `results/floor.jsonl`; `results/floor.md` is the table over all.
"""

import argparse
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from machine import machine, spread
from ray import tune

from tabiflow import engine, ledger, provenance
from tabiflow.ledger import Ending, Recorder
from tabiflow.plan import plan
from tabiflow.registry import resolve
from tabiflow.spec import Sweep
from tabiflow.trial import Cell, Epoch, Hold, Trial
from tabiflow.work import Work, missing

HERE = Path(__file__).resolve().parent
SWEEP = HERE.parent / "sweeps" / "tabibench.yaml"
EPOCHS = 10
WORKERS = 2
PLAIN, REUSED = "Ray Tune, defaults", "Ray Tune, actors reused, loggers off"
UNTRACKED, TRACKED = "tabiflow, untracked", "tabiflow, tracked in SQLite"
SERVED = "tabiflow, tracked on a server"


COLUMNS = ("system", "trials", "runs", "all, s", "each after the first, s")
COLUMNS += ("driver's CPU, s/trial", "files", "growth, KiB/trial")


@dataclass(frozen=True)
class Floor:
    """One system, one number of trials, once."""

    system: str
    trials: int
    wall: float
    first: float
    """Seconds until the first trial had ended."""
    driver: float
    """Processor seconds of the driver's process."""
    load: float
    """Of the machine in the minute before."""
    files: int | None = None
    """The most that lay in the working folders at a time, ledger and log included."""
    slope: float | None = None
    """Bytes that the driver grows by with each trial, over the second half."""

    @property
    def further(self) -> float:
        """Seconds for each trial after the first."""
        return (self.wall - self.first) / (self.trials - 1)


def main() -> None:
    asked = _arguments()
    if asked.one:
        measured = SYSTEMS[asked.one](asked.one, asked.trials[0], asked.sweep)
        print(json.dumps(asdict(measured)))
        return
    records = asked.results / "floor.jsonl"
    asked.results.mkdir(parents=True, exist_ok=True)
    if not asked.append:
        records.unlink(missing_ok=True)
    with records.open("a") as file:
        for _ in range(asked.runs):
            for found in _all_floors(asked.trials, asked.server):
                file.write(json.dumps(asdict(found)) + "\n")
                file.flush()
    floors = [Floor(**json.loads(line)) for line in records.read_text().splitlines()]
    table = "\n".join(_table(floors))
    (asked.results / "floor.md").write_text(table + "\n")
    print(table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--trials", type=int, nargs="+", default=[100, 500, 2160])
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--append", action="store_true", help="keep earlier measurements")
    parser.add_argument("--server", help="address of an MLflow server to measure as well")
    parser.add_argument("--sweep", default="floor", help=argparse.SUPPRESS)
    parser.add_argument("--one", choices=list(SYSTEMS), help=argparse.SUPPRESS)
    return parser.parse_args()


def _all_floors(sizes: Sequence[int], server: str | None) -> Iterator[Floor]:
    for size in sizes:
        for system in SYSTEMS:
            if system == SERVED and server is None:
                continue
            if system != PLAIN or size == min(sizes):
                yield _in_a_process(system, size, server)


def _in_a_process(system: str, trials: int, server: str | None) -> Floor:
    with tempfile.TemporaryDirectory(prefix="floor-") as folder:
        address = server if system == SERVED and server else f"sqlite:///{folder}/mlflow.db"
        own = {"MLFLOW_TRACKING_URI": address, "TMPDIR": folder}
        # Ray's sockets need a short path, and its own files are not the engine's.
        rays = {"RAY_TMPDIR": "/tmp", "RAY_ADDRESS": "", "RAY_raylet_start_wait_time_s": "120"}
        environment = {**os.environ, **own, **rays}
        command = [sys.executable, __file__, "--one", system, "--trials", str(trials)]
        command += ["--sweep", Path(folder).name]
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    found = Floor(**json.loads(done.stdout.splitlines()[-1]))
    print(f"{system}, {trials}: {found.wall:.1f} s, load {found.load:.1f}", file=sys.stderr)
    return found


class Nowhere:
    """A recorder that records nothing."""

    id = "nowhere"

    def cell(self, *told: Any) -> None: ...

    def start(self, *told: Any) -> None: ...

    def open_test(self, *told: Any) -> None: ...

    def epoch(self, *told: Any) -> bool:
        return True

    def finish(self, *told: Any) -> bool:
        return True

    def hold(self, hold: Hold) -> None: ...

    def release(self, cell: Cell) -> None: ...

    def flush(self, timeout: float = 60.0) -> bool:
        return True


class Clock:
    """Runs from the moment it is made."""

    def __init__(self) -> None:
        self._wall, self._driver = time.monotonic(), time.process_time()
        self._first: float | None = None

    def ended(self) -> None:
        """A trial has."""
        self._first = self._first or time.monotonic() - self._wall

    def stopped(self, system: str, trials: int, **more: Any) -> Floor:
        wall, driver = time.monotonic() - self._wall, time.process_time() - self._driver
        assert self._first is not None
        return Floor(system, trials, wall, self._first, driver, os.getloadavg()[0], **more)


@dataclass
class Growth:
    """A listener that looks at the driver's memory and at the files beside it."""

    folder: Path
    clock: Clock
    memory: list[tuple[int, int]] = field(default_factory=list)
    """(trials ended, bytes)"""
    files: int = 0

    def on_start(self, trial: Trial, attempt: int) -> None: ...

    def on_epoch(self, trial: Trial, epoch: Epoch) -> None: ...

    def on_hold(self, hold: Hold) -> None: ...

    def on_end(self, trial: Trial, ending: Ending) -> None:
        self.clock.ended()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.memory.append((len(self.memory) + 1, pages * resource.getpagesize()))
        if len(self.memory) % 100 == 0:
            self.look()

    def look(self) -> None:
        self.files = max(self.files, sum(len(names) for *_, names in os.walk(self.folder)))

    @property
    def slope(self) -> float:
        half = self.memory[len(self.memory) // 2 :]
        return statistics.linear_regression(*zip(*half, strict=True)).slope


def _tabiflow(system: str, trials: int, name: str) -> Floor:
    sweep = Sweep.read(SWEEP, rehearse=True)
    work = _first(missing(plan(sweep, resolve(sweep))), trials)
    options = engine.Options(workers=WORKERS)
    with _ray():
        with _recorder(system, name) as recorder:
            clock = Clock()
            growth = Growth(Path(tempfile.gettempdir()), clock)
            told = engine.run(work, sweep, recorder, {}, listener=growth, options=options)
        growth.look()
        assert told.done == trials, told
        return clock.stopped(system, trials, files=growth.files, slope=growth.slope)


def _first(work: Sequence[Work], trials: int) -> list[Work]:
    kept: list[Work] = []
    for each in work:
        kept.append(replace(each, trials=each.trials[:trials]))
        trials -= len(kept[-1].trials)
    return [each for each in kept if each.trials]


@contextmanager
def _recorder(system: str, name: str) -> Iterator[Recorder]:
    if system == UNTRACKED:
        yield Nowhere()
        return
    with ledger.open_ledger().recorder(name, provenance.facts()) as recorder:
        yield recorder


def _plain(system: str, trials: int, name: str) -> Floor:
    reused = system == REUSED
    if reused:
        os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
        # It would tell of every trial that its loggers wrote no file.
        logging.getLogger("ray.tune.analysis").setLevel(logging.ERROR)
    with _ray():
        clock = Clock()
        first = First(clock)
        results = tune.Tuner(
            _nothing,
            param_space={"number": tune.grid_search(list(range(trials)))},
            tune_config=tune.TuneConfig(reuse_actors=reused),
            run_config=tune.RunConfig(
                storage_path=tempfile.gettempdir(), verbose=0, callbacks=[first]
            ),
        ).fit()
        assert len(results) == trials and not results.errors
        return clock.stopped(system, trials)


def _nothing(config: dict[str, Any]) -> None:
    for epoch in range(1, EPOCHS + 1):
        tune.report({"epoch": epoch, "score": 0.0})


class First(tune.Callback):
    """Tune's way to the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def on_trial_complete(self, *told: Any, **more: Any) -> None:
        self._clock.ended()


@contextmanager
def _ray() -> Iterator[None]:
    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


SYSTEMS: Mapping[str, Callable[[str, int, str], Floor]] = {
    UNTRACKED: _tabiflow,
    TRACKED: _tabiflow,
    SERVED: _tabiflow,
    REUSED: _plain,
    PLAIN: _plain,
}


def _table(floors: Sequence[Floor]) -> Iterator[str]:
    loads = [each.load for each in floors]
    yield f"Made by `python benchmarks/floor.py` on {machine()}."
    yield f"Load at the end of each measurement: {min(loads):.1f} to {max(loads):.1f}."
    yield ""
    yield "A trial of ten epochs that computes nothing, two at a time; median (least to most):"
    yield ""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "| --- " * len(COLUMNS) + "|"
    groups: dict[tuple[str, int], list[Floor]] = defaultdict(list)
    for each in floors:
        groups[each.system, each.trials].append(each)
    for (system, trials), found in sorted(groups.items(), key=lambda pair: _rank(pair[0])):
        wall = spread([each.wall for each in found], ".1f")
        further = spread([each.further for each in found])
        driver = spread([each.driver / trials for each in found])
        files = [each.files for each in found if each.files is not None]
        slopes = [each.slope / 1024 for each in found if each.slope is not None]
        told = (len(found), wall, further, driver, spread(files, ".0f"), spread(slopes, ".1f"))
        yield f"| {system} | {trials} | {' | '.join(map(str, told))} |"


def _rank(key: tuple[str, int]) -> tuple[int, int]:
    return list(SYSTEMS).index(key[0]), key[1]


if __name__ == "__main__":
    main()

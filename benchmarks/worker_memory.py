"""Whether a worker's peak memory grows from trial to trial: 200 real trials of each of three tasks.

    python benchmarks/worker_memory.py

One process runs all of them, one data set after the other, each small enough to take a fraction of
a second. Each trial records the peak of its process, counted anew from trial to trial; the slope
within a data set, its first trials left out, is what a trial leaves behind. Writes
`results/worker_memory.md`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tabiflow.ledger import open_ledger

HERE = Path(__file__).parent
DATASETS = ("example-classification", "example-pos", "example-qa")
TRIALS = 200
WARM = 20
"""Trials of a data set that load what the later ones share."""
LARGEST = 30.0
"""Kilobytes a trial: 200 trials then leave a hundredth of such a process."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=TRIALS, help="of each data set")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    asked = parser.parse_args()
    if asked.trials < 2 * WARM:
        parser.error(f"--trials: at least {2 * WARM}, the first {WARM} of which are left out")
    with tempfile.TemporaryDirectory(prefix="worker-memory-") as folder:
        peaks = _peaks(Path(folder), asked.trials)
    slopes = {name: _slope(each[WARM:]) for name, each in peaks.items()}
    table = "\n".join(_table(peaks, slopes))
    asked.results.mkdir(parents=True, exist_ok=True)
    (asked.results / "worker_memory.md").write_text(table + "\n")
    print(table)
    raise SystemExit(0 if max(slopes.values()) <= LARGEST else 1)


def _slope(peaks: Sequence[float]) -> float:
    """Kilobytes a trial, of peaks in MB."""
    return 1024 * statistics.linear_regression(range(len(peaks)), peaks).slope


def _table(peaks: Mapping[str, Sequence[float]], slopes: Mapping[str, float]) -> Iterator[str]:
    yield "# A worker's memory"
    yield ""
    yield f"Peaks of one process, in MB: one data set after the other, medians of {WARM} trials."
    yield f"The slope leaves the first {WARM} out; wanted: at most {LARGEST:g} kB a trial."
    yield ""
    yield f"| data set | trials | first | first {WARM} | last {WARM} | slope, kB a trial |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, each in peaks.items():
        first, last = (f"{statistics.median(part):.0f}" for part in (each[:WARM], each[-WARM:]))
        cells = (name, len(each), f"{each[0]:.0f}", first, last, f"{slopes[name]:.1f}")
        yield f"| {' | '.join(map(str, cells))} |"


def _peaks(folder: Path, trials: int) -> dict[str, list[float]]:
    """By data set, in MB, in the order in which the trials ended."""
    address = f"sqlite:///{folder / 'mlflow.db'}"
    environment = {
        **os.environ,
        "MLFLOW_TRACKING_URI": address,
        "TABIFLOW_CACHE": str(folder / "cache"),
        "PYTHONPATH": str(HERE.parent),
        "OMP_NUM_THREADS": "1",
    }
    start = "from tabiflow.cli import main; main()"
    command = [sys.executable, "-c", start, "sweep", str(_sweep(folder, trials)), "--workers", "1"]
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    ended = open_ledger(address).outcomes().values()
    assert len({each.tags["worker"] for each in ended}) == 1, "the worker was replaced"
    ordered = sorted(ended, key=lambda each: float(each.tags["left_at"]))
    peaks: dict[str, list[float]] = defaultdict(list)
    for each in ordered:
        peaks[each.trial.dataset].append(float(each.tags["process_memory_mb"]))
    return peaks


def _sweep(folder: Path, trials: int) -> Path:
    rates = [1e-3 + 1e-6 * number for number in range(trials)]
    content = {
        "name": "worker-memory",
        "models": ["example-bert"],
        "search": [{"datasets": list(DATASETS), "space": {"learning_rate": rates}}],
        "protocol": {"epochs": 1},
        "limit": {"train": 64, "validation": 32},
    }
    file = folder / "worker-memory.yaml"
    file.write_text(json.dumps(content))
    return file


if __name__ == "__main__":
    main()

"""Whether a worker's peak memory grows from trial to trial: 200 real trials in one process.

    python benchmarks/worker_memory.py

Every kind of task, one data set after the other, small enough to take a fraction of a second. Each
trial records the peak of its process, counted anew from trial to trial; the common slope within the
data sets, the first trials of each left out, is what a trial leaves behind. Writes
`results/worker_memory.md`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tabiflow.ledger import open_ledger

HERE = Path(__file__).parent
TRIALS = 200
WARM = 3
"""Trials of a data set that load what the later ones share."""
LARGEST = 100.0
"""Kilobytes a trial: 200 trials then leave less than a twentieth of such a process."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="worker-memory-") as folder:
        names, peaks = _peaks(Path(folder), asked.trials)
    slope = 1024 * _slope(names, peaks)
    table = "\n".join(
        [
            "# A worker's memory",
            "",
            f"{len(peaks)} trials in one process: peak {peaks[0]:.0f} MB in the first, "
            f"{np.median(peaks[20:40]):.0f} MB after twenty, {np.median(peaks[-20:]):.0f} MB in "
            "the end (medians of 20).",
            f"Slope: {slope:.1f} kB a trial; wanted: at most {LARGEST:g}.",
        ]
    )
    asked.results.mkdir(parents=True, exist_ok=True)
    (asked.results / "worker_memory.md").write_text(table + "\n")
    print(table)
    raise SystemExit(0 if slope <= LARGEST else 1)


def _slope(names: list[str], peaks: np.ndarray) -> float:
    """Megabytes a trial, each data set with a level of its own."""
    place, left = np.arange(float(len(peaks))), np.ones(len(peaks), dtype=bool)
    for name in dict.fromkeys(names):
        mine = np.flatnonzero(np.array(names) == name)
        left[mine[:WARM]] = False
        mine = mine[WARM:]
        place[mine] -= place[mine].mean()
        peaks = np.where(np.isin(np.arange(len(peaks)), mine), peaks - peaks[mine].mean(), peaks)
    return float(place[left] @ peaks[left] / (place[left] @ place[left]))


def _peaks(folder: Path, trials: int) -> tuple[list[str], np.ndarray]:
    """Data set and megabytes, in the order in which the trials ended."""
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
    peaks = [float(each.tags["process_memory_mb"]) for each in ordered]
    return [each.trial.dataset for each in ordered], np.array(peaks)


def _sweep(folder: Path, trials: int) -> Path:
    """The example's seven data sets; as many rates as it takes."""
    rates = [1e-3 + 1e-6 * number for number in range(-(-trials // 7))]
    content = {
        "name": "worker-memory",
        "models": ["example-bert"],
        "search": [{"datasets": ["example"], "space": {"learning_rate": rates}}],
        "protocol": {"epochs": 1},
        "limit": {"train": 64, "validation": 32},
    }
    file = folder / "worker-memory.yaml"
    file.write_text(json.dumps(content))
    return file


if __name__ == "__main__":
    main()

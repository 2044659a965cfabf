"""What compiling training steps costs and gains, on slices of the sweep benchmark.

    python benchmarks/compiled_steps.py

Trains in one process with one thread, plain and compiled in turn; the compiler's cache is empty at
first and is kept from run to run, as it is between a sweep's trials. Seconds of steps are without
those of compiling. Writes `results/compiled_steps.md`.
"""

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from padding import Prepared, prepare
from torch._inductor.utils import fresh_cache
from workload import SLICES

from tabiflow.trial import Epoch

RUNS, EPOCHS, BATCH = 3, 3, 16
ROWS = {"train": 96, "validation": 24}
WAYS = (None, "default")
NAMES = [each.name for each in SLICES]


@dataclass(frozen=True)
class Measured:
    steps: float
    compiling: float
    losses: Sequence[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--datasets", nargs="+", choices=NAMES, default=["stsb_tr"])
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="compiled-steps-") as folder, fresh_cache():
        found = {
            each.each.name: dict(zip(WAYS, _measured(each, asked.runs), strict=True))
            for each in prepare(Path(folder), **ROWS)
            if each.each.name in asked.datasets
        }
    table = "\n".join(_table(found))
    asked.results.mkdir(parents=True, exist_ok=True)
    (asked.results / "compiled_steps.md").write_text(table + "\n")
    print(table)


def _measured(each: Prepared, runs: int) -> Iterator[list[Measured]]:
    turns = [[_run(each, way) for way in WAYS] for _ in range(runs)]
    return (list(of_one) for of_one in zip(*turns, strict=True))


def _run(each: Prepared, way: str | None) -> Measured:
    epochs = list(each.training(BATCH, epochs=EPOCHS, compile=way).run())
    return Measured(
        _summed(epochs, "train_seconds"),
        _summed(epochs, "compile_seconds"),
        [epoch.metrics["train_loss"] for epoch in epochs],
    )


def _summed(epochs: Sequence[Epoch], name: str) -> float:
    return sum(epoch.metrics.get(name, 0.0) for epoch in epochs)


def _table(found: Mapping[str, Mapping[str | None, Sequence[Measured]]]) -> Iterator[str]:
    yield "# Compiled steps"
    yield ""
    rows = f"{EPOCHS} epochs of {ROWS['train']} rows, batches of {BATCH}"
    yield f"Medians of runs on one core: {rows}, an encoder of 3 million parameters."
    yield ""
    yield "| data set | steps, s | compiled, s | ratio | compiling, s, and again | losses apart |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, runs in found.items():
        plain, ours = (median(each.steps for each in runs[way]) for way in WAYS)
        first, *later = (each.compiling for each in runs["default"])
        again = f"{median(later):.1f}" if later else "–"
        apart = max(
            abs(one - other) / abs(one)
            for pair in zip(runs[None], runs["default"], strict=True)
            for one, other in zip(*(each.losses for each in pair), strict=True)
        )
        cells = (
            name,
            f"{plain:.2f}",
            f"{ours:.2f}",
            f"{plain / ours:.2f}",
            f"{first:.1f}, {again}",
        )
        yield f"| {' | '.join(cells)} | {apart:.1e} |"


if __name__ == "__main__":
    main()

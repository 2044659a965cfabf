"""How long a large grid takes to plan, to read from the ledger and to draw.

    python benchmarks/scale.py

TabiBench's grid with its 2,160 trials, and with so many learning rates that they are 19,980; in the
ledger all of them are done, ten epochs each. The table is `results/scale.md`.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

from machine import machine, spread
from rich.console import Console

from tabiflow import ledger, provenance
from tabiflow.board import Board, Progress
from tabiflow.plan import Plan, plan
from tabiflow.registry import Grid, resolve
from tabiflow.spec import Sweep
from tabiflow.trial import Epoch, Result, Trial
from tabiflow.work import missing

HERE = Path(__file__).resolve().parent
SWEEP = HERE.parent / "sweeps" / "tabibench.yaml"
EPOCHS = 10
RATES = {2_160: 4, 19_980: 37}
"""Trials of the whole grid, by the number of learning rates."""
REPEATS = 5
Measured = dict[str, list[float]]
"""Seconds, by what was done."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, nargs="+", default=list(RATES), choices=list(RATES))
    parser.add_argument("--results", type=Path, default=HERE / "results")
    asked = parser.parse_args()
    asked.results.mkdir(parents=True, exist_ok=True)
    table = "\n".join(_table({trials: _measure(trials) for trials in asked.trials}))
    (asked.results / "scale.md").write_text(table + "\n")
    print(table)


def _measure(trials: int) -> Measured:
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        sweep = _sweep(Path(folder), RATES[trials])
        grid, book = resolve(sweep), ledger.open_ledger(f"sqlite:///{folder}/mlflow.db")
        empty = plan(sweep, grid)
        assert empty.counts["trials"] == trials, empty.counts
        written = _seconds(lambda: _fill(book, empty))
        return {
            "all trials written, MLflow's import and empty tables included": [written],
            **_reads(sweep, grid, book),
        }


def _reads(sweep: Sweep, grid: Grid, book: ledger.Ledger) -> Measured:
    outcomes, empty = book.outcomes(), plan(sweep, grid)
    assert plan(sweep, grid, outcomes).counts["todo"] == 0
    tasks: dict[str, Callable[[], object]] = {
        "plan, nothing known": lambda: plan(sweep, grid),
        "plan, all known": lambda: plan(sweep, grid, outcomes),
        "ledger read (SQLite)": book.outcomes,
        "board drawn once": _drawing(empty),
        "board told of a trial's ten epochs and its end": _telling(empty),
    }
    return {what: [_seconds(task) for _ in range(REPEATS)] for what, task in tasks.items()}


def _seconds(task: Callable[[], object]) -> float:
    began = time.perf_counter()
    task()
    return time.perf_counter() - began


def _sweep(folder: Path, rates: int) -> Sweep:
    """TabiBench's own, with so many learning rates."""
    written = SWEEP.read_text(encoding="utf-8")
    space = f"{{learning_rate: {[n * 1e-6 for n in range(1, rates + 1)]}, "
    space += "weight_decay: [1e-5, 1e-6], batch_size: [16, 32]}"
    file = folder / "grid.yaml"
    file.write_text(written.replace("space: tabibench", f"space: {space}"), encoding="utf-8")
    return Sweep.read(file, rehearse=True)


def _fill(book: ledger.Ledger, planned: Plan) -> None:
    with book.recorder("floor", provenance.facts()) as recorder:
        for cell in planned.cells:
            recorder.cell(cell.cell, cell.dataset.group, "f1")
            for trial in cell.having("todo"):
                recorder.start(trial, 1, trial.id)
                for epoch in _epochs(trial):
                    recorder.epoch(trial.id, 1, epoch)
                recorder.finish(trial.id, 1, Result(epoch=EPOCHS, score=50.0))


def _epochs(trial: Trial) -> Iterator[Epoch]:
    for number in range(1, EPOCHS + 1):
        yield Epoch(number, 50.0, 1.0, {"train_loss": 1.0, "train_seconds": 0.0})


def _drawing(planned: Plan) -> Callable[[], None]:
    console = Console(file=StringIO(), width=200, force_terminal=True)
    board = Board(Progress.of(planned, missing(planned)))
    return lambda: console.print(board)


def _telling(planned: Plan) -> Callable[[], None]:
    board = Board(Progress.of(planned, missing(planned)))
    trials = (trial for cell in planned.cells for trial in cell.having("todo"))

    def tell() -> None:
        trial = next(trials)
        board.on_start(trial, 1)
        for epoch in _epochs(trial):
            board.on_epoch(trial, epoch)
        board.on_end(trial, Result(epoch=EPOCHS, score=50.0))

    return tell


def _table(measured: dict[int, Measured]) -> Iterator[str]:
    yield f"Made by `python benchmarks/scale.py` on {machine()}."
    yield ""
    yield f"Seconds; median of {REPEATS} (least to most), writing once:"
    yield ""
    yield f"| what | {' | '.join(f'{trials:,} trials' for trials in measured)} |"
    yield "| --- " * (1 + len(measured)) + "|"
    for what in next(iter(measured.values())):
        yield f"| {what} | {' | '.join(spread(each[what], '.3g') for each in measured.values())} |"


if __name__ == "__main__":
    main()

"""One real sweep, looked at twice: where its workers' seconds went, and what was forecast of them.

    python benchmarks/real_sweep.py

Three cells, the largest more than ten times the smallest, on two workers. Afterwards the ledger is
read as it stood when 5, 10, 20 and 50% of the estimated work were done, and `plan`'s forecast of
that moment is set beside what the sweep took. Writes `results/real_sweep.md`.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import sweep_speed
import workload
from sweep_speed import CONFIGURATIONS
from workload import WORKERS, Slice

from tabiflow.board import duration
from tabiflow.cost import Costs, taken
from tabiflow.forecast import INTERVAL, forecast
from tabiflow.ledger import open_ledger
from tabiflow.plan import Plan, plan
from tabiflow.registry import Grid, resolve
from tabiflow.spec import Sweep
from tabiflow.spent import together
from tabiflow.trial import Outcome

SLICES = (
    Slice("stsb_tr", "sts", 1200, 312),
    Slice("posud_imst", "pos", 500, 160, max_length=128),
    Slice("xquad_ir_tr", "retrieval", 30, 7, epochs=2),
)
SHARES = (0.05, 0.1, 0.2, 0.5)
USEFUL = 0.85


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--configurations", type=int, choices=CONFIGURATIONS, default=16)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="real-sweep-") as name:
        folder = Path(name)
        work = workload.write(folder / "work", SLICES, CONFIGURATIONS[asked.configurations])
        started = time.perf_counter()
        sweep_speed.tabiflow(work, folder)()
        wall = time.perf_counter() - started
        ended = open_ledger(f"sqlite:///{folder / 'mlflow.db'}").outcomes().values()
        sweep = Sweep.read(folder / "speed.yaml")
        table = "\n".join(
            [*_seconds(list(ended), wall), "", *_forecasts(sweep, resolve(sweep), list(ended))]
        )
    asked.results.mkdir(parents=True, exist_ok=True)
    (asked.results / "real_sweep.md").write_text(table + "\n")
    print(table)


def _seconds(ended: Sequence[Outcome], wall: float) -> Iterator[str]:
    spent = together(each.tags for each in ended)
    yield "# A real sweep"
    yield ""
    yield f"{len(ended)} trials, {WORKERS} workers, {wall:.0f} s from the command's start to end."
    yield f"Useful steps: {spent.useful:.3f} of {spent.allocated:.0f} worker-seconds, wanted"
    yield f">= {USEFUL}. Of the command's own {WORKERS} x {wall:.0f} s, the start of Python and the"
    yield f"ledger included: {spent.useful * spent.allocated / (WORKERS * wall):.3f}."
    yield ""
    yield "| where | seconds | share |"
    yield "| --- | --- | --- |"
    for name, seconds in asdict(spent).items():
        yield f"| {name} | {seconds:.1f} | {seconds / spent.allocated:.3f} |"


def _forecasts(sweep: Sweep, grid: Grid, ended: Sequence[Outcome]) -> Iterator[str]:
    whole = plan(sweep, grid, _by_id(ended))
    took = sum(each.seconds for each in taken(ended))
    sizes = _sizes(whole, ended)
    yield "## The forecast"
    yield ""
    cells = sorted({sizes[each.trial.id] for each in ended})
    yield f"The largest trial is {cells[-1] / cells[0]:.0f} times the smallest; all took"
    yield f"{duration(took)} of workers. Intervals of {INTERVAL:.0%}."
    yield ""
    yield "| estimated work done | trials | cells | forecast in all | took | covered |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for share in SHARES:
        known = _until(share, ended, sizes)
        told = forecast(plan(sweep, grid, _by_id(known)), WORKERS)
        low, middle, high = told.total
        ranged = f"{duration(middle)} ({duration(low)} to {duration(high)})"
        covered = "yes" if low <= took <= high else "NO"
        counts = f"{told.trials} | {told.cells}"
        yield f"| {share:.0%} | {counts} | {ranged} | {duration(took)} | {covered} |"


def _by_id(ended: Sequence[Outcome]) -> dict[str, Outcome]:
    return {each.trial.id: each for each in ended}


def _sizes(whole: Plan, ended: Sequence[Outcome]) -> dict[str, float]:
    """Estimated work by trial id."""
    costs = Costs(taken(ended))
    return {trial.id: costs.size(cell, trial) for cell in whole.cells for trial in cell.trials}


def _until(share: float, ended: Sequence[Outcome], sizes: dict[str, float]) -> list[Outcome]:
    """The trials that had ended when this share of the estimated work was done."""
    limit, done = share * sum(sizes.values()), 0.0
    known: list[Outcome] = []
    for each in sorted(ended, key=lambda each: float(each.tags["left_at"])):
        if done >= limit:
            break
        done += sizes[each.trial.id]
        known.append(each)
    return known


if __name__ == "__main__":
    main()

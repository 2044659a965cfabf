"""Trials an hour: tabiflow beside a process a trial and beside plain Ray Tune.

    python benchmarks/sweep_speed.py                     all lengths, three runs: see --help
    python benchmarks/sweep_speed.py --seconds 5 --runs 1

The three train the same configurations on the same rows, two trials at a time on a core each, and
each is timed from its command's start to its end, in a folder of its own with nothing cached. A
process a trial writes its state down after each epoch, as TabiBench's released code does; plain Ray
Tune never does; tabiflow by its own rule (`checkpoint: auto`). The order of the systems changes
from run to run. Every measurement is appended to `results/sweep_speed.jsonl`, the table over all of
them is `results/sweep_speed.md`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import workload
from workload import SPACE, WORKERS, Workload

HERE = Path(__file__).parent
CONFIGURATIONS: Mapping[int, Mapping[str, list[float]]] = {
    16: SPACE,
    12: {**SPACE, "learning_rate": [5e-6, 1e-5, 3e-5]},
    2: {**SPACE, "learning_rate": [3e-5], "weight_decay": [1e-5]},
    1: {"learning_rate": [3e-5], "weight_decay": [1e-5], "batch_size": [16]},
}
USUAL = {5: 16, 30: 12, 120: 2}
"""Seconds of training steps in a trial -> configurations."""
WANTED = {5: (5.0, 3.0), 30: (3.0, 1.5), 120: (2.0, 1.1)}
"""Times the trials an hour of a process a trial, and of plain Ray Tune."""
TOLERANCE = 1e-4
Scores = dict[str, float]
Group = tuple[int, float]
"""Trials whose work is the same: their nominal seconds, and the factor on the slices' rows."""


@dataclass(frozen=True)
class Measured:
    system: str
    length: int
    """Nominal seconds of training steps in a trial."""
    trials: int
    wall: float
    scores: Scores
    """Validation score by data set and configuration."""
    steps: float | None = None
    """Median seconds of training steps in a trial, where the system tells."""
    real: Sequence[str] = ()
    rows: float = 1.0
    """Factor on the slices' rows."""

    @property
    def group(self) -> Group:
        return self.length, self.rows

    @property
    def per_hour(self) -> float:
        return 3600 * self.trials / self.wall


def main() -> None:
    asked = _arguments()
    records = asked.results / "sweep_speed.jsonl"
    asked.results.mkdir(parents=True, exist_ok=True)
    if not asked.append:
        records.unlink(missing_ok=True)
    for run in range(asked.runs):
        for length in asked.seconds:
            for found in _measure(length, asked.configurations or USUAL[length], run, asked):
                with records.open("a") as file:
                    file.write(json.dumps(asdict(found)) + "\n")
    measured = [Measured(**json.loads(line)) for line in records.read_text().splitlines()]
    table = "\n".join(_table(measured))
    (asked.results / "sweep_speed.md").write_text(table + "\n")
    print(table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, nargs="+", choices=USUAL, default=[*USUAL])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--configurations", type=int, choices=CONFIGURATIONS)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=[*SYSTEMS])
    parser.add_argument("--append", action="store_true", help="Keep earlier measurements.")
    parser.add_argument("--rows", type=float, default=1.0, help="Factor on the slices' rows.")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    return parser.parse_args()


def _measure(
    length: int, configurations: int, run: int, asked: argparse.Namespace
) -> Iterator[Measured]:
    with tempfile.TemporaryDirectory(prefix="sweep-speed-") as folder:
        work = workload.write(
            Path(folder) / "work",
            workload.slices(length, asked.rows),
            CONFIGURATIONS[configurations],
        )
        turn = run % len(asked.systems)
        for system in (*asked.systems[turn:], *asked.systems[:turn]):
            own = Path(folder) / system
            own.mkdir()
            prepared = SYSTEMS[system](work, own)
            started = time.perf_counter()
            prepared()
            wall = time.perf_counter() - started
            scores, steps = READERS[system](own)
            told = Measured(system, length, len(scores), wall, scores, steps, work.real, asked.rows)
            print(
                f"run {run + 1}, {length} s: {system}: {told.trials} trials in {wall:.1f} s",
                file=sys.stderr,
            )
            yield told


def _command(arguments: Sequence[str | Path], folder: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)]),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TABIFLOW_CACHE": str(folder / "cache"),
        "HF_HOME": str(folder / "hub"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
    }
    with (folder / "output.txt").open("a") as output:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"{arguments} failed:\n{(folder / 'output.txt').read_text()[-3000:]}")


def _grid(work: Workload) -> Iterator[dict[str, float]]:
    for values in product(*work.space.values()):
        yield dict(zip(work.space, values, strict=True))


def _key(data: str, settings: Mapping[str, Any]) -> str:
    return f"{data} " + " ".join(f"{float(settings[name]):g}" for name in SPACE)


# A process a trial.


def processes(work: Workload, folder: Path) -> Callable[[], None]:
    files = []
    for each in work.slices:
        for number, settings in enumerate(_grid(work)):
            file = folder / f"{each.name}-{number}.json"
            output = str(folder / f"{each.name}-{number}")
            plain = {"padding": "max_length", "save": "epoch", "output": output}
            told = {**work.settings(each), **settings, **plain}
            file.write_text(json.dumps(told))
            files.append(file)

    def one(file: Path) -> None:
        _command([HERE / "baselines" / "trainer.py", file], folder)

    def run() -> None:
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(one, files))

    return run


def of_processes(folder: Path) -> tuple[Scores, float | None]:
    scores, steps = {}, []
    for file in folder.glob("*.result.json"):
        settings = json.loads(file.with_name(file.name.replace(".result", "")).read_text())
        result = json.loads(file.read_text())
        scores[_key(settings["name"], settings)] = result["score"]
        steps.append(result["train_seconds"])
    return scores, median(steps)


# Plain Ray Tune.


def ray_tune(work: Workload, folder: Path) -> Callable[[], None]:
    study = {
        "workers": WORKERS,
        "datasets": [work.settings(each) for each in work.slices],
        "space": work.space,
        "fixed": {"padding": "longest", "save": "no"},
        "storage": str(folder / "tune"),
        "tracking": f"sqlite:///{folder / 'mlflow.db'}",
    }
    (folder / "study.json").write_text(json.dumps(study))
    script = HERE / "baselines" / "ray_tune.py"
    return lambda: _command([script, folder / "study.json"], folder)


def of_ray_tune(folder: Path) -> tuple[Scores, float | None]:
    found = json.loads((folder / "study.result.json").read_text())
    return {_key(each["data"], each): each["score"] for each in found}, None


# tabiflow.


def tabiflow(work: Workload, folder: Path) -> Callable[[], None]:
    file = folder / "speed.yaml"
    workload.dump(work, file)
    start = "from tabiflow.cli import main; main()"
    return lambda: _command(["-c", start, "sweep", file, "--workers", str(WORKERS)], folder)


def of_tabiflow(folder: Path) -> tuple[Scores, float | None]:
    from tabiflow.ledger import open_ledger

    outcomes = open_ledger(f"sqlite:///{folder / 'mlflow.db'}").outcomes().values()
    scores = {
        _key(each.trial.dataset, each.trial.params.model_dump()): each.score for each in outcomes
    }
    return scores, median(float(each.tags["train_seconds"]) for each in outcomes)


SYSTEMS: Mapping[str, Callable[[Workload, Path], Callable[[], None]]] = {
    "process a trial": processes,
    "plain Ray Tune": ray_tune,
    "tabiflow": tabiflow,
}
READERS: Mapping[str, Callable[[Path], tuple[Scores, float | None]]] = {
    "process a trial": of_processes,
    "plain Ray Tune": of_ray_tune,
    "tabiflow": of_tabiflow,
}


def _table(measured: Sequence[Measured]) -> Iterator[str]:
    yield "# Trials an hour"
    yield ""
    yield "Medians (lowest to highest) of whole commands on two cores, two trials at a time."
    yield ""
    yield "| trial | system | runs | trials | steps, s | wall, s | trials/h | tabiflow's | wanted |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    systems: dict[tuple[Group, str], list[Measured]] = defaultdict(list)
    for each in measured:
        systems[each.group, each.system].append(each)
    for (group, system), runs in sorted(systems.items(), key=lambda pair: _place(*pair[0])):
        ours = systems.get((group, "tabiflow"))
        walls, rates = [each.wall for each in runs], [each.per_hour for each in runs]
        steps = [each.steps for each in runs if each.steps is not None]
        wanted = dict(zip(SYSTEMS, WANTED[group[0]], strict=False)).get(system)
        ratio = median(each.per_hour for each in ours) / median(rates) if ours else None
        cells = (
            *(_trial(group), system, str(len(runs)), str(runs[0].trials)),
            f"{median(steps):.1f}" if steps else "–",
            *(_spread(walls, ".0f"), _spread(rates, ".0f")),
            f"{ratio:.2f} x" if ratio and system != "tabiflow" else "",
            f">= {wanted:g} x" if wanted else "",
        )
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield from _agreement(measured)
    real = sorted({name for each in measured for name in each.real})
    yield f"Real rows of: {', '.join(real) or 'none, all are stand-ins'}."


def _place(group: Group, system: str) -> tuple[Group, int]:
    return group, [*SYSTEMS].index(system)


def _trial(group: Group) -> str:
    length, rows = group
    return f"{length} s" if rows == 1 else f"{length} s, rows x {rows:g}"


def _spread(values: Sequence[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def _agreement(measured: Sequence[Measured]) -> Iterator[str]:
    """Scores of the same configuration side by side, over all systems and runs."""
    scores: dict[tuple[Group, str], list[float]] = defaultdict(list)
    for each in measured:
        for key, score in each.scores.items():
            scores[each.group, key].append(score)
    apart = {key: max(found) - min(found) for key, found in scores.items()}
    within = sum(each <= TOLERANCE for each in apart.values())
    yield f"{within} of {len(apart)} configurations score the same within {TOLERANCE:g}"
    yield f"(0 to 100); the farthest apart are {max(apart.values()):.3g}."
    yield ""
    yield "| data set, rate, decay, batch | lowest | highest |"
    yield "| --- | --- | --- |"
    for (group, key), found in sorted(scores.items()):
        yield f"| {_trial(group)}: {key} | {min(found):.6f} | {max(found):.6f} |"
    yield ""


if __name__ == "__main__":
    main()

"""Sweep files, plans and outcomes for tests, with what a test does not care about filled in."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tabiflow.plan import Plan
from tabiflow.registry import resolve
from tabiflow.selection import planned as plan
from tabiflow.spec import Sweep
from tabiflow.trial import Hold, Outcome, Status, Trial

RATES = [1e-5, 2e-5, 3e-5]


def model(name: str = "model", **fields: Any) -> dict[str, Any]:
    return {"name": name, "hub": f"owner/{name}", **fields}


def dataset(name: str = "data", **fields: Any) -> dict[str, Any]:
    return {"name": name, "hub": f"owner/{name}", "task": "nli", **fields}


def written(folder: Path, **changes: Any) -> Path:
    """A sweep file of one cell and three rates, apart from the changed keys. JSON is YAML."""
    content = {
        "name": "study",
        "models": [model()],
        "search": [{"datasets": [dataset()], "space": {"learning_rate": RATES}}],
        **changes,
    }
    file = folder / "study.yaml"
    file.write_text(json.dumps(content))
    return file


def searched(**space: Any) -> list[dict[str, Any]]:
    """The one data set of `written`, searched in another space."""
    return [{"datasets": [dataset()], "space": space}]


def planned(
    folder: Path, outcomes: Iterable[Outcome] = (), holds: Sequence[Hold] = (), **changes: Any
) -> Plan:
    sweep = Sweep.read(written(folder, **changes))
    return plan(sweep, resolve(sweep), known(outcomes), holds)


def known(outcomes: Iterable[Outcome]) -> Mapping[str, Outcome]:
    """As the ledger gives them."""
    return {outcome.trial.id: outcome for outcome in outcomes}


def outcome(trial: Trial, status: Status = Status.DONE, **fields: Any) -> Outcome:
    return Outcome(trial, status, **{"attempt": 1, "run_id": "run", "sweep": "study", **fields})


def scored(trials: Iterable[Trial], *scores: float, **fields: Any) -> list[Outcome]:
    pairs = zip(trials, scores, strict=True)
    return [outcome(trial, score=score, epoch=1, **fields) for trial, score in pairs]


def opened(trial: Trial, seed: int = 25, **fields: Any) -> Outcome:
    """The outcome of a trial that confirms a configuration."""
    return outcome(replace(trial, split="test", seed=seed), **{"test": 50.0, "n": 9, **fields})

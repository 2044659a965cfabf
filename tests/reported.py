"""Reports of made-up outcomes whose predictions are known, for the tests of `tabiflow.report`."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from studies import dataset, known, model, opened, planned, scored

from tabiflow.registry.kinds import KINDS
from tabiflow.report import Report, report
from tabiflow.report.items import items
from tabiflow.selection import winners
from tabiflow.trial import Outcome, Trial

Records = Sequence[Mapping[str, Any]]


@dataclass
class Kept:
    """What a ledger has beside outcomes."""

    items: dict[str, Records] = field(default_factory=dict)
    points: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def predictions(self, run_ids: Sequence[str]) -> Mapping[str, Records]:
        return {each: self.items[each] for each in run_ids if each in self.items}

    def curves(self, run_ids: Sequence[str]) -> Mapping[str, list[tuple[int, float]]]:
        return {each: self.points[each] for each in run_ids if each in self.points}


def records(predictions: Sequence[Any], references: Sequence[Any]) -> list[dict[str, Any]]:
    pairs = enumerate(zip(predictions, references, strict=True))
    return [{"row": row, "prediction": said, "reference": true} for row, (said, true) in pairs]


def labels(right: int, of: int, classes: int = 2, seed: int = 0) -> list[dict[str, Any]]:
    """Predictions of a class, so many of them right; the same references for every `seed`."""
    gold = [row % classes for row in range(of)]
    wrong = set(random.Random(seed).sample(range(of), of - right))
    said = [(true + 1) % classes if row in wrong else true for row, true in enumerate(gold)]
    return records(said, gold)


def two(folder: Path, tests: Mapping[tuple[str, str], Sequence[Records]], **changes: Any) -> Report:
    """Models `a` and `b` on the data sets of `tests`, which holds predictions by seed 25, 7, ..."""
    names = dict.fromkeys(name for _, name in tests)
    rows = [dataset(name, category="texts", sizes={"test": 100}) for name in names]
    return made(folder, tests, rows, [model("a"), model("b")], **changes)


def made(
    folder: Path,
    tests: Mapping[tuple[str, str], Sequence[Records]],
    datasets: Sequence[Any],
    models: Sequence[Any],
    *,
    figures: Mapping[str, float] | None = None,
    **changes: Any,
) -> Report:
    """`figures` are what every confirming trial has measured beside its score."""
    search = [{"datasets": datasets, "space": {"learning_rate": [1e-5, 2e-5, 3e-5]}}]
    changes = {"models": models, "search": search, "confirm": {"seeds": [25, 7, 42]}, **changes}
    trials = list(planned(folder, **changes).trials)
    searched = scored(trials, *(50 + 1e6 * trial.params.learning_rate for trial in trials))
    searched = [replace(each, run_id=each.trial.id) for each in searched]
    evidence = Kept(points={trial.id: [(1, 40.0), (2, 61.5)] for trial in trials})
    best = [trial for trial in trials if trial.params.learning_rate == 3e-5]
    confirmed = [
        replace(each, metrics=figures or {})
        for trial in best
        for each in _confirmed(trial, tests, evidence)
    ]
    outcomes = known([*searched, *confirmed])
    plan = planned(folder, outcomes.values(), **changes)
    return report(plan, winners(plan), outcomes, evidence)


def _confirmed(
    trial: Trial, tests: Mapping[tuple[str, str], Sequence[Records]], evidence: Kept
) -> list[Outcome]:
    metric = KINDS[trial.dataset_identity["task"]].metric
    found = []
    for seed, kept in zip((25, 7, 42), tests.get(trial.cell, ()), strict=False):
        run_id = f"{trial.id}-{seed}"
        evidence.items[run_id] = kept
        measured = items(metric, kept)
        test = measured.score if measured else 70.0
        extra = {"run_id": run_id, "metric": metric, "score": 80.0, "tags": FACTS}
        found.append(opened(trial, seed, test=test, n=len(kept) or 9, **extra))
    return found


FACTS = {
    "opened_at": "2026-01-01",
    "opened_by": "me@here",
    "code_commit": "abc123",
    "device": "cuda: a_b & c",
    "excluded": "no label: 3",
    "excluded_rows": "3",
    "data_test": "f00d",
    "model_commit": "beef",
}

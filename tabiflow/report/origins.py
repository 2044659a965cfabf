"""Where a report's numbers come from: openings of test, rows left out, code, data, machines."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from tabiflow.forecast import share
from tabiflow.plan import Plan
from tabiflow.spec import Dataset, Model
from tabiflow.spent import together
from tabiflow.trial import Outcome


@dataclass(frozen=True)
class OpeningRecord:
    """One look at a test split."""

    model: str
    dataset: str
    seed: int
    trial: str
    validation: float
    test: float
    metric: str
    n: int
    opened_at: str
    opened_by: str
    code: str
    reason: str
    """Why it was opened again for another winner; empty for a first opening."""


@dataclass(frozen=True)
class Exclusion:
    """Rows that a data set lost on its way to a model; of test too, where it was opened."""

    model: str
    dataset: str
    rows: int
    reasons: str
    """Each with its rows."""


@dataclass(frozen=True)
class Revision:
    """What a name stood for."""

    kind: str
    """`model` or `data set`."""
    name: str
    source: str
    revision: str
    """Asked for; of something local the hash of its bytes."""
    commit: str
    """Resolved on the hub; several where it has moved."""
    fingerprint: str
    """Of the tokenizer, or of each split's rows."""


def openings(sweep: str, outcomes: Mapping[str, Outcome]) -> tuple[OpeningRecord, ...]:
    """Every recorded look at a test split by this sweep, oldest first."""
    opened = [
        opening_record(outcome)
        for outcome in outcomes.values()
        if outcome.sweep == sweep and outcome.trial.split == "test"
    ]
    return tuple(sorted(opened, key=lambda each: (each.opened_at, each.trial)))


def opening_record(outcome: Outcome) -> OpeningRecord:
    trial, tags = outcome.trial, outcome.tags
    return OpeningRecord(
        model=trial.model,
        dataset=trial.dataset,
        seed=trial.seed,
        trial=trial.id,
        validation=outcome.score,
        test=outcome.test,
        metric=outcome.metric,
        n=outcome.n,
        opened_at=tags.get("opened_at", ""),
        opened_by=tags.get("opened_by", ""),
        code=tags.get("opened_code", ""),
        reason=tags.get("reopen_reason", ""),
    )


def used(plan: Plan, outcomes: Mapping[str, Outcome]) -> tuple[Outcome, ...]:
    """The plan's finished trials, and this sweep's finished confirming ones."""
    mine = {trial.id for trial in plan.trials}
    cells = {cell.cell for cell in plan.cells}
    return tuple(
        each
        for key, each in outcomes.items()
        if each.finished
        and (
            key in mine
            or (
                each.trial.split == "test"
                and each.sweep == plan.sweep.name
                and each.trial.cell in cells
            )
        )
    )


def exclusions(plan: Plan, found: Sequence[Outcome]) -> tuple[Exclusion, ...]:
    """Only where rows were left out; a cell's trials with the same reasons are told once."""
    told: dict[Exclusion, None] = {}
    order = {cell.cell: place for place, cell in enumerate(plan.cells)}
    for each in sorted(found, key=lambda one: order[one.trial.cell]):
        reasons, rows = each.tags.get("excluded", ""), each.tags.get("excluded_rows", "0")
        if reasons:
            told[Exclusion(each.trial.model, each.trial.dataset, int(rows), reasons)] = None
    return tuple(told)


SPLITS = ("data_train", "data_validation", "data_test")


def revisions(plan: Plan, found: Sequence[Outcome]) -> tuple[Revision, ...]:
    """Of every model and data set of the plan, as its trials recorded them."""
    models = {cell.model.name: cell.model for cell in plan.cells}
    datasets = {cell.dataset.name: cell.dataset for cell in plan.cells}
    return (
        *(
            _model(row, [each for each in found if each.trial.model == row.name])
            for row in models.values()
        ),
        *(
            _dataset(row, [each for each in found if each.trial.dataset == row.name])
            for row in datasets.values()
        ),
    )


def _model(row: Model, found: Sequence[Outcome]) -> Revision:
    return Revision(
        "model",
        row.name,
        _source(row),
        _values(found, "model_revision") or row.revision or "",
        _values(found, "model_commit"),
        _values(found, "tokenizer"),
    )


def _dataset(row: Dataset, found: Sequence[Outcome]) -> Revision:
    prints = {name.removeprefix("data_"): _values(found, name) for name in SPLITS}
    return Revision(
        "data set",
        row.name,
        _source(row),
        _values(found, "data_revision") or row.revision or "",
        _values(found, "data_commit"),
        ", ".join(f"{split} {value}" for split, value in prints.items() if value),
    )


def _source(row: Model | Dataset) -> str:
    if row.build:
        return f"built in: {row.build}"
    return str(row.hub or row.path)


def _values(found: Iterable[Outcome], tag: str) -> str:
    """Several where it changed on the way."""
    return "; ".join(sorted({each.tags[tag] for each in found if each.tags.get(tag)}))


PROVENANCE = ("code_commit", "versions", "device", "attention", "precision", "compiled")


def provenance(plan: Plan, found: Sequence[Outcome]) -> dict[str, str]:
    """What the trials ran on, and for how long."""
    told = {tag: _values(found, tag) for tag in PROVENANCE}
    on_gpu = [each for each in found if each.tags.get("device", "cpu") != "cpu"]
    hours = {"trial_hours": _hours(found), "gpu_hours": _gpu_hours(plan, on_gpu)}
    return {name: value for name, value in {**told, **hours, **_shares(found)}.items() if value}


def _shares(found: Iterable[Outcome]) -> dict[str, str]:
    """Of the seconds of all workers: what training steps and validation passes had of them, and
    where the rest went."""
    spent = together(each.tags for each in found)
    if not spent.allocated:
        return {}
    parts = {f"share_{name}": each / spent.allocated for name, each in asdict(spent).items()}
    return {name: f"{each:.3f}" for name, each in {"useful_steps": spent.useful, **parts}.items()}


def _hours(found: Iterable[Outcome]) -> str:
    timed = [each.seconds for each in found if not math.isnan(each.seconds)]
    return f"{sum(timed) / 3600:.3f}" if timed else ""


def _gpu_hours(plan: Plan, found: Iterable[Outcome]) -> str:
    """A trial's hours times the share of a GPU that it held."""
    shares = {cell.model.name: share(plan, cell) for cell in plan.cells}
    hours = [
        each.seconds * shares[each.trial.model] / 3600
        for each in found
        if not math.isnan(each.seconds)
    ]
    return f"{sum(hours):.3f}" if hours else ""


def unfinished(plan: Plan) -> dict[str, int]:
    counts = plan.counts
    return {state: counts[state] for state in ("todo", "failed", "held") if counts[state]}

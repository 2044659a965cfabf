"""The verbs that look: they start nothing and change nothing."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from tabiflow import ledger, selection
from tabiflow.board import shown
from tabiflow.cli.away import anywhere
from tabiflow.cli.common import Known, know, on_sweep, say, table
from tabiflow.cli.expected import Expected
from tabiflow.errors import UserError, near
from tabiflow.plan import CellPlan, Plan
from tabiflow.registry.cetvel import TASKS
from tabiflow.registry.datasets import DATASETS
from tabiflow.registry.generators import GENERATORS
from tabiflow.registry.kinds import KINDS
from tabiflow.registry.models import MODELS
from tabiflow.report.ablation import CutShare
from tabiflow.report.appendix import warnings
from tabiflow.report.content import report
from tabiflow.report.render import as_json, brief_tables, dumps, number, write
from tabiflow.spec import Dataset, Generator, Model, label
from tabiflow.spec.evaluation import is_evaluation
from tabiflow.trial import Outcome, Status


@click.command(name="plan")
@on_sweep
@click.option("--explain", is_flag=True, help="Also which trials are proven equal, and why.")
@click.option(
    "--workers", type=click.IntRange(min=1), help="Of the forecast; default: as many as last ran."
)
@anywhere()
def plan_verb(
    sweep: Path, rehearse: bool, as_data: bool, explain: bool, workers: int | None
) -> None:
    """What the sweep asks for, what is left to run and how long it may take. Runs nothing."""
    known = know(sweep, rehearse)
    expected = Expected.of(known.plan, workers)
    counts = known.plan.counts
    content = {
        **counts,
        "sweep": known.sweep.name,
        "models": known.plan.models,
        "datasets": known.plan.datasets,
        **_waiting(known),
        "forecast": expected.content(),
        **({"equal": list(_equal(known.plan))} if explain else {}),
    }
    rows = [
        (name, *(_square(known.plan, model, name) for model in known.plan.models))
        for name in known.plan.datasets
    ]
    say(
        as_data,
        content,
        table("", ("todo of all", *known.plan.models), rows),
        f"\n{counts['trials']} trials in {counts['cells']} cells: {counts['todo']} to do, "
        f"{counts['known']} known, {counts['failed']} failed, {counts['held']} held",
        *_merged_lines(known.plan, explain),
        *expected.lines(),
        *_origin_lines(known),
    )


def _merged_lines(plan: Plan, explain: bool) -> Iterator[str]:
    merged = plan.counts["trials"] - plan.counts["distinct"]
    if merged and not explain:
        yield f"{merged} of them are proven equal to another, which is run for them: --explain"
    for each in _equal(plan) if explain else ():
        cell = f"{each['model']} x {each['dataset']}"
        run = f"{each['run']} [{each['configuration']}]"
        named = zip(each["aliases"], each["alias_configurations"], strict=True)
        aliases = (f"{trial} [{configuration}]" for trial, configuration in named)
        yield f"\n{cell}: {run} is run for {', '.join(aliases)}: {each['proof']}"


def _equal(plan: Plan) -> Iterator[dict[str, Any]]:
    for cell in plan.cells:
        for each in cell.equal:
            yield {
                "model": cell.model.name,
                "dataset": cell.dataset.name,
                "run": each.run.id,
                "configuration": label(each.run.point(cell.varying), cell.varying),
                "aliases": [alias.id for alias in each.aliases],
                "alias_configurations": [
                    label(alias.point(cell.varying), cell.varying) for alias in each.aliases
                ],
                "proof": each.proof,
            }


def _waiting(known: Known) -> dict[str, Any]:
    """Of a sweep of winners: which sweep's, and the cells that have none there yet."""
    if known.sweep.winners_of is None:
        return {}
    cells = [
        {"model": cell.model.name, "dataset": cell.dataset.name, "reason": cell.awaits}
        for cell in known.plan.cells
        if cell.awaits
    ]
    return {"winners_of": known.sweep.winners_of.sweep.name, "waiting": cells}


def _origin_lines(known: Known) -> Iterator[str]:
    found = _waiting(known)
    if found:
        yield f"they confirm winners of {found['winners_of']}: `tabiflow confirm` runs them"
    for each in found.get("waiting", ()):
        yield f"waiting: {each['model']} x {each['dataset']}: {each['reason']}"


def _square(plan: Plan, model: str, dataset: str) -> str:
    found = [cell for cell in plan.cells if cell.cell == (model, dataset)]
    return f"{found[0].counts['todo']}/{found[0].size}" if found else "–"


@click.command()
@on_sweep
@anywhere()
def status(sweep: Path, rehearse: bool, as_data: bool) -> None:
    """Where the sweep stands, cell by cell."""
    known = know(sweep, rehearse)
    content = status_content(known)
    rows = [
        (
            each["model"],
            each["dataset"],
            *(str(each[state]) for state in ("done", "todo", "failed")),
            shown(each["best"]["score"]) if each["best"] else "–",
        )
        for each in content["cells"]
    ]
    header = ("model", "data set", "done", "todo", "failed", "best validation")
    say(as_data, content, table("", header, rows), status_line(known), *_origin_lines(known))


def status_content(known: Known) -> dict[str, Any]:
    ends = [cell.outcome(trial) for cell in known.plan.cells for trial in cell.trials]
    running, pruned = (
        sum(end is not None and end.status is status for end in ends)
        for status in (Status.RUNNING, Status.PRUNED)
    )
    counts = known.plan.counts
    best = {winner.cell: winner for winner in known.winners}
    return {
        "sweep": known.sweep.name,
        "counts": {
            "done": counts["known"] - pruned,
            "running": running,
            "failed": counts["failed"],
            "held": counts["held"],
            "pruned": pruned,
            "todo": counts["todo"] - running,
        },
        "cells": [_cell_status(cell, best.get(cell.cell)) for cell in known.plan.cells],
        **_waiting(known),
    }


def _cell_status(cell: CellPlan, best: selection.Winner | None) -> dict[str, Any]:
    counts = cell.counts
    metric = KINDS[cell.dataset.task].metric
    return {
        "model": cell.model.name,
        "dataset": cell.dataset.name,
        "done": counts["known"],
        "todo": counts["todo"],
        "failed": counts["failed"],
        "held": counts["held"],
        "best": best and {"trial": best.trial.id, "score": best.score, "metric": metric},
    }


def status_line(known: Known) -> str:
    counts = status_content(known)["counts"]
    parts = [f"{count} {state}" for state, count in counts.items() if count]
    return f"\n{known.sweep.name}: " + ", ".join(parts)


@click.command()
@on_sweep
@anywhere()
def failures(sweep: Path, rehearse: bool, as_data: bool) -> None:
    """What failed, and why; `resubmit` runs it again."""
    known = know(sweep, rehearse)
    failed = [_failure(outcome) for outcome in _failed(known)]
    held = [
        {
            "model": cell.model.name,
            "dataset": cell.dataset.name,
            "trials": cell.counts["held"],
            "kind": cell.hold.kind,
            "error": cell.hold.error,
        }
        for cell in known.plan.cells
        if cell.hold is not None and cell.counts["held"]
    ]
    header = ("trial", "model", "data set", "kind", "attempts", "error")
    rows = [
        (
            each["trial"],
            each["model"],
            each["dataset"],
            each["kind"],
            str(each["attempts"]),
            each["error"],
        )
        for each in failed
    ]
    lines = [
        f"held: {each['trials']} trials of {each['model']} x {each['dataset']} "
        f"({each['kind']}: {each['error']})"
        for each in held
    ]
    say(as_data, {"failures": failed, "held": held}, table("", header, rows), *lines)


def _failed(known: Known) -> list[Outcome]:
    """Of the plan, and of the confirming trials of its cells."""
    cells = {cell.cell for cell in known.plan.cells}
    planned = [
        cell.outcomes[trial.id] for cell in known.plan.cells for trial in cell.having("failed")
    ]
    confirming = [
        outcome
        for outcome in known.outcomes.values()
        if outcome.trial.split == "test"
        and outcome.sweep == known.sweep.name
        and outcome.trial.cell in cells
        and outcome.status is Status.FAILED
    ]
    return list({outcome.trial.id: outcome for outcome in planned + confirming}.values())


def _failure(outcome: Outcome) -> dict[str, Any]:
    return {
        "trial": outcome.trial.id,
        "model": outcome.trial.model,
        "dataset": outcome.trial.dataset,
        "kind": outcome.kind,
        "error": outcome.error,
        "attempts": outcome.attempt,
    }


@click.command()
@on_sweep
@anywhere()
def select(sweep: Path, rehearse: bool, as_data: bool) -> None:
    """The best configuration of every cell, on validation only."""
    known = know(sweep, rehearse)
    chosen = [_winner(winner, known.plan) for winner in known.winners]
    header = ("model", "data set", "configuration", "metric", "validation", "epoch", "ties")
    rows = [
        (
            each["model"],
            each["dataset"],
            each["configuration"],
            each["metric"],
            number(each["score"]) + ("" if each["complete"] else " (incomplete)"),
            str(each["epoch"]),
            str(each["ties"]),
        )
        for each in chosen
    ]
    missing = len(known.plan.cells) - len(chosen)
    line = f"\n{len(chosen)} winners" + (f", {missing} cells without a score" if missing else "")
    found = _waiting(known)
    if found:
        line += f"; taken from {found['winners_of']}, with their validation scores there"
    say(as_data, {"winners": chosen, **found}, table("", header, rows), line)


def _winner(winner: selection.Winner, plan: Plan) -> dict[str, Any]:
    cell = plan.of(winner.cell)
    settings = winner.trial.settings
    return {
        "model": winner.cell.model,
        "dataset": winner.cell.dataset,
        "trial": winner.trial.id,
        "params": settings,
        "configuration": label(winner.trial.point(cell.varying), cell.varying),
        "metric": KINDS[cell.dataset.task].metric,
        "score": winner.score,
        "epoch": winner.epoch,
        "ties": winner.ties,
        "candidates": winner.candidates,
        "complete": winner.complete,
    }


@click.command(name="report")
@on_sweep
@click.option("-o", "folder", type=click.Path(path_type=Path), help="Write the tables here.")
@anywhere()
def report_verb(sweep: Path, rehearse: bool, as_data: bool, folder: Path | None) -> int:
    """Test scores beside published ones, intervals and comparisons, winners, openings.

    The files have more than the terminal shows: sensitivity, curves, origins.
    """
    if is_evaluation(sweep):
        from tabiflow.cli import generate

        return generate.report(sweep, folder, as_data)
    known = know(sweep, rehearse)
    book = ledger.open_ledger() if ledger.exists() else None
    made = report(known.plan, known.winners, known.outcomes, book, _cut_shares(known.plan))
    files = write(made, folder) if folder else []
    tables = [table(each.title, each.header, each.rows) for each in brief_tables(made)]
    spaced = [each for one in tables for each in (one, "")]
    warned = (f"warning: {each}" for each in warnings(made))
    say(as_data, as_json(made), *spaced, *warned, *(f"wrote {file}" for file in files))
    return 0


def _cut_shares(plan: Plan) -> Sequence[CutShare]:
    if plan.sweep.winners_of is None:
        return ()
    # Only here: measuring takes the tokenizers and what they import.
    from tabiflow.report.cutting import cut_shares

    return cut_shares(plan)


@click.command()
@click.argument("trial")
@click.option("--json", "as_data", is_flag=True, help="One JSON object on stdout.")
def show(trial: str, as_data: bool) -> None:
    """One trial: what it means and what became of it. TRIAL is an id or its beginning."""
    if not ledger.exists():
        raise UserError("there is no ledger yet", hint="run `tabiflow sweep` first")
    book = ledger.open_ledger()
    outcome = _one(trial, book.outcomes())
    curve = book.curves([outcome.run_id]).get(outcome.run_id, [])
    content = {
        "trial": outcome.trial.id,
        "sweep": outcome.sweep,
        "status": outcome.status.value,
        "attempt": outcome.attempt,
        "meaning": outcome.trial.meaning,
        "metric": outcome.metric,
        "validation": outcome.score,
        "epoch": outcome.epoch,
        "test": outcome.test,
        "kind": outcome.kind,
        "error": outcome.error,
        "metrics": dict(outcome.metrics),
        "curve": [{"epoch": epoch, "validation": score} for epoch, score in curve],
        "tags": dict(outcome.tags),
        "run": outcome.run_id,
    }
    say(as_data, content, dumps(content))


def _one(prefix: str, outcomes: Mapping[str, Outcome]) -> Outcome:
    found = [outcome for key, outcome in outcomes.items() if key.startswith(prefix)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"{len(found)} trials begin with `{prefix}`", hint="give more digits")
    raise UserError(f"no trial `{prefix}` in the ledger", hint=near(prefix, outcomes))


@click.command(name="list")
@click.argument("what", type=click.Choice(["models", "datasets", "tasks"]), required=False)
@click.option("--json", "as_data", is_flag=True, help="One JSON object on stdout.")
def list_verb(what: str | None, as_data: bool) -> None:
    """The models and data sets that a sweep can name, and the tasks of the generative benchmark."""
    content: dict[str, Any] = {}
    tables: list[Table | str] = []
    if what in (None, "models"):
        content["models"] = [row.model_dump(mode="json", exclude_defaults=True) for row in MODELS]
        rows = [(row.name, row.title, _origin(row), ", ".join(row.tags)) for row in MODELS]
        tables += [table("models", ("name", "title", "from", "tags"), rows), ""]
        content["generators"] = [
            row.model_dump(mode="json", exclude_defaults=True) for row in GENERATORS
        ]
        written = [(row.name, row.title, _origin(row)) for row in GENERATORS]
        tables += [table("generative models", ("name", "title", "from"), written), ""]
    if what in (None, "datasets"):
        content["datasets"] = [
            row.model_dump(mode="json", exclude_defaults=True) for row in DATASETS
        ]
        found = [
            (d.name, d.task, d.group, str(d.hub or d.build), ", ".join(d.tags)) for d in DATASETS
        ]
        tables += [table("data sets", ("name", "task", "category", "from", "tags"), found), ""]
    if what in (None, "tasks"):
        content["tasks"] = [row.model_dump(mode="json", exclude_defaults=True) for row in TASKS]
        asked = [
            (t.name, t.category, t.column, t.answered, t.metric, t.hub, t.split) for t in TASKS
        ]
        header = ("name", "category", "column", "answered by", "metric", "from", "split")
        tables.append(table("tasks", header, asked))
    say(as_data, content, *tables)


def _origin(row: Model | Dataset | Generator) -> str:
    return row.hub or "built in"

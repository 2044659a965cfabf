"""The verbs: parse, call, print. What a verb means is decided below this module.

Heavy modules are imported by the verb that needs them, so that `plan` answers at once.
Exit codes: 0 all done, 2 the user's mistake, 3 finished with failures, 130 interrupted.
"""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table

from tabiflow import data, ledger, selection
from tabiflow.board import Progress, board, shown
from tabiflow.errors import CellError, UserError, near
from tabiflow.plan import CellPlan, Plan, plan
from tabiflow.registry import DATASETS, MODELS, Grid, resolve
from tabiflow.registry.kinds import KINDS
from tabiflow.report.content import opening_record, openings, report
from tabiflow.report.render import as_json, dumps, number, sections, write
from tabiflow.spec import Sweep, label
from tabiflow.trial import HOLDING, Outcome, Status, Trial

FAILED, INTERRUPTED = 3, 130
out = Console()
err = Console(stderr=True)


@dataclass(frozen=True)
class Known:
    """A sweep with what the ledger knows of it."""

    sweep: Sweep
    grid: Grid
    plan: Plan
    outcomes: Mapping[str, Outcome]

    @property
    def winners(self) -> tuple[selection.Winner, ...]:
        return selection.winners(self.plan)


def know(file: Path, rehearse: bool) -> Known:
    """Reads the sweep and checks its local data before anything is started or written."""
    sweep = Sweep.read(file, rehearse=rehearse)
    grid = resolve(sweep)
    if sweep.runner == "finetune":
        for dataset in grid.datasets:
            data.check(dataset, grid.places[dataset.name])
    if not ledger.exists():
        return Known(sweep, grid, plan(sweep, grid), {})
    book = ledger.open_ledger()
    outcomes = book.outcomes()
    return Known(sweep, grid, plan(sweep, grid, outcomes, book.holds(sweep.name)), outcomes)


class Verbs(click.Group):
    """Unknown verbs get a near name."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            hint = near(args[0], self.list_commands(ctx))
            ctx.fail(f"no verb `{args[0]}`" + (f"; {hint}" if hint else ""))
        return super().resolve_command(ctx, args)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tabiflow")
def verbs() -> None:
    """Sweeps of fine-tuning trials: plan, run, select, confirm, report."""


def main() -> None:
    """The console script: a user's mistake is one line, ours is a traceback."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(message)s",
        handlers=[RichHandler(console=err, show_path=False, show_level=False)]
        if err.is_terminal
        else [logging.StreamHandler()],
    )
    try:
        code = verbs.main(standalone_mode=False)
    except (UserError, CellError) as error:
        code = _complain(str(error))
    except click.ClickException as error:
        code = _complain(error.format_message())
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
    sys.exit(code or 0)


def _complain(line: str) -> int:
    click.echo(f"tabiflow: {' '.join(line.split())}", err=True)
    return 2


def on_sweep(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every verb about a sweep takes."""
    command = click.option("--json", "as_data", is_flag=True, help="One JSON object on stdout.")(
        command
    )
    command = click.option(
        "--rehearse", is_flag=True, help="The same plan without models; scores are made up."
    )(command)
    return click.argument("sweep", type=click.Path(path_type=Path))(command)


def on_cluster(command: Callable[..., Any]) -> Callable[..., Any]:
    """How a verb runs trials."""
    command = click.option("--address", help="Join a running Ray at this address.")(command)
    return click.option(
        "--workers", type=click.IntRange(min=1), help="Trials at the same time; default: all fit."
    )(command)


def say(as_data: bool, content: Mapping[str, Any], *tables: Table | str) -> None:
    """JSON for tools, tables for people."""
    if as_data:
        click.echo(dumps(content))
        return
    for table in tables:
        out.print(table, highlight=False, soft_wrap=isinstance(table, str))


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    made = Table(*header, title=title or None, box=None, pad_edge=False, title_justify="left")
    for row in rows:
        made.add_row(*row)
    return made


@verbs.command(name="plan")
@on_sweep
def plan_verb(sweep: Path, rehearse: bool, as_data: bool) -> None:
    """What the sweep asks for, and what is left to run. Runs nothing."""
    known = know(sweep, rehearse)
    counts = known.plan.counts
    content = {
        **counts,
        "sweep": known.sweep.name,
        "models": known.plan.models,
        "datasets": known.plan.datasets,
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
    )


def _square(plan: Plan, model: str, dataset: str) -> str:
    found = [cell for cell in plan.cells if cell.cell == (model, dataset)]
    return f"{found[0].counts['todo']}/{found[0].size}" if found else "–"


@verbs.command()
@on_sweep
@on_cluster
def sweep(
    sweep: Path, rehearse: bool, as_data: bool, workers: int | None, address: str | None
) -> int:
    """Run what is missing. Running it again runs nothing twice."""
    known = know(sweep, rehearse)
    todo = [trial for cell in known.plan.cells for trial in cell.having("todo")]
    code = _run(known, todo, workers, address, sampling=True)
    return _conclude(know(sweep, rehearse), as_data, code)


@verbs.command()
@on_sweep
@on_cluster
@click.option("--kind", "kinds", multiple=True, help="Only failures of this kind.")
def resubmit(
    sweep: Path,
    rehearse: bool,
    as_data: bool,
    workers: int | None,
    address: str | None,
    kinds: tuple[str, ...],
) -> int:
    """Run failed, held and killed trials again."""
    known = know(sweep, rehearse)
    todo = [trial for cell in known.plan.cells for trial in _again(cell, known.outcomes, kinds)]
    code = _run(known, todo, workers, address, release=True)
    return _conclude(know(sweep, rehearse), as_data, code)


def _again(
    cell: CellPlan, outcomes: Mapping[str, Outcome], kinds: Sequence[str]
) -> list[Trial]:
    """A mended model or data set gives its trials new ids; they stand in the failed ones' slots."""
    spoiled = {
        outcome.trial.slot: outcome.kind
        for outcome in outcomes.values()
        if outcome.status in (Status.FAILED, Status.KILLED) and outcome.trial.cell == cell.cell
    }
    broken = cell.hold.kind if cell.hold else None
    if broken is None and spoiled.keys() & {trial.slot for trial in cell.having("todo")}:
        # The rest of a cell whose hold was of the broken revision.
        broken = next((kind for kind in spoiled.values() if kind in HOLDING), None)
    chosen = []
    for trial in cell.having("failed", "held", "todo"):
        kind = spoiled.get(trial.slot, broken)
        if kind is not None and (not kinds or kind in kinds):
            chosen.append(trial)
    return chosen


def _run(
    known: Known,
    trials: Sequence[Trial],
    workers: int | None,
    address: str | None,
    **options: Any,
) -> int:
    """Exit code of the session alone: 0, or 130 when it was interrupted."""
    return 0


def _conclude(known: Known, as_data: bool, code: int) -> int:
    counts = known.plan.counts
    say(as_data, _status(known), _status_line(known))
    return code or (FAILED if counts["known"] < counts["trials"] else 0)


@verbs.command()
@on_sweep
def status(sweep: Path, rehearse: bool, as_data: bool) -> None:
    """Where the sweep stands, cell by cell."""
    known = know(sweep, rehearse)
    content = _status(known)
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
    say(as_data, content, table("", header, rows), _status_line(known))


def _status(known: Known) -> dict[str, Any]:
    mine = [outcome for cell in known.plan.cells for outcome in cell.outcomes.values()]
    running = sum(outcome.status is Status.RUNNING for outcome in mine)
    pruned = sum(outcome.status is Status.PRUNED for outcome in mine)
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


def _status_line(known: Known) -> str:
    counts = _status(known)["counts"]
    parts = [f"{count} {state}" for state, count in counts.items() if count]
    return f"\n{known.sweep.name}: " + ", ".join(parts)


@verbs.command()
@on_sweep
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
        (each["trial"], each["model"], each["dataset"], each["kind"], str(each["attempts"]),
         each["error"])
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
    return planned + confirming


def _failure(outcome: Outcome) -> dict[str, Any]:
    return {
        "trial": outcome.trial.id,
        "model": outcome.trial.model,
        "dataset": outcome.trial.dataset,
        "kind": outcome.kind,
        "error": outcome.error,
        "attempts": outcome.attempt,
    }


@verbs.command()
@on_sweep
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
    say(as_data, {"winners": chosen}, table("", header, rows), line)


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


@verbs.command()
@on_sweep
@on_cluster
@click.option("--incomplete", is_flag=True, help="Also confirm cells with trials missing.")
@click.option("--reopen", metavar="REASON", help="Open a test split again for another winner.")
def confirm(
    sweep: Path,
    rehearse: bool,
    as_data: bool,
    workers: int | None,
    address: str | None,
    incomplete: bool,
    reopen: str | None,
) -> int:
    """Train the winners again and look at the test split, once."""
    known = know(sweep, rehearse)
    todo = _confirmable(known, incomplete, reopen)
    code = _run(known, todo.todo, workers, address, reopen=reopen or "")
    known = know(sweep, rehearse)
    done = _confirmation(known)
    found = [opening_record(outcome) for outcome in done.done]
    keys = ("model", "dataset", "seed", "trial", "validation", "test", "metric", "n", "opened_at")
    content = [{key: getattr(each, key) for key in keys} for each in found]
    header = ("model", "data set", "seed", "metric", "validation", "test", "n", "opened")
    rows = [
        (
            each.model,
            each.dataset,
            str(each.seed),
            each.metric,
            number(each.validation),
            number(each.test),
            str(each.n),
            each.opened_at,
        )
        for each in found
    ]
    line = f"\n{len(todo.todo)} trials were to be confirmed, {len(todo.done)} had been before"
    say(as_data, {"openings": content}, table("", header, rows), line)
    return code or (FAILED if done.todo else 0)


def _confirmation(known: Known) -> selection.Confirmation:
    return selection.confirmation(
        known.winners, known.sweep.name, known.sweep.confirm.seeds, known.outcomes
    )


def _confirmable(known: Known, incomplete: bool, reopen: str | None) -> selection.Confirmation:
    """Raises UserError where confirming now would not be honest."""
    if not known.winners:
        raise UserError("no cell has a score yet", hint="run `tabiflow sweep` first")
    chosen = {winner.cell: winner for winner in known.winners}
    unfinished = [cell for cell in known.plan.cells if not cell.complete]
    if unfinished and not incomplete:
        first = unfinished[0]
        raise UserError(
            f"{len(unfinished)} cells are incomplete, the first is {first.model.name} x "
            f"{first.dataset.name}: another configuration may yet win",
            hint="finish the sweep, or confirm with --incomplete",
        )
    found = _confirmation(known)
    if found.conflicts and not reopen:
        cell = next(iter(found.conflicts))
        before = found.conflicts[cell][0]
        raise UserError(
            f"the test split of {cell.dataset} was opened for another configuration of "
            f"{cell.model} ({before.trial.id}; now {chosen[cell].trial.id} wins)",
            hint='say why it may be opened again: --reopen "REASON"',
        )
    return found


@verbs.command(name="report")
@on_sweep
@click.option("-o", "folder", type=click.Path(path_type=Path), help="Write the tables here.")
def report_verb(sweep: Path, rehearse: bool, as_data: bool, folder: Path | None) -> None:
    """Test scores, averages, winners, openings."""
    known = know(sweep, rehearse)
    made = report(known.plan, known.winners, known.outcomes)
    files = write(made, folder) if folder else []
    tables = [table(title, header, rows) for title, header, rows in sections(made) if rows]
    spaced = [each for one in tables for each in (one, "")]
    say(as_data, as_json(made), *spaced, *(f"wrote {file}" for file in files))


@verbs.command()
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


@verbs.command(name="list")
@click.argument("what", type=click.Choice(["models", "datasets"]), required=False)
@click.option("--json", "as_data", is_flag=True, help="One JSON object on stdout.")
def list_verb(what: str | None, as_data: bool) -> None:
    """The models and data sets that a sweep can name, with their tags."""
    content: dict[str, Any] = {}
    tables: list[Table | str] = []
    if what != "datasets":
        content["models"] = [row.model_dump(mode="json", exclude_defaults=True) for row in MODELS]
        rows = [(m.name, m.title, str(m.hub or m.build), ", ".join(m.tags)) for m in MODELS]
        tables += [table("models", ("name", "title", "from", "tags"), rows), ""]
    if what != "models":
        content["datasets"] = [
            row.model_dump(mode="json", exclude_defaults=True) for row in DATASETS
        ]
        found = [(d.name, d.task, d.group, str(d.hub or d.build), ", ".join(d.tags)) for d in DATASETS]
        tables.append(table("data sets", ("name", "task", "category", "from", "tags"), found))
    say(as_data, content, *tables)


@verbs.command()
@click.option("--port", type=int, default=5000, show_default=True)
@click.option("--json", "as_data", is_flag=True, help="Only say where, as JSON; start nothing.")
def ui(port: int, as_data: bool) -> None:
    """Open the ledger in MLflow's web pages, on this machine only."""
    if as_data:
        say(True, {"ledger": ledger.shown_address(), "url": f"http://127.0.0.1:{port}"})
        return
    ledger.serve_ui(port)


@verbs.command()
@click.option("--json", "as_data", is_flag=True, help="One JSON object on stdout.")
def doctor(as_data: bool) -> int:
    """Is this machine fit? Versions, device, ledger, disk, hub."""
    from tabiflow.doctor import examine

    found = list(examine())
    marks = {"ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "fault": "[red]fault[/]"}
    rows = [(each.subject, marks[each.state], each.detail, each.advice) for each in found]
    faults = sum(each.state == "fault" for each in found)
    content = {"findings": [vars(each) for each in found], "faults": faults}
    say(as_data, content, table("", ("what", "state", "detail", "advice"), rows))
    return FAILED if faults else 0

"""The verbs that run trials: sweep, resubmit, confirm."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tabiflow import selection
from tabiflow.cli.common import FAILED, Known, know, on_cluster, on_sweep, say, table
from tabiflow.cli.read import status_content, status_line
from tabiflow.errors import UserError
from tabiflow.plan import CellPlan
from tabiflow.report.content import opening_record
from tabiflow.report.render import number
from tabiflow.trial import HOLDING, Outcome, Status, Trial


@click.command()
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


@click.command()
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


def _again(cell: CellPlan, outcomes: Mapping[str, Outcome], kinds: Sequence[str]) -> list[Trial]:
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
    say(as_data, status_content(known), status_line(known))
    return code or (FAILED if counts["known"] < counts["trials"] else 0)


@click.command()
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

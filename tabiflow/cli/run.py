"""The verbs that run trials: sweep, resubmit, confirm."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import click
from rich.table import Table

from tabiflow import ledger, provenance, selection
from tabiflow.board import Progress, board
from tabiflow.cli.away import anywhere
from tabiflow.cli.common import (
    FAILED,
    INTERRUPTED,
    Known,
    err,
    know,
    on_cluster,
    on_sweep,
    say,
    table,
)
from tabiflow.cli.read import status_content, status_line
from tabiflow.errors import UserError
from tabiflow.report.content import opening_record
from tabiflow.report.render import number
from tabiflow.trial import FailureKind, Opening, Outcome, Trial
from tabiflow.work import Work, confirming, missing, spoiled

KINDS_OF_FAILURE = get_args(FailureKind)


@dataclass(frozen=True)
class Session:
    """How trials are run: the options that the running verbs share."""

    file: Path
    rehearse: bool
    workers: int | None
    address: str | None

    def know(self, *, check: bool = False) -> Known:
        return know(self.file, self.rehearse, check=check)

    @property
    def command(self) -> str:
        """What was typed, but for the options that say how."""
        verb = click.get_current_context().command_path
        return f"{verb} {self.file}" + (" --rehearse" if self.rehearse else "")

    def run(self, choose: Callable[[Known], Sequence[Work]], *, release: bool = False) -> bool:
        """Runs what `choose` finds missing; True when it was interrupted."""
        known = self.know(check=True)
        work = choose(known)
        if not work:
            return False
        # Nothing above needs Ray, and the verb above may end without it.
        from tabiflow.engine import Options, ready, run

        options = Options(workers=self.workers, address=self.address)
        name = known.sweep.name
        book = ledger.open_ledger()
        facts = provenance.facts()
        book.prepare()
        with ready(work, known.sweep, options), book.recorder(name, facts) as recorder:
            # What a dead driver left behind is in order only now.
            known = self.know()
            work = choose(known)
            if release:
                for each in work:
                    recorder.release(each.cell.cell)
            with board(Progress.of(known.plan, work), err) as listener:
                summary = run(
                    work,
                    known.sweep,
                    recorder,
                    known.outcomes,
                    curves=_curves(book, known),
                    listener=listener,
                    options=options,
                )
        if summary.stopped:
            line = f"stopped: {summary.stopped}; `{self.command}` goes on"
            err.print(line, highlight=False, soft_wrap=True)
        return summary.interrupted


def _curves(book: ledger.Ledger, known: Known) -> Mapping[str, list[tuple[int, float]]]:
    """Only a pruning sweep compares epochs with earlier trials'."""
    if known.sweep.pruning is None:
        return {}
    mine = (each for cell in known.plan.cells for each in cell.outcomes.values())
    return book.curves([outcome.run_id for outcome in mine])


@click.command()
@on_sweep
@on_cluster
@anywhere(as_job=True)
def sweep(
    sweep: Path, rehearse: bool, as_data: bool, workers: int | None, address: str | None
) -> int:
    """Run what is missing. Running it again runs nothing twice."""
    session = Session(sweep, rehearse, workers, address)
    interrupted = session.run(lambda known: missing(known.plan))
    known = session.know()
    if known.sweep.winners_of is not None:
        say(as_data, status_content(known), _nothing_to_train(known, sweep))
        return 0
    return _conclude(known, as_data, interrupted)


def _nothing_to_train(known: Known, file: Path) -> str:
    return f"{known.sweep.name} has confirming trials only: `tabiflow confirm {file}` runs them"


@click.command()
@on_sweep
@on_cluster
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(KINDS_OF_FAILURE), help="Only these."
)
@anywhere(as_job=True)
def resubmit(
    sweep: Path,
    rehearse: bool,
    as_data: bool,
    workers: int | None,
    address: str | None,
    kinds: tuple[str, ...],
) -> int:
    """Run failed, held and killed trials again."""
    session = Session(sweep, rehearse, workers, address)
    interrupted = session.run(lambda known: _spoiled(known, kinds), release=True)
    return _conclude(session.know(), as_data, interrupted)


def _spoiled(known: Known, kinds: Sequence[str]) -> tuple[Work, ...]:
    work = spoiled(known.plan, known.outcomes, kinds)
    if known.sweep.winners_of is None:
        return work
    refused = _confirmation(known).conflicts
    return tuple(
        replace(each, openings=_openings(each.trials))
        for each in work
        if each.cell.cell not in refused
    )


def _conclude(known: Known, as_data: bool, interrupted: bool) -> int:
    say(as_data, status_content(known), status_line(known))
    if interrupted:
        return INTERRUPTED
    counts = known.plan.counts
    if known.sweep.winners_of is not None:
        return FAILED if counts["failed"] or counts["held"] else 0
    return FAILED if counts["known"] < counts["trials"] else 0


@click.command()
@on_sweep
@on_cluster
@click.option("--incomplete", is_flag=True, help="Also confirm cells with trials missing.")
@click.option("--reopen", metavar="REASON", help="Open a test split again for another winner.")
@anywhere(as_job=True)
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
    session = Session(sweep, rehearse, workers, address)
    before = _confirmation(session.know())
    interrupted = session.run(lambda known: _confirming(known, incomplete, reopen))
    known = session.know()
    after, name = _confirmation(known), known.sweep.name
    content = [_opened(outcome, name) for outcome in after.done]
    line = _confirmed_line(before, after, name)
    undefined = selection.undefined(known.plan)
    told = [f"left out: {each.model} x {each.dataset}: {UNDEFINED}" for each in undefined]
    left_out = [each._asdict() for each in undefined]
    whole = {"openings": content, "left_out": left_out}
    say(as_data, whole, _openings_table(content), line, *told)
    if interrupted:
        return INTERRUPTED
    return FAILED if after.todo or undefined else 0


UNDEFINED = "no trial has a defined score: validation labels are constant or too few"


OPENING_KEYS = (
    *("model", "dataset", "seed", "trial", "validation", "test", "metric", "n", "opened_at"),
)


def _opened(outcome: Outcome, sweep: str) -> dict[str, Any]:
    record = opening_record(outcome)
    fields = {key: getattr(record, key) for key in OPENING_KEYS}
    return {**fields, "sweep": outcome.sweep, "reused": outcome.sweep != sweep}


def _openings_table(found: Sequence[Mapping[str, Any]]) -> Table:
    header = ("model", "data set", "seed", "metric", "validation", "test", "n", "opened")
    rows = [
        (
            *(each["model"], each["dataset"], str(each["seed"]), each["metric"]),
            *(number(each["validation"]), number(each["test"]), str(each["n"])),
            each["opened_at"] + (f" by {each['sweep']}, reused" if each["reused"] else ""),
        )
        for each in found
    ]
    return table("", header, rows)


def _confirmed_line(
    before: selection.Confirmation, after: selection.Confirmation, sweep: str
) -> str:
    new = len(after.done) - len(before.done)
    reused = sorted({each.sweep for each in after.done} - {sweep})
    theirs = sum(each.sweep != sweep for each in after.done)
    told = f", {theirs} of them reused from {', '.join(reused)}" if reused else ""
    missing = f", {len(after.todo)} have no score" if after.todo else ""
    return f"\n{new} openings finished now, {len(before.done)} before{told}{missing}"


def _confirming(known: Known, incomplete: bool, reopen: str | None) -> tuple[Work, ...]:
    trials = _confirmable(known, incomplete, reopen).todo
    return confirming(known.plan, trials, _openings(trials, reopen or ""))


def _openings(trials: Sequence[Trial], reason: str = "") -> dict[str, Opening]:
    return {trial.id: provenance.opening(trial.id, reason) for trial in trials}


def _confirmation(known: Known) -> selection.Confirmation:
    return selection.confirmation(
        known.winners, known.sweep.name, known.sweep.confirm.seeds, known.outcomes
    )


def _confirmable(known: Known, incomplete: bool, reopen: str | None) -> selection.Confirmation:
    """Raises UserError where confirming now would not be honest."""
    if not known.winners:
        if known.plan.cells and all(cell.complete for cell in known.plan.cells):
            raise UserError(UNDEFINED, hint="`tabiflow audit` shows what the data hold")
        raise UserError(_nothing_won(known), hint=_first_of_all(known))
    chosen = {winner.cell: winner for winner in known.winners}
    unfinished = [cell for cell in known.plan.cells if not cell.decided]
    if unfinished and not incomplete:
        first = unfinished[0]
        raise UserError(
            f"{len(unfinished)} cells are incomplete, the first is {first.model.name} x "
            f"{first.dataset.name}: {first.awaits or 'another configuration may yet win'}",
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


def _nothing_won(known: Known) -> str:
    waiting = next((cell for cell in known.plan.cells if cell.awaits), None)
    if waiting is None:
        return "no cell has a score yet"
    first = f"{waiting.model.name} x {waiting.dataset.name}"
    return f"no cell has a winner to take; of {first}: {waiting.awaits}"


def _first_of_all(known: Known) -> str:
    named = known.sweep.winners_of
    return f"run `tabiflow sweep{f' {named.sweep.source.file}' if named else ''}` first"

"""What the verbs share: reading a sweep with what is known of it, and saying things."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tabiflow import data, ledger, selection
from tabiflow.plan import Plan
from tabiflow.registry import Grid, resolve
from tabiflow.report.render import dumps
from tabiflow.runners import metrics
from tabiflow.spec import Sweep
from tabiflow.trial import Outcome

FAILED, MISTAKE, INTERRUPTED = 3, 2, 130
err = Console(stderr=True)
PIPE_WIDTH = 200
"""Columns of a table that no terminal limits."""


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


def know(file: Path, rehearse: bool, *, check: bool = True) -> Known:
    """Reads the sweep; `check` also its local data, before anything is started or written."""
    sweep = Sweep.read(file, rehearse=rehearse)
    grid = resolve(sweep)
    if check and sweep.runner == "finetune":
        metrics.check(sweep.metrics, list(dict.fromkeys(each.task for each in grid.datasets)))
        for dataset in grid.datasets:
            data.check(dataset, grid.places[dataset.name])
    if not ledger.exists():
        return Known(sweep, grid, selection.planned(sweep, grid), {})
    book = ledger.open_ledger()
    outcomes = book.outcomes()
    plan = selection.planned(sweep, grid, outcomes, book.holds(sweep.name))
    return Known(sweep, grid, plan, outcomes)


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
    out = Console()
    if not out.is_terminal:
        out = Console(width=PIPE_WIDTH)
    for each in tables:
        out.print(each, highlight=False, markup=False, soft_wrap=isinstance(each, str))


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    made = Table(*header, title=title or None, box=None, pad_edge=False, title_justify="left")
    for row in rows:
        made.add_row(*row)
    return made

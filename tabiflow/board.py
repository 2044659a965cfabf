"""What a person sees while a sweep runs: a live board on a terminal, plain lines elsewhere.

Counts and estimates come from `Progress`, which the engine's events feed; drawing changes nothing.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tabiflow.ledger import Ending, Failure, Killed, Pruned
from tabiflow.plan import CellPlan, Plan
from tabiflow.spec import label
from tabiflow.spent import Spent
from tabiflow.trial import Cell, Epoch, Hold, Result, Trial
from tabiflow.work import Work

log = logging.getLogger(__name__)

SHOWN_RUNNING = 8


@dataclass
class CellProgress:
    """One square of the board."""

    size: int
    done: int = 0
    failed: int = 0
    held: int = 0
    waiting: int = 0
    """Trials of this session that have no end yet, running ones included."""
    running: int = 0
    best: float = math.nan

    def score(self, score: float) -> None:
        if not math.isnan(score) and not self.best >= score:
            self.best = score


@dataclass
class Running:
    trial: Trial
    attempt: int
    epoch: int = 0
    score: float = math.nan


@dataclass
class Progress:
    """The sweep so far. Fed by the engine's events on the driver, one thread."""

    cells: dict[Cell, CellProgress]
    varying: Mapping[Cell, Sequence[str]]
    """The settings in which a cell's trials differ."""
    running: dict[str, Running] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    """Failures of this session by kind."""
    ended: int = 0
    spent: Spent = field(default_factory=Spent)
    """Of the trials that ended in this session."""
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, plan: Plan, work: Sequence[Work]) -> "Progress":
        """Of all cells of the plan; while winners are confirmed, of those alone."""
        by_cell = {each.cell.cell: each for each in work}
        if any(each.openings for each in work):
            cells = {cell: _confirming(each) for cell, each in by_cell.items()}
        else:
            cells = {each.cell: _square(each, by_cell.get(each.cell)) for each in plan.cells}
        return cls(cells, {each.cell.cell: each.cell.varying for each in work})

    def name(self, trial: Trial) -> str:
        """What differs in it; of a sampled trial too, which nobody knew before it was drawn."""
        if trial.params is None:
            return str(trial.runner["asks"])
        varying = self.varying.get(trial.cell, ())
        return label(trial.point(varying), varying)

    def start(self, trial: Trial, attempt: int) -> None:
        self.running[trial.id] = Running(trial, attempt)
        square = self.cells[trial.cell]
        square.running += 1
        if square.running > square.waiting:
            # It was on its way to a worker when the rest of its cell was held.
            square.held, square.waiting = square.held - 1, square.waiting + 1

    def epoch(self, trial: Trial, epoch: Epoch) -> None:
        running = self.running.get(trial.id)
        if running is not None:
            running.epoch, running.score = epoch.epoch, epoch.score

    def end(self, trial: Trial, ending: Ending) -> None:
        square = self.cells[trial.cell]
        if self.running.pop(trial.id, None) is not None:
            square.running -= 1
        if isinstance(ending, Killed):
            return
        self.ended += 1
        square.waiting -= 1
        if isinstance(ending, Failure):
            square.failed += 1
            self.kinds[ending.kind] += 1
        else:
            square.done += 1
            square.score(_score(ending)[1])
        if isinstance(ending, Result):
            self.spent += Spent.of(ending.facts) or Spent()

    def hold(self, cell: Cell) -> None:
        square = self.cells[cell]
        square.held += square.waiting - square.running
        square.waiting = square.running

    @property
    def left(self) -> int:
        return sum(square.waiting for square in self.cells.values())

    def seconds_left(self) -> float:
        """At the pace of this session; NaN before a trial has ended."""
        if self.ended == 0:
            return math.nan
        return (time.monotonic() - self.began) / self.ended * self.left


def _square(cell: CellPlan, work: Work | None) -> CellProgress:
    """What the session runs again is no longer failed or held."""
    again = Counter(cell.state(trial) for trial in work.trials) if work else Counter()
    samples = work.samples if work else 0
    held = len(cell.having("held")) + cell.to_come - cell.drawable
    square = CellProgress(
        size=len(cell.distinct) + cell.to_come,
        done=len(cell.having("known")),
        failed=len(cell.having("failed")) - again["failed"],
        held=max(0, held - again["held"] - samples),
        waiting=again.total() + samples,
    )
    for outcome in cell.outcomes.values():
        if outcome.finished:
            square.score(outcome.score)
    return square


def _confirming(work: Work) -> CellProgress:
    return CellProgress(size=len(work.trials), waiting=len(work.trials))


def shown(number: float, form: str = ".2f") -> str:
    """A number for people; unknown is a dash."""
    return "–" if math.isnan(number) else format(number, form)


def duration(seconds: float) -> str:
    """`1 h 05 min`, `3 min 20 s`, `12 s`; unknown is a dash."""
    if math.isnan(seconds):
        return "–"
    hours, rest = divmod(round(seconds), 3600)
    minutes, left = divmod(rest, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {left:02d} s" if minutes else f"{left} s"


class PlainLog:
    """One line an end of a trial, for logs and pipes."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def on_start(self, trial: Trial, attempt: int) -> None:
        self._progress.start(trial, attempt)

    def on_epoch(self, trial: Trial, epoch: Epoch) -> None:
        self._progress.epoch(trial, epoch)

    def on_end(self, trial: Trial, ending: Ending) -> None:
        self._progress.end(trial, ending)
        log.info(
            "%s x %s [%s] %s; %d left, %s",
            *(trial.model, trial.dataset, self._progress.name(trial), _told(ending)),
            *(self._progress.left, duration(self._progress.seconds_left())),
        )

    def on_hold(self, hold: Hold) -> None:
        self._progress.hold(hold.cell)
        log.warning("held %s x %s: %s: %s", *hold.cell, hold.kind, hold.error)


def _told(ending: Ending) -> str:
    if isinstance(ending, Killed):
        return f"interrupted: {ending.cause}"
    if isinstance(ending, Failure):
        return f"{ending.kind}: {ending.error}"
    split, score = _score(ending)
    return f"{split} {shown(score)}"


def _score(ending: Result | Pruned) -> tuple[str, float]:
    """Of validation; of test where there is no other, as of a task that nothing is chosen by."""
    if isinstance(ending, Result) and ending.n and math.isnan(ending.score):
        return "test", ending.test
    return "validation", ending.score


class Board(PlainLog):
    """The same events, drawn as a table that stays in place."""

    def on_end(self, trial: Trial, ending: Ending) -> None:
        self._progress.end(trial, ending)

    def on_hold(self, hold: Hold) -> None:
        self._progress.hold(hold.cell)

    def __rich__(self) -> Group:
        return Group(
            _matrix(self._progress),
            _footer(self._progress),
            *_running(self._progress),
        )


def _matrix(progress: Progress) -> Table:
    table = Table(box=None, pad_edge=False, title_justify="left")
    models = list(dict.fromkeys(cell.model for cell in progress.cells))
    table.add_column("")
    for model in models:
        table.add_column(model, justify="right")
    for dataset in dict.fromkeys(cell.dataset for cell in progress.cells):
        squares = (progress.cells.get(Cell(model, dataset)) for model in models)
        table.add_row(dataset, *(_drawn(square) for square in squares))
    return table


def _drawn(square: CellProgress | None) -> Text:
    if square is None:
        return Text("–")
    text = Text(f"{square.done}/{square.size}", style="" if square.waiting else "green")
    text.append(f" +{square.running}" if square.running else "", style="cyan")
    text.append(f" {square.failed} failed" if square.failed else "", style="red")
    text.append(f" {square.held} held" if square.held else "", style="yellow")
    text.append(f"  {shown(square.best)}", style="bold")
    return text


def _footer(progress: Progress) -> Text:
    kinds = ", ".join(f"{count} {kind}" for kind, count in progress.kinds.most_common()) or "none"
    left = duration(progress.seconds_left())
    useful = shown(progress.spent.useful, ".0%")
    return Text(
        f"\n{progress.left} trials left, about {left}; useful steps: {useful}; failures: {kinds}"
    )


def _running(progress: Progress) -> Iterator[Text]:
    for running in list(progress.running.values())[:SHOWN_RUNNING]:
        trial = running.trial
        name = progress.name(trial)
        line = f"  {trial.model} x {trial.dataset} [{name}] epoch {running.epoch}"
        yield Text(f"{line}, validation {shown(running.score)}", style="dim")


@contextmanager
def board(progress: Progress, console: Console) -> Iterator[PlainLog]:
    """A listener for the engine: drawn on a terminal, logged elsewhere."""
    if not console.is_terminal:
        yield PlainLog(progress)
        return
    listener = Board(progress)
    with Live(listener, console=console, refresh_per_second=2, transient=False):
        yield listener

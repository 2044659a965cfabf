"""What is known: the record of every trial, kept in MLflow.

This page is what the rest of tabiflow sees: where the ledger is, how to open it, and the two
protocols. It imports no MLflow, so that `tabiflow plan` answers at once where no ledger exists.

An experiment is a sweep, a parent run a cell, a child run an attempt of a trial. MLflow is the only
record; beside it stands the writer's write-ahead log until MLflow has everything in it.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tabiflow.redaction import redacted as redacted
from tabiflow.trial import (
    Cell,
    Epoch,
    FailureKind,
    Hold,
    Opening,
    Outcome,
    Result,
    Trial,
)


@dataclass(frozen=True)
class Failure:
    """An attempt that ended by its own fault: status `failed`."""

    kind: FailureKind
    error: str
    """One line; longer text is cut."""
    traceback: str = ""
    """Its end, for whoever must mend a bug; empty where nothing was raised."""


@dataclass(frozen=True)
class Killed:
    """An attempt that was interrupted from outside: status `killed`, run again by `sweep`."""

    cause: str


@dataclass(frozen=True)
class Pruned:
    """An attempt that a scheduler cut short: status `pruned`, not run again."""

    epoch: int
    """The best epoch before the cut."""
    score: float


Ending = Result | Failure | Killed | Pruned


class Recorder(Protocol):
    """The one writer of a sweep, on the driver.

    Every call appends to the write-ahead log and returns; a thread brings MLflow up to date,
    through outages of the server too. All calls may come from any thread. Each raises LeaseHeld
    once another driver has taken the sweep over.
    """

    @property
    def id(self) -> str:
        """Fit for a file's name; another in every ledger, and for every sweep in one."""

    def cell(
        self, cell: Cell, category: str, metric: str, facts: Mapping[str, str] | None = None
    ) -> None:
        """Opens the cell's parent run, the same one at every start. Before its first trial.

        `facts` become tags of each of its trials: model and data revisions and commits.
        """

    def start(
        self, trial: Trial, attempt: int, label: str, tags: Mapping[str, str] | None = None
    ) -> None:
        """An attempt begins: 1 for the first, one more than the ledger's latest after that.

        From now on reports of the trial's earlier attempts are refused, and its earlier failed or
        killed runs, like those of the same slot in this sweep, become `retried`.
        """

    def open_test(
        self,
        trial: Trial,
        attempt: int,
        label: str,
        opening: Opening,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """`start` for an attempt that may read the test split.

        Returns only when MLflow holds the opening, which may take as long as the server is away;
        raises LedgerError after ten minutes: then the split must not be read.
        """

    def epoch(self, trial_id: str, attempt: int, epoch: Epoch) -> bool:
        """False for what must not count: another attempt than the latest, an epoch told before.

        A resumed attempt tells its earlier epochs again first: its run then stands for itself.
        """

    def finish(self, trial_id: str, attempt: int, ending: Ending) -> bool:
        """False, like `epoch`, when the attempt is not the latest or has already ended."""

    def hold(self, hold: Hold) -> None:
        """The rest of the cell is not to be run."""

    def release(self, cell: Cell) -> None:
        """Takes the cell's hold back; nothing happens where there is none."""

    def flush(self, timeout: float = 60.0) -> bool:
        """Waits until MLflow has everything told so far; False when it took too long."""


class Ledger(Protocol):
    """What may be read, and the way to a Recorder."""

    @property
    def address(self) -> str:
        """For people: without user and password."""

    def outcomes(self) -> dict[str, Outcome]:
        """By trial id, over all experiments: a finished attempt if there is one, or the latest."""

    def holds(self, sweep: str) -> tuple[Hold, ...]:
        """Of the sweep's cells; empty where the sweep has no experiment yet."""

    def openings(self) -> dict[str, Opening]:
        """By confirming trial id, over all experiments: the first time its attempts looked."""

    def curves(self, run_ids: Iterable[str]) -> dict[str, list[tuple[int, float]]]:
        """(epoch, validation score) of each run, in order."""

    def predictions(self, run_ids: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
        """`{row, prediction, reference}` of each test item; runs without them are left out."""

    def prepare(self) -> None:
        """Starts what a recorder takes seconds for, and writes nothing; returns at once."""

    def recorder(
        self, sweep: str, facts: Mapping[str, str] | None = None
    ) -> AbstractContextManager[Recorder]:
        """Takes the sweep's lease and leaves the record in order before the block begins.

        What a dead driver still had in its write-ahead log is written first, then runs that no
        driver works on are closed as killed: read `outcomes` inside the block, or again.
        `facts` become tags of every run: `code_commit`, versions. Raises LeaseHeld.
        """


def address() -> str:
    """`MLFLOW_TRACKING_URI`, or a SQLite file under the current directory."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home() / 'mlflow.db'}"


def shown_address(uri: str | None = None) -> str:
    """For people: without user and password."""
    return redacted(uri or address())


def home() -> Path:
    """Where tabiflow keeps what it makes: `TABIFLOW_HOME`, or below the current directory."""
    named = os.environ.get("TABIFLOW_HOME")
    return Path(named).expanduser().absolute() if named else Path.cwd() / ".tabiflow"


def exists(uri: str | None = None) -> bool:
    """Whether anything may have been recorded. Cheap; a server is not asked."""
    file = sqlite_file(uri or address())
    # What is no file is no ledger either, which `open_ledger` says.
    return file is None or (file.exists() and (not file.is_file() or file.stat().st_size > 0))


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite address, None for any other."""
    prefix = "sqlite:///"
    if not uri.startswith(prefix):
        return None
    return Path(uri.removeprefix(prefix).partition("?")[0]).absolute()


def open_ledger(uri: str | None = None) -> Ledger:
    """Writes nothing yet: a SQLite ledger that does not exist is made by its first recorder.

    Raises LedgerError, in seconds, when it cannot be reached or read, or could not be made.
    """
    from tabiflow.ledger.store import Store

    return Store.open(uri or address())

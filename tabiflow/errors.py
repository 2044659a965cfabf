"""What can go wrong, named by the scope it spoils: the command, one cell, or one trial.

    TabiflowError
    ├── UserError              the command: one line, exit code 2
    │   ├── SpecError          a sweep or space file is wrong
    │   ├── SealError          a test split was asked for without an opening
    │   ├── LedgerError        the ledger cannot be read or written
    │   └── LeaseHeld          another driver runs this sweep
    ├── CellError              one model or data set: its trials cannot work
    │   ├── DataError
    │   └── ModelError
    └── TrialError             one attempt of one trial
        ├── Diverged
        ├── TimedOut
        ├── Superseded         a later attempt of the trial has begun
        ├── Interrupted        asked to stop between two epochs
        └── EnvironmentFault   disk, hub or storage; worth trying again later

Which kind of failure an exception of another library is, `tabiflow.runners.failures` decides.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class TabiflowError(Exception):
    """The root: every error that tabiflow raises on purpose."""

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        """`where` is `file:line` or a file; `hint` says what to do about it."""
        self.message, self.where, self.hint = message, where, hint
        super().__init__(message, where, hint)

    def __str__(self) -> str:
        line = f"{self.where}: {self.message}" if self.where else self.message
        # Messages quote what others wrote, which may hold line breaks.
        return " ".join((f"{line}; {self.hint}" if self.hint else line).splitlines())

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process borders; the default would lose the keywords.
        return (_rebuild, (type(self), self.message, self.where, self.hint))


def _rebuild(
    kind: type[TabiflowError], message: str, where: str | None, hint: str | None
) -> TabiflowError:
    return kind(message, where=where, hint=hint)


class UserError(TabiflowError):
    """The user can mend it; printed as one line."""


class SpecError(UserError):
    """A sweep or space file does not say what it must."""


class SealError(UserError):
    """The test split was asked for without a recorded opening."""


class LedgerError(UserError):
    """The ledger cannot be read or written."""


class LeaseHeld(UserError):
    """Another live driver holds the sweep."""


class CellError(TabiflowError):
    """Spoils every trial of a cell."""


class DataError(CellError):
    """A data set cannot be read, or does not hold what its row says."""


class ModelError(CellError):
    """A model cannot be loaded, or is not what its row says."""


class TrialError(TabiflowError):
    """Spoils one attempt only."""


class Diverged(TrialError):
    """The loss is no longer a finite number."""


class TimedOut(TrialError):
    """A trial took longer than the sweep allows."""


class Superseded(TrialError):
    """A later attempt of the trial has begun: this one was taken for lost."""


class Interrupted(TrialError):
    """The trial is to stop where it is, between two epochs, and to be gone on with later."""


class EnvironmentFault(TrialError):
    """Disk, hub or storage failed; the trial itself is not at fault."""


def near(name: str, known: Iterable[str]) -> str | None:
    """`did you mean ...?` for the closest known name in any case, None when nothing is close."""
    lowered = {each.lower(): each for each in known}
    matches = get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    return f"did you mean `{lowered[matches[0]]}`?" if matches else None

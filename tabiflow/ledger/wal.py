"""The write-ahead log: what the recorder was told and MLflow may not have yet, in JSON lines.

A log belongs to one driver. It is emptied whenever MLflow has caught up and deleted at the end;
what a dead driver leaves behind, the sweep's next driver replays. Knows nothing of MLflow.
"""

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tabiflow.errors import LedgerError
from tabiflow.trial import Cell, Status

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CellOpened:
    cell: Cell
    at: int
    """Milliseconds since 1970, like every `at`: a replayed point must equal the lost one."""


@dataclass(frozen=True)
class Started:
    trial: str
    attempt: int
    cell: Cell
    slot: str
    label: str
    tags: Mapping[str, str]
    params: Mapping[str, str]
    at: int


@dataclass(frozen=True)
class EpochTold:
    trial: str
    attempt: int
    epoch: int
    metrics: Mapping[str, float]
    at: int


@dataclass(frozen=True)
class Ended:
    trial: str
    attempt: int
    slot: str
    status: Status
    tags: Mapping[str, str]
    metrics: Mapping[str, float]
    at: int
    step: int = 0
    """Of the metrics: the kept epoch."""
    predictions: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class HoldSet:
    cell: Cell
    hold: str
    """`Hold.to_json()`; empty takes the hold back."""
    at: int


Event = CellOpened | Started | EpochTold | Ended | HoldSet
KINDS: Mapping[str, type[Event]] = {
    kind.__name__: kind for kind in (CellOpened, Started, EpochTold, Ended, HoldSet)
}
SYNC_SECONDS = 1.0
"""What a power failure may take, about as long as the writer lingers; nothing is lost when only the
driver dies, which the operating system outlives."""


def encoded(event: Event) -> bytes:
    fields = {"event": type(event).__name__, **asdict(event)}
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def decoded(line: bytes) -> Event:
    """Raises ValueError when the line is torn or of another version."""
    try:
        fields = json.loads(line)
        kind = KINDS[fields.pop("event")]
        if "cell" in fields:
            fields["cell"] = Cell(*fields["cell"])
        if "status" in fields:
            fields["status"] = Status(fields["status"])
            fields["predictions"] = tuple(fields["predictions"])
        return kind(**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an event: {line[:60]!r}") from error


@dataclass
class WriteAheadLog:
    """Append-only while in use. Not thread-safe: its owner holds a lock."""

    file: Path
    _descriptor: int = field(init=False, repr=False)
    _synced: float = field(init=False, repr=False, default=0.0)

    def __post_init__(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._descriptor = os.open(self.file, flags, mode=0o644)

    def append(self, event: Event) -> None:
        """Raises LedgerError when the disk does not take it."""
        line = encoded(event)
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
            if time.monotonic() - self._synced > SYNC_SECONDS:
                self.sync()
        except OSError as error:
            raise LedgerError(
                f"the write-ahead log cannot be written: {error.strerror}",
                where=str(self.file),
                hint="free the disk and start again; nothing recorded is lost",
            ) from error

    def sync(self) -> None:
        os.fsync(self._descriptor)
        self._synced = time.monotonic()

    def clear(self) -> None:
        """MLflow has everything."""
        os.ftruncate(self._descriptor, 0)

    def close(self) -> None:
        os.close(self._descriptor)


def read(file: Path) -> Iterator[Event]:
    """What a log holds. A line torn by a crash or a full disk is left out and logged."""
    for number, line in enumerate(file.read_bytes().splitlines(), start=1):
        try:
            yield decoded(line)
        except ValueError:
            log.warning("%s:%d: a torn line was left out", file, number)

"""Answers on disk while a task is asked: a line each, so that a killed driver loses none.

Once the ledger holds a task's answers its file is gone. One driver at a time has it.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tabiflow.errors import LeaseHeld

SYNC = 1.0
"""Seconds between two writes through to the disk; the system itself has every line at once."""


@dataclass(frozen=True)
class Reply:
    """What a server said to one item."""

    place: int
    """Of the item among those that the trial asks."""
    item: str
    """Its hash."""
    logprobs: tuple[float, ...] = ()
    """One an option: the sum over its tokens."""
    tokens: tuple[int, ...] = ()
    """As many as each option has."""
    text: str = ""
    """As it came, before any stop was looked for."""


class Store:
    """The open file of one trial. Lines come from one thread."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._synced = time.monotonic()
        self.replies = {each.place: each for each in _whole_lines(file)}

    def add(self, reply: Reply) -> None:
        line = json.dumps(asdict(reply), ensure_ascii=False, separators=(",", ":"))
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        self.replies[reply.place] = reply
        if time.monotonic() - self._synced > SYNC:
            self.sync()

    def sync(self) -> None:
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()


@contextmanager
def opened(folder: Path, trial: str) -> Iterator[Store]:
    """Raises LeaseHeld where another driver asks the same."""
    folder.mkdir(parents=True, exist_ok=True)
    with path(folder, trial).open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LeaseHeld(f"another driver asks {trial} just now") from error
        store = Store(file)
        try:
            yield store
        finally:
            store.sync()


def path(folder: Path, trial: str) -> Path:
    return folder / f"{trial}.jsonl"


def _whole_lines(file: BinaryIO) -> Iterator[Reply]:
    """A line that a crash has torn is cut off, so that the next one starts on its own."""
    file.seek(0)
    good = 0
    for line in file:
        try:
            reply = _reply(json.loads(line)) if line.endswith(b"\n") else None
        except (ValueError, TypeError):
            reply = None
        if reply is None:
            break
        good += len(line)
        yield reply
    file.truncate(good)
    file.seek(0, os.SEEK_END)


def _reply(found: dict[str, Any]) -> Reply:
    return Reply(**{**found, **{key: tuple(found[key]) for key in ("logprobs", "tokens")}})

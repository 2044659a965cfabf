"""The ledger as the rest of tabiflow uses it: quick reads, and the way to a recorder.

A SQLite file is read directly and a server over its REST API; MLflow's client is imported when it
is first needed.
"""

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from tabiflow.errors import LedgerError
from tabiflow.ledger import Recorder, home, records, redacted, sqlite, sqlite_file
from tabiflow.ledger.reach import explained, must_answer
from tabiflow.ledger.records import PREDICTIONS
from tabiflow.ledger.rest import Rest, plain
from tabiflow.trial import Hold, Opening, Outcome

if TYPE_CHECKING:
    from tabiflow.ledger.tracking import Tracking

SCORE = "validation_score"
IN_MEMORY = re.compile(r"sqlite(\+\w+)?:(//)?(/:memory:)?(\?.*)?")
"""SQLite's addresses of a database without a file."""
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # it would stand amid a verb's JSON
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # the recorder tries again itself
}
"""Settings of MLflow that it reads from nowhere else; what the user has set stays."""
LOGGED = {"mlflow.store.db.utils": logging.CRITICAL, "alembic": logging.WARNING}
"""MLflow logs what it also raises, traceback and all, and each migration of its tables."""


@dataclass(frozen=True)
class Store:
    """One address. Holds nothing that was read: every question is asked anew."""

    uri: str

    @classmethod
    def open(cls, uri: str) -> "Store":
        """Raises LedgerError when nothing could be read or written there."""
        if IN_MEMORY.fullmatch(uri):
            raise LedgerError(
                "a ledger in memory would be gone with the command",
                where=uri,
                hint="name a file or a server in MLFLOW_TRACKING_URI",
            )
        store, file = cls(uri), sqlite_file(uri)
        if file is None:
            must_answer(uri)
            if not plain(uri):
                _ = store.tracking
        else:
            sqlite.check(file)
            if not file.exists():
                _must_be_writable(file)
        return store

    @property
    def address(self) -> str:
        return redacted(self.uri)

    @property
    def folder(self) -> Path:
        """Where drivers keep their write-ahead logs."""
        file = sqlite_file(self.uri)
        return (home() if file is None else file.parent) / "wal"

    def prepare(self) -> None:
        _set_mlflow_up()
        Thread(target=_prepare, args=[sqlite_file(self.uri)], daemon=True).start()

    @cached_property
    def tracking(self) -> "Tracking":
        _set_mlflow_up()
        # MLflow takes seconds to import.
        from tabiflow.ledger.tracking import Tracking

        return Tracking(self.uri)

    def outcomes(self) -> dict[str, Outcome]:
        return records.latest(self._runs("trial"))

    def openings(self) -> dict[str, Opening]:
        return records.openings(self._runs("trial"))

    def holds(self, sweep: str) -> tuple[Hold, ...]:
        cells = (run for run in self._runs("cell", sweep) if run.sweep == sweep)
        return tuple(Hold.from_json(run.tags["hold"]) for run in cells if run.tags.get("hold"))

    def curves(self, run_ids: Iterable[str]) -> dict[str, list[tuple[int, float]]]:
        file = sqlite_file(self.uri)
        if file is not None:
            return sqlite.curves(file, run_ids, SCORE)
        if plain(self.uri):
            with explained(self.uri):
                return Rest(self.uri).curves(run_ids, SCORE)
        return {run_id: self.tracking.curve(run_id, SCORE) for run_id in run_ids}

    def predictions(self, run_ids: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
        asked, file = list(run_ids), sqlite_file(self.uri)
        places = {} if file is None else sqlite.artifacts(file, asked)
        read = {run_id: self._artifact(run_id, places.get(run_id)) for run_id in asked}
        return {run_id: self._parsed(run_id, text) for run_id, text in read.items() if text}

    def _parsed(self, run_id: str, text: str) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = json.loads(text)
        except json.JSONDecodeError as error:
            raise LedgerError(
                f"{PREDICTIONS} of run {run_id} cannot be read: {error}",
                where=self.address,
                hint="remove the artifact; the run then has no intervals",
            ) from error
        return found

    def _artifact(self, run_id: str, place: Path | None) -> str | None:
        if place is None:
            return self.tracking.artifact(run_id, PREDICTIONS)
        file = place / PREDICTIONS
        return file.read_text(encoding="utf-8") if file.is_file() else None

    @contextmanager
    def recorder(self, sweep: str, facts: Mapping[str, str] | None = None) -> Iterator[Recorder]:
        from tabiflow.ledger.recorder import recording

        file = sqlite_file(self.uri)
        if file is not None:
            _must_be_writable(file)
        with recording(self.tracking, self.folder, sweep, facts or {}) as recorder:
            yield recorder

    def _runs(self, kind: str, sweep: str | None = None) -> list[records.Run]:
        file = sqlite_file(self.uri)
        if file is not None:
            return sqlite.runs(file, kind)
        if plain(self.uri):
            with explained(self.uri):
                return Rest(self.uri).runs(kind, sweep)
        return self.tracking.runs(kind, sweep)


def _prepare(file: Path | None) -> None:
    import_module("tabiflow.ledger.recorder")
    if file is None or file.exists():
        return
    from tabiflow.ledger import newfile

    # Whoever needs them meets the same failure, and says it.
    with suppress(Exception):
        newfile.tables()


def _set_mlflow_up() -> None:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    for name, level in LOGGED.items():
        logging.getLogger(name).setLevel(level)


def _must_be_writable(file: Path) -> None:
    """Of a file that is not there yet, the folder that it would be made in."""
    place = file
    while not place.exists():
        place = place.parent
    needed = os.W_OK if place == file else os.W_OK | os.X_OK
    if (place != file and not place.is_dir()) or not os.access(place, needed):
        raise LedgerError(
            "the ledger cannot be written" if place == file else f"{place} cannot be written to",
            where=str(file),
            hint="mend its permissions, or name another place in MLFLOW_TRACKING_URI",
        )

"""The recorder of a sweep: what it is told goes to the write-ahead log first, then to MLflow.

This is the side that the engine calls; `Writer` is the side that talks to MLflow, on the thread of
a `Feed`. Replaying a dead driver's log is the same writer fed from a file.
"""

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tabiflow import spent
from tabiflow.errors import LeaseHeld, LedgerError
from tabiflow.ledger import Ending, Killed, records, redacted, sqlite_file, wal
from tabiflow.ledger.feed import BATCH, Feed
from tabiflow.ledger.lease import Holder, Lease
from tabiflow.ledger.reach import explained, reach
from tabiflow.ledger.records import STATUS_OF
from tabiflow.ledger.tracking import Tracking
from tabiflow.ledger.wal import CellOpened, Ended, EpochTold, Event, HoldSet, Started, WriteAheadLog
from tabiflow.ledger.writer import Writer
from tabiflow.trial import Cell, Epoch, Hold, Opening, Result, Trial

log = logging.getLogger(__name__)

GRACE_SECONDS = 300.0
"""How long the end of a sweep waits for a ledger that takes nothing: servers are away for minutes.
"""
OPENING_SECONDS = 600.0


@contextmanager
def recording(
    tracking: Tracking, folder: Path, sweep: str, facts: Mapping[str, str]
) -> Iterator["SweepRecorder"]:
    """See `Ledger.recorder`."""
    with explained(tracking.uri):
        experiment = tracking.open_experiment(sweep, _artifacts(tracking.uri))
        # Not by its address, which may have several spellings.
        stem = f"{sweep}-{experiment}-{tracking.created(experiment)}"
        lock = folder / f"{stem}.lock" if sqlite_file(tracking.uri) else None
        lease = Lease(sweep, _LeaseTag(tracking, experiment), lock)
        folder.mkdir(parents=True, exist_ok=True)
        lease.take()
    try:
        with explained(tracking.uri):
            writer = Writer(tracking, experiment)
            _put_in_order(writer, folder, stem, lease.taken_from)
        recorder = SweepRecorder(stem, writer, lease, folder, facts)
        try:
            yield recorder
        except BaseException as error:
            recorder.close(f"the sweep was stopped: {type(error).__name__}")
            raise
        recorder.close("the sweep ended before the trial did")
        _summarise(tracking, experiment, recorder.told)
    finally:
        _release(lease)


def _artifacts(uri: str) -> str | None:
    """Beside a SQLite file; a server has a place of its own."""
    file = sqlite_file(uri)
    return None if file is None else (file.parent / "artifacts").as_uri()


def _summarise(tracking: Tracking, experiment: str, told: Iterable[Mapping[str, Any]]) -> None:
    """What the workers of this session were used for, beside the sweep's name in MLflow."""
    try:
        reach(tracking.uri)
        for name, value in spent.summary(told).items():
            tracking.write_experiment_tag(experiment, name, value)
    except Exception as error:
        log.warning("the sweep's seconds are not recorded: %s", redacted(str(error)))


def _release(lease: Lease) -> None:
    try:
        lease.release()
    except Exception as error:
        log.warning("the lease is left to run out: %s", redacted(str(error)))


def _put_in_order(writer: Writer, folder: Path, stem: str, dead: Holder | None) -> None:
    """Only under the lease: what other drivers of this sweep have left is nobody's now."""
    for file in sorted(folder.glob(f"{stem}.*.jsonl")):
        events = list(wal.read(file))
        if events:
            log.info("%d events of an interrupted sweep are written to MLflow", len(events))
        for start in range(0, len(events), BATCH):
            writer.apply(events[start : start + BATCH], again=True)
        file.unlink()
    writer.close_orphans(f"its driver died: {dead}" if dead else "its driver died")


@dataclass(frozen=True)
class _LeaseTag:
    tracking: Tracking
    experiment: str

    def read(self) -> str:
        reach(self.tracking.uri)
        return self.tracking.read_experiment_tag(self.experiment, "lease")

    def write(self, value: str) -> None:
        reach(self.tracking.uri)
        self.tracking.write_experiment_tag(self.experiment, "lease", value)


@dataclass
class _Attempt:
    number: int
    slot: str
    epoch: int = 0
    """The latest that was told."""
    started: float = field(default_factory=time.time)
    ended: bool = False


class SweepRecorder:
    """`tabiflow.ledger.Recorder` of one driver."""

    def __init__(
        self, id: str, writer: Writer, lease: Lease, folder: Path, facts: Mapping[str, str]
    ) -> None:
        """`folder` is where write-ahead logs lie."""
        self.id, self._lease = id, lease
        self._file = folder / f"{id}.{lease.me.driver}.jsonl"
        self._facts = {name: redacted(str(value)) for name, value in facts.items()}
        self._facts["driver"] = lease.me.driver
        self._attempts: dict[str, _Attempt] = {}
        self._cells: dict[Cell, dict[str, str]] = {}
        self.told: list[dict[str, Any]] = []
        """Where their seconds went, of the trials that have ended well."""
        self._lock = threading.RLock()
        self._feed = Feed(WriteAheadLog(self._file), writer, lease.lost)

    def cell(
        self, cell: Cell, category: str, metric: str, facts: Mapping[str, str] | None = None
    ) -> None:
        shared = {name: redacted(str(value)) for name, value in (facts or {}).items()}
        with self._lock:
            self._cells[cell] = {"category": category, "metric": metric, **shared}
            self._tell(CellOpened(cell, _now()))

    def start(
        self, trial: Trial, attempt: int, label: str, tags: Mapping[str, str] | None = None
    ) -> None:
        self._start(trial, attempt, label, tags or {})

    def open_test(
        self,
        trial: Trial,
        attempt: int,
        label: str,
        opening: Opening,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self._start(trial, attempt, label, {**(tags or {}), **records.opening_tags(opening)})
        if not self._feed.flush(OPENING_SECONDS):
            raise LedgerError(
                f"the opening of {trial.dataset}'s test split could not be recorded",
                hint="start again when the MLflow server answers; the split was not read",
            )

    def epoch(self, trial_id: str, attempt: int, epoch: Epoch) -> bool:
        with self._lock:
            known = self._current(trial_id, attempt)
            if known is None or epoch.epoch <= known.epoch:
                return False
            known.epoch = epoch.epoch
            metrics = records.epoch_metrics(epoch)
            self._tell(EpochTold(trial_id, attempt, epoch.epoch, metrics, _now()))
            return True

    def finish(self, trial_id: str, attempt: int, ending: Ending) -> bool:
        with self._lock:
            known = self._current(trial_id, attempt)
            if known is None:
                return False
            known.ended = True
            if isinstance(ending, Result) and "train_seconds" in ending.facts:
                self.told.append(spent.kept(ending.facts))
            tags = {"seconds": f"{time.time() - known.started:.3f}", **records.ending_tags(ending)}
            self._tell(
                Ended(
                    trial=trial_id,
                    attempt=attempt,
                    slot=known.slot,
                    status=STATUS_OF[type(ending)],
                    tags=tags,
                    metrics=records.ending_metrics(ending),
                    at=_now(),
                    step=known.epoch,
                    predictions=ending.predictions if isinstance(ending, Result) else (),
                )
            )
            return True

    def hold(self, hold: Hold) -> None:
        with self._lock:
            self._tell(HoldSet(hold.cell, hold.to_json(), _now()))

    def release(self, cell: Cell) -> None:
        with self._lock:
            self._tell(HoldSet(cell, "", _now()))

    def flush(self, timeout: float = 60.0) -> bool:
        return self._feed.flush(timeout)

    def close(self, cause: str) -> None:
        """What still runs is closed as killed; a log that MLflow has not got is kept."""
        if self._lease.lost.is_set():
            self._feed.close(0.0)
            return
        with self._lock:
            for trial, attempt in self._attempts.items():
                if not attempt.ended:
                    self.finish(trial, attempt.number, Killed(cause))
            for cell in self._cells:
                self._tell(CellOpened(cell, _now()))
        if self._feed.failing:
            log.warning("waiting for MLflow; Ctrl-C leaves the rest to the next start")
        if self._feed.close(GRACE_SECONDS):
            self._file.unlink()
        else:
            log.warning("MLflow is away; the next start writes what is in %s", self._file)

    def _start(self, trial: Trial, attempt: int, label: str, tags: Mapping[str, str]) -> None:
        with self._lock:
            before = self._attempts.get(trial.id)
            if before is not None and before.number >= attempt:
                raise ValueError(f"attempt {attempt} of {trial.id} follows {before.number}")
            self._attempts[trial.id] = _Attempt(attempt, trial.slot)
            cell = self._cells.get(trial.cell, {})
            self._tell(
                Started(
                    trial=trial.id,
                    attempt=attempt,
                    cell=trial.cell,
                    slot=trial.slot,
                    label=label or trial.id,
                    tags={**self._facts, **cell, **tags, **records.trial_tags(trial, attempt)},
                    params=records.params(trial),
                    at=_now(),
                )
            )

    def _current(self, trial_id: str, attempt: int) -> _Attempt | None:
        """None for an attempt that was replaced or has ended: its late reports do not count."""
        known = self._attempts.get(trial_id)
        if known is None or known.number != attempt or known.ended:
            log.info("a late report of attempt %d of %s was refused", attempt, trial_id)
            return None
        return known

    def _tell(self, event: Event) -> None:
        if self._lease.lost.is_set():
            raise LeaseHeld(
                "another driver has taken this sweep over",
                hint="this one was silent for too long; it has stopped",
            )
        self._feed.put(event)


def _now() -> int:
    return time.time_ns() // 1_000_000

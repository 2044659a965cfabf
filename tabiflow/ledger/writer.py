"""Applies events to MLflow. Each may be applied again with the same effect.

What a batch of events asks of a run is gathered first, so that a run gets it in one go. How it
comes into MLflow is the sink's business.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tabiflow.ledger.bulk import INSERTS, Bulk
from tabiflow.ledger.posting import Posting
from tabiflow.ledger.reach import reach
from tabiflow.ledger.records import Run, cell_name
from tabiflow.ledger.rest import plain
from tabiflow.ledger.tracking import Attempt, Tracking
from tabiflow.ledger.wal import CellOpened, Ended, EpochTold, Event, HoldSet, Started
from tabiflow.ledger.writes import End, NewRun, Point, Sink, Writes
from tabiflow.trial import Cell, Status

log = logging.getLogger(__name__)


def sink(tracking: Tracking) -> Sink:
    """The fastest way in."""
    database = tracking.sql
    if database is not None and database.engine.dialect.name in INSERTS:
        return Bulk(tracking, database)
    return Posting(tracking) if plain(tracking.uri) else tracking


class _Unfinished(NamedTuple):
    """An attempt that failed or was killed."""

    trial: str
    attempt: int
    run_id: str

    @classmethod
    def of(cls, run: Run) -> "_Unfinished":
        return cls(run.tags.get("trial", ""), int(run.tags.get("attempt", 0)), run.run_id)


class Writer:
    """The only one that writes a sweep's runs. One thread at a time."""

    def __init__(self, tracking: Tracking, experiment: str) -> None:
        self.experiment = experiment
        self._tracking, self._sink = tracking, sink(tracking)
        self._runs: dict[Attempt, str] = {}
        """Of attempts that have no end yet."""
        self._cells = tracking.cells(experiment)
        self._unfinished: dict[str, list[_Unfinished]] = {}
        """By slot, until a later attempt marks them."""
        self._writes: dict[str, Writes] = {}
        for run in tracking.having(experiment, Status.FAILED, Status.KILLED):
            self._remember(run)

    def apply(self, events: Sequence[Event], *, again: bool) -> None:
        """`again`: some of it may stand in MLflow already. Raises whatever MLflow raises."""
        reach(self._tracking.uri)
        before = {slot: list(runs) for slot, runs in self._unfinished.items()}
        self._writes = {}
        try:
            self._open_cells(events, again)
            self._open_runs([each for each in events if isinstance(each, Started)], again)
            for event in events:
                self._take(event)
            self._sink.write(self._writes)
        except Exception:
            self._unfinished = before
            raise
        for event in events:
            if isinstance(event, Ended):
                self._runs.pop((event.trial, event.attempt), None)

    def close_orphans(self, cause: str) -> None:
        """Attempts that no driver works on any more. The caller holds the lease."""
        orphans = self._tracking.having(self.experiment, Status.RUNNING)
        tags = {"status": Status.KILLED.value, "cause": cause}
        end = End(Status.KILLED, time.time_ns() // 1_000_000)
        self._sink.write({run.run_id: Writes(tags=tags, end=end) for run in orphans})
        for run in orphans:
            self._remember(run)

    def _open_cells(self, events: Iterable[Event], again: bool) -> None:
        """Parent runs, each never RUNNING for longer than `apply` takes."""
        if again:
            self._cells = self._tracking.cells(self.experiment)
        new = {
            cell_name(event.cell): event.at
            for event in events
            if isinstance(event, CellOpened | Started | HoldSet)
            and cell_name(event.cell) not in self._cells
        }
        asked = [NewRun(name, at, {"kind": "cell", "cell": name}) for name, at in new.items()]
        self._cells |= zip(new, self._sink.create(self.experiment, asked), strict=True)

    def _open_runs(self, started: Sequence[Started], again: bool) -> None:
        if again and started:
            first, last = min(each.at for each in started), max(each.at for each in started)
            self._runs |= self._tracking.attempts_between(self.experiment, first, last)
        new = {(each.trial, each.attempt): each for each in started}
        missing = {key: each for key, each in new.items() if key not in self._runs}
        asked = [self._new_run(each) for each in missing.values()]
        self._runs |= zip(missing, self._sink.create(self.experiment, asked), strict=True)

    def _new_run(self, event: Started) -> NewRun:
        parent = self._cells[cell_name(event.cell)]
        own = {"mlflow.parentRunId": parent, "mlflow.source.name": "tabiflow"}
        return NewRun(event.label, event.at, {**event.tags, **own})

    def _take(self, event: Event) -> None:
        match event:
            case CellOpened():
                self._of(self._cell(event.cell)).end = End(Status.DONE, event.at)
            case Started():
                self._take_start(event)
            case EpochTold():
                if run_id := self._run(event.trial, event.attempt):
                    points = _points(event.metrics, event.at, event.epoch)
                    self._of(run_id).points.extend(points)
            case Ended():
                self._take_end(event)
            case HoldSet():
                self._of(self._cell(event.cell)).tags["hold"] = event.hold

    def _take_start(self, event: Started) -> None:
        self._of(self._runs[event.trial, event.attempt]).params.update(event.params)
        earlier = self._unfinished.pop(event.slot, [])
        if event.attempt > 1:
            earlier += self._attempts_elsewhere(event.trial)
        for each in earlier:
            # A log that is replayed late may tell of an attempt that others have followed.
            if each.trial != event.trial or each.attempt < event.attempt:
                self._of(each.run_id).tags["status"] = Status.RETRIED.value

    def _take_end(self, event: Ended) -> None:
        run_id = self._run(event.trial, event.attempt)
        if run_id is None:
            return
        writes = self._of(run_id)
        writes.tags |= event.tags
        writes.points.extend(_points(event.metrics, event.at, event.step))
        writes.end = End(event.status, event.at, event.predictions)
        if event.status in (Status.FAILED, Status.KILLED):
            ended = _Unfinished(event.trial, event.attempt, run_id)
            self._unfinished.setdefault(event.slot, []).append(ended)

    def _remember(self, run: Run) -> None:
        self._unfinished.setdefault(run.tags.get("slot", ""), []).append(_Unfinished.of(run))

    def _of(self, run_id: str) -> Writes:
        return self._writes.setdefault(run_id, Writes())

    def _run(self, trial: str, attempt: int) -> str | None:
        """None when the run was deleted in MLflow's pages."""
        key = trial, attempt
        if key not in self._runs:
            found = self._tracking.find_attempt(self.experiment, trial, attempt)
            if found is None:
                log.warning("attempt %d of %s has no run any more", attempt, trial)
                return None
            self._runs[key] = found
        return self._runs[key]

    def _cell(self, cell: Cell) -> str:
        return self._cells[cell_name(cell)]

    def _attempts_elsewhere(self, trial: str) -> list[_Unfinished]:
        marked = (Status.FAILED.value, Status.KILLED.value)
        attempts = self._tracking.attempts(trial)
        return [_Unfinished.of(run) for run in attempts if run.tags.get("status") in marked]


def _points(metrics: Mapping[str, float], at: int, step: int) -> list[Point]:
    return [Point(name, value, at, step) for name, value in metrics.items()]

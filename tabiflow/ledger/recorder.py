"""The one writer of a sweep: what it is told goes to the write-ahead log first, then to MLflow.

`Recorder` is the side that the engine calls and `Writer` the side that talks to MLflow, on a
thread of its own; a queue of events lies between. Replaying a dead driver's log is the same writer
fed from a file.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tabiflow.errors import LeaseHeld, LedgerError
from tabiflow.ledger import Ending, Killed, records, redacted, sqlite_file, wal
from tabiflow.ledger.lease import Holder, Lease
from tabiflow.ledger.records import STATUS_OF, Run, cell_name
from tabiflow.ledger.tracking import Point, Tracking, Writes, explained, hopeless, reach
from tabiflow.ledger.wal import CellOpened, Ended, EpochTold, Event, HoldSet, Started, WriteAheadLog
from tabiflow.trial import Cell, Epoch, Hold, Opening, Result, Status, Trial

log = logging.getLogger(__name__)

LINGER_SECONDS = 1.0
"""How long events gather, so that a run gets its epochs in few calls."""
BATCH = 300
BACK_OFF_SECONDS = (1.0, 2.0, 5.0)
"""Between attempts while the ledger is away; the last one repeats."""
GRACE_SECONDS = 30.0
"""How long the end of a sweep waits for a ledger that takes nothing."""
OPENING_SECONDS = 600.0
SLOW_SECONDS = 2.0
"""A creation that takes longer was retried inside MLflow and may have left a copy."""


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
        recorder = SweepRecorder(writer, lease, folder / f"{stem}.{lease.me.driver}.jsonl", facts)
        try:
            yield recorder
        except BaseException as error:
            recorder.close(f"the sweep was stopped: {type(error).__name__}")
            raise
        recorder.close("the sweep ended before the trial did")
    finally:
        _release(lease)


def _artifacts(uri: str) -> str | None:
    """Beside a SQLite file; a server has a place of its own."""
    file = sqlite_file(uri)
    return None if file is None else (file.parent / "artifacts").as_uri()


def _release(lease: Lease) -> None:
    try:
        lease.release()
    except Exception as error:
        log.warning("the lease is left to run out: %s", redacted(str(error)))


def _put_in_order(writer: "Writer", folder: Path, stem: str, dead: Holder | None) -> None:
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
        self, writer: "Writer", lease: Lease, file: Path, facts: Mapping[str, str]
    ) -> None:
        self._lease, self._file = lease, file
        self._facts = {name: redacted(str(value)) for name, value in facts.items()}
        self._facts["driver"] = lease.me.driver
        self._attempts: dict[str, _Attempt] = {}
        self._cells: dict[Cell, dict[str, str]] = {}
        self._lock = threading.RLock()
        self._feed = Feed(WriteAheadLog(file), writer, lease.lost)

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


class Feed:
    """Events on their way from the driver to the writer: logged, queued, applied in order."""

    def __init__(self, wal: WriteAheadLog, writer: "Writer", stop: threading.Event) -> None:
        self._wal, self._writer, self._stop = wal, writer, stop
        self._changed = threading.Condition()
        self._waiting: deque[Event] = deque()
        self._told = self._applied = 0
        self._urgent = self._closing = False
        self._failing_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def put(self, event: Event) -> None:
        with self._changed:
            self._wal.append(event)
            self._waiting.append(event)
            self._told += 1
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        with self._changed:
            told, self._urgent = self._told, True
            self._changed.notify_all()
            deadline = time.monotonic() + timeout
            while self._applied < told and self._thread.is_alive():
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(min(left, 1.0))
            return self._applied >= told

    def close(self, patience: float) -> bool:
        """True when everything was applied; False when nothing could be for `patience` seconds."""
        began = time.monotonic()
        while not (done := self.flush(1.0)) and self._thread.is_alive():
            failing = self._failing_since
            if failing is not None and time.monotonic() - max(failing, began) > patience:
                break
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if done:
            self._thread.join()
            self._wal.close()
        return done

    def _run(self) -> None:
        while batch := self._next():
            if not self._apply(batch):
                return
            with self._changed:
                self._applied += len(batch)
                if not self._waiting:
                    self._wal.clear()
                self._changed.notify_all()

    def _next(self) -> Sequence[Event]:
        """What has gathered; empty when nothing more will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            self._changed.wait_for(lambda: self._urgent or self._closing, LINGER_SECONDS)
            size = min(BATCH, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(size)]
            self._urgent = self._urgent and bool(self._waiting)
            return batch

    def _apply(self, batch: Sequence[Event]) -> bool:
        """Tries until it succeeds; False when the sweep is no longer this driver's."""
        failures = 0
        while not self._stop.is_set():
            try:
                self._writer.apply(batch, again=failures > 0)
            except Exception as error:
                if failures == 0:
                    self._failing_since = time.monotonic()
                    log.warning("MLflow did not take it, nothing is lost: %s", redacted(str(error)))
                pause = BACK_OFF_SECONDS[min(failures, len(BACK_OFF_SECONDS) - 1)]
                failures += 1
                self._stop.wait(pause)
            else:
                if failures:
                    self._failing_since = None
                    log.warning("MLflow has taken it")
                return True
        return False


class _Unfinished(NamedTuple):
    """An attempt that failed or was killed."""

    trial: str
    attempt: int
    run_id: str

    @classmethod
    def of(cls, run: Run) -> "_Unfinished":
        return cls(run.tags.get("trial", ""), int(run.tags.get("attempt", 0)), run.run_id)


class Writer:
    """Applies events to MLflow. Each may be applied again with the same effect."""

    def __init__(self, tracking: Tracking, experiment: str) -> None:
        self.experiment = experiment
        self._tracking = tracking
        self._runs: dict[tuple[str, int], str] = {}
        self._cells = tracking.cells(experiment)
        self._unfinished: dict[str, list[_Unfinished]] = {}
        """By slot, until a later attempt marks them."""
        self._writes: dict[str, Writes] = {}
        self._ends: dict[str, Ended] = {}
        for run in tracking.having(experiment, Status.FAILED, Status.KILLED):
            self._remember(run)

    def apply(self, events: Sequence[Event], *, again: bool) -> None:
        """`again`: some of it may stand in MLflow already. Raises whatever MLflow raises."""
        reach(self._tracking.uri)
        before = {slot: list(runs) for slot, runs in self._unfinished.items()}
        self._writes, self._ends = {}, {}
        try:
            if again:
                self._cells = self._tracking.cells(self.experiment)
            for event in events:
                self._take(event, again)
            for run_id, writes in self._writes.items():
                self._write(run_id, writes)
        except Exception:
            self._unfinished = before
            raise

    def close_orphans(self, cause: str) -> None:
        """Attempts that no driver works on any more. The caller holds the lease."""
        for run in self._tracking.having(self.experiment, Status.RUNNING):
            tags = {"status": Status.KILLED.value, "cause": cause}
            self._tracking.end(run.run_id, Status.KILLED, _now())
            self._tracking.write(run.run_id, Writes(tags=tags))
            self._remember(run)

    def _remember(self, run: Run) -> None:
        self._unfinished.setdefault(run.tags.get("slot", ""), []).append(_Unfinished.of(run))

    def _take(self, event: Event, again: bool) -> None:
        match event:
            case CellOpened():
                self._tracking.end(self._cell(event.cell, event.at), Status.DONE, event.at)
            case Started():
                self._take_start(event, again)
            case EpochTold():
                if run_id := self._run(event.trial, event.attempt):
                    points = _points(event.metrics, event.at, event.epoch)
                    self._of(run_id).points.extend(points)
            case Ended():
                self._take_end(event)
            case HoldSet():
                self._of(self._cell(event.cell, event.at)).tags["hold"] = event.hold

    def _take_start(self, event: Started, again: bool) -> None:
        key = event.trial, event.attempt
        if key not in self._runs:
            self._runs[key] = self._create(event, again)
        run_id = self._runs[key]
        self._of(run_id).params.update(event.params)
        earlier = self._unfinished.pop(event.slot, [])
        if event.attempt > 1:
            earlier += self._attempts_elsewhere(event.trial)
        for each in earlier:
            # A log that is replayed late may tell of an attempt that others have followed.
            if each.trial != event.trial or each.attempt < event.attempt:
                self._of(each.run_id).tags["status"] = Status.RETRIED.value

    def _create(self, event: Started, again: bool) -> str:
        if again:
            found = self._tracking.find_attempt(self.experiment, event.trial, event.attempt)
            if found is not None:
                return found
        parent = self._cell(event.cell, event.at)
        tags = {**event.tags, "mlflow.parentRunId": parent, "mlflow.source.name": "tabiflow"}
        began = time.monotonic()
        made = self._tracking.create(self.experiment, event.label, event.at, tags)
        if time.monotonic() - began > SLOW_SECONDS:
            found = self._tracking.find_attempt(self.experiment, event.trial, event.attempt)
            return found or made
        return made

    def _take_end(self, event: Ended) -> None:
        run_id = self._run(event.trial, event.attempt)
        if run_id is None:
            return
        writes = self._of(run_id)
        writes.tags |= event.tags
        writes.points.extend(_points(event.metrics, event.at, event.step))
        self._ends[run_id] = event
        if event.status in (Status.FAILED, Status.KILLED):
            ended = _Unfinished(event.trial, event.attempt, run_id)
            self._unfinished.setdefault(event.slot, []).append(ended)

    def _write(self, run_id: str, writes: Writes) -> None:
        try:
            self._end(run_id)
            self._tracking.write(run_id, writes)
        except Exception as error:
            if not hopeless(error):
                raise
            log.warning("run %s is left as it is: %s", run_id, redacted(str(error)))

    def _end(self, run_id: str) -> None:
        """Before the status is written: a run that says it ended is never looked after again."""
        end = self._ends.get(run_id)
        if end is None:
            return
        if end.predictions:
            self._tracking.attach(run_id, "predictions.json", end.predictions)
        self._tracking.end(run_id, end.status, end.at)

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

    def _cell(self, cell: Cell, at: int) -> str:
        """The cell's parent run. It is never RUNNING for longer than a call takes."""
        name = cell_name(cell)
        if name not in self._cells:
            tags = {"kind": "cell", "cell": name}
            self._cells[name] = self._tracking.create(self.experiment, name, at, tags)
        return self._cells[name]

    def _attempts_elsewhere(self, trial: str) -> list[_Unfinished]:
        marked = (Status.FAILED.value, Status.KILLED.value)
        attempts = self._tracking.attempts(trial)
        return [_Unfinished.of(run) for run in attempts if run.tags.get("status") in marked]


def _points(metrics: Mapping[str, float], at: int, step: int) -> list[Point]:
    return [Point(name, value, at, step) for name, value in metrics.items()]

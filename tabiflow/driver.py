"""What happens to trials, passed on: to the queue, the recorder and the listener, in this order.

Tune calls it on the driver; nothing here decides what runs next or how.
"""

import logging
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import ray
from ray import cloudpickle, tune
from ray.exceptions import GetTimeoutError, RayError
from ray.tune.experiment import Trial as TuneTrial

from tabiflow.checkpoints import Storage
from tabiflow.cost import Taken
from tabiflow.ledger import Ending, Failure, Killed, Pruned, Recorder
from tabiflow.provenance import now
from tabiflow.runners.failures import kind_of, one_line
from tabiflow.search import RETRIED, Alone, Attempt, Queue
from tabiflow.spec import label
from tabiflow.trial import Epoch, FailureKind, Hold, Result, Status, Trial
from tabiflow.worker import Failed, Report

log = logging.getLogger(__name__)

ANSWER_SECONDS = 1.0
"""A dead actor's end is known at once."""
STOP_SECONDS = 60.0
"""How long a stop waits for running trials to end their epoch, and then for their checkpoints."""


class Listener(Protocol):
    """Something that shows a sweep while it runs. Called on the driver's main thread."""

    def on_start(self, trial: Trial, attempt: int) -> None: ...

    def on_epoch(self, trial: Trial, epoch: Epoch) -> None: ...

    def on_end(self, trial: Trial, ending: Ending) -> None:
        """`Killed`: the trial was interrupted, or is going to be tried again."""

    def on_hold(self, hold: Hold) -> None: ...


@dataclass
class Summary:
    """What a run did. A trial that was tried again counts once, by its last attempt."""

    done: int = 0
    pruned: int = 0
    failed: int = 0
    killed: int = 0
    """Interrupted while they ran."""
    retries: int = 0
    holds: list[Hold] = field(default_factory=list)
    stopped: str = ""
    """Why work was left over, in words; empty when nothing is left but held cells."""
    interrupted: bool = False


class Roomier(Protocol):
    """See `tabiflow.assignments.Assignments.roomier`."""

    def __call__(self, attempt: Attempt, *, killed: bool) -> Alone | None: ...


class Brake(tune.Stopper):  # type: ignore[misc]
    """Stops each trial after its next epoch, and all at once after a while. Holds nothing else:
    Tune pickles it."""

    pulled = False
    until = math.inf
    """When to wait no longer, on the monotonic clock."""

    def pull(self, patience: float) -> None:
        self.pulled, self.until = True, min(self.until, time.monotonic() + patience)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return self.pulled

    def stop_all(self) -> bool:
        return time.monotonic() >= self.until


Method = TypeVar("Method", bound=Callable[..., None])


def _kept(method: Method) -> Method:
    """Tune swallows some exceptions of callbacks and wraps others: `end` raises them instead."""

    @wraps(method)
    def keeping(driver: "Driver", *args: Any, **kwargs: Any) -> None:
        try:
            method(driver, *args, **kwargs)
        except Exception as error:
            driver.fault = driver.fault or error
            driver.halt()

    return cast(Method, keeping)


class Driver(tune.Callback):  # type: ignore[misc]
    """Give `attempts` before Tune starts: the attempt behind each of Tune's trial ids."""

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its callbacks for a restore that is never asked for."""
        return {}

    def __init__(
        self,
        queue: Queue,
        recorder: Recorder,
        listener: Listener | None = None,
        storage: Storage | None = None,
        roomier: Roomier | None = None,
    ) -> None:
        """`storage` is where the trials' checkpoints are, if anywhere; `roomier` says what an
        attempt that ran out of memory could have to itself."""
        self.attempts: dict[str, Attempt] = {}
        self.brake = Brake()
        self.fault: Exception | None = None
        self._queue, self._recorder, self._listener = queue, recorder, listener
        self._storage, self._roomier = storage, roomier
        self._actors: dict[str, Any] = {}
        self._summary = Summary()
        self._begun: dict[str, Attempt] = {}
        self._last: dict[str, Report] = {}
        self._best: dict[str, Epoch] = {}
        self._saving: list[ray.ObjectRef] = []

    def stop(self) -> None:
        """Called from outside: what runs is stopped after its next epoch, and nothing follows."""
        self._summary.interrupted = True
        self._queue.stop()
        self.brake.pull(STOP_SECONDS)

    def halt(self) -> None:
        """Nothing that the trials say can be recorded any more."""
        self._queue.stop()
        self.brake.pull(0.0)

    def lost(self, error: BaseException) -> None:
        """Tune has given up, and all actors with it, because one of them died of `error`."""
        out = dict(self.attempts)
        self.attempts.clear()
        deaths = {id: _death(actor) for id, actor in self._actors.items()}
        self._actors.clear()
        died = [id for id in out if type(deaths.get(id)) is type(error)]
        kind = kind_of(error) if died or len(out) == 1 else "node_lost"
        for id, attempt in out.items():
            if id in died or not died:
                self._lose(attempt, kind, one_line(error))
            else:
                self._queue.dropped(attempt)
                self._close(attempt, Killed(f"went down with another trial: {one_line(error)}"))

    def end(self) -> Summary:
        """Closes what was interrupted. Raises what went wrong in between."""
        if self.fault is not None:
            raise self.fault
        for attempt in tuple(self._begun.values()):
            self._summary.killed += 1
            self._close(attempt, Killed("interrupted"))
        if self._summary.interrupted or self._queue.left:
            self._summary.stopped = self._queue.stopped
        return self._summary

    def hold(self, hold: Hold) -> None:
        self._queue.drop(hold.cell)
        self._recorder.hold(hold)
        self._summary.holds.append(hold)
        if self._listener is not None:
            self._listener.on_hold(hold)

    def open_test(self, attempt: Attempt) -> None:
        """Writes down that the test split will be read, before the job leaves the driver."""
        if attempt.opening is not None:
            self._begun[attempt.trial.id] = attempt
            opening = replace(attempt.opening, at=now())
            self._recorder.open_test(attempt.trial, attempt.number, _label(attempt), opening)

    @_kept
    def on_trial_start(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any
    ) -> None:
        attempt = self.attempts[trial.trial_id]
        self._actors[trial.trial_id] = trial.temporary_state.ray_actor
        if attempt.opening is None:
            self._begin(attempt)
        if self._listener is not None:
            self._listener.on_start(attempt.trial, attempt.number)

    @_kept
    def on_trial_result(
        self,
        iteration: int,
        trials: list[TuneTrial],
        trial: TuneTrial,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        # Tune keeps the last result of every trial for ever: predictions must not stay in it.
        report = result.pop("report")
        attempt = self.attempts[trial.trial_id]
        self._last[attempt.trial.id] = report
        if isinstance(report, Epoch):
            self._epoch(attempt, report)

    @_kept
    def on_trial_complete(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any
    ) -> None:
        attempt, actor = self.attempts.pop(trial.trial_id), self._actors.pop(trial.trial_id)
        report = self._last[attempt.trial.id]
        if isinstance(report, Failed):
            self._fail(attempt, report.kind, report.error, report.traceback)
        elif self.brake.pulled and isinstance(report, Epoch):
            self._saving.append(actor.interrupt.remote())
            self._summary.killed += 1
            self._close(attempt, Killed("interrupted"))
        elif isinstance(report, Result):
            self._summary.done += 1
            told = Taken.of(attempt.trial, report.facts)
            self._queue.done(attempt, Status.DONE, report.score, report.epoch, told)
            self._close(attempt, report)
        else:
            # Tune completes a trial between two epochs only where the scheduler cut it short.
            best = self._best[attempt.trial.id]
            self._summary.pruned += 1
            self._queue.done(attempt, Status.PRUNED, best.score, best.epoch)
            self._close(attempt, Pruned(best.epoch, best.score))

    def on_step_end(self, iteration: int, trials: list[TuneTrial], **info: Any) -> None:
        """Once nothing runs any more, Tune would give the actors 5 seconds to write."""
        if self.brake.pulled and (not self._begun or self.brake.stop_all()):
            self.brake.pull(0.0)
            if self._saving:
                ray.wait(self._saving, num_returns=len(self._saving), timeout=STOP_SECONDS)
            self._saving.clear()

    @_kept
    def on_trial_error(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any
    ) -> None:
        """The actor is gone: what a trial raises comes as a report."""
        error = _error_of(trial)
        self._actors.pop(trial.trial_id, None)
        self._lose(self.attempts.pop(trial.trial_id), kind_of(error), one_line(error))

    def _lose(self, attempt: Attempt, kind: FailureKind, error: str) -> None:
        """An actor may be gone before it has begun: the attempt had its number all the same."""
        if attempt.trial.id not in self._begun:
            self._begin(attempt)
        self._fail(attempt, kind, error, killed=True)

    def _begin(self, attempt: Attempt) -> None:
        self._begun[attempt.trial.id] = attempt
        tags = _aliases(attempt)
        self._recorder.start(attempt.trial, attempt.number, _label(attempt), tags)

    def _epoch(self, attempt: Attempt, epoch: Epoch) -> None:
        trial = attempt.trial
        self._queue.trained(trial.cell)
        best = self._best.setdefault(trial.id, epoch)
        if epoch.score > best.score:
            self._best[trial.id] = epoch
        self._recorder.epoch(trial.id, attempt.number, epoch)
        if self._listener is not None:
            self._listener.on_epoch(trial, epoch)

    def _fail(
        self,
        attempt: Attempt,
        kind: FailureKind,
        error: str,
        traceback: str = "",
        *,
        killed: bool = False,
    ) -> None:
        roomier = None
        if self._roomier is not None and kind == "oom":
            roomier = self._roomier(attempt, killed=killed)
        verdict = self._queue.failed(attempt, kind, error, roomier)
        if verdict.retry:
            # Recorded as interrupted, so that a driver that dies before the retry leaves it due.
            self._summary.retries += 1
            self._close(attempt, Killed(f"{kind}: {error}"))
        else:
            self._summary.failed += 1
            self._close(attempt, Failure(kind, error, traceback))
        if verdict.hold is not None:
            self.hold(verdict.hold)

    def _close(self, attempt: Attempt, ending: Ending) -> None:
        trial = attempt.trial
        for kept in (self._begun, self._last, self._best):
            kept.pop(trial.id, None)
        self._recorder.finish(trial.id, attempt.number, ending)
        if self._storage is not None and not _goes_on(ending):
            self._storage.delete(trial.id, attempt.number)
        if self._listener is not None:
            self._listener.on_end(trial, ending)


def _goes_on(ending: Ending) -> bool:
    """Whether a later attempt may start from this one's checkpoint."""
    return isinstance(ending, Killed) or (isinstance(ending, Failure) and ending.kind in RETRIED)


def _death(actor: Any) -> RayError | None:
    """What a dead actor died of; None where it lives."""
    try:
        ray.get(actor.__ray_ready__.remote(), timeout=ANSWER_SECONDS)
    except GetTimeoutError:
        return None
    except RayError as error:
        return error
    return None


def _error_of(trial: TuneTrial) -> BaseException:
    """Tune calls back while it handles it, and keeps only errors of some types in a file."""
    handled = sys.exception()
    if handled is not None and isinstance(handled, RayError):
        return handled
    if trial.pickled_error_file is None:
        return RuntimeError("Tune could not go on with the trial")
    error: BaseException = cloudpickle.loads(Path(trial.pickled_error_file).read_bytes())
    return error


def _aliases(attempt: Attempt) -> dict[str, str]:
    """The trials that need no run of their own, once this one has its end."""
    equal = attempt.work.cell.equal_to(attempt.trial)
    if equal is None:
        return {}
    return {"aliases": ", ".join(each.id for each in equal.aliases), "aliases_proof": equal.proof}


def _label(attempt: Attempt) -> str:
    varying = attempt.work.cell.varying
    return label(attempt.trial.point(varying), varying)

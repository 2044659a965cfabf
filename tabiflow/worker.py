"""The actor that runs trials, one after another, in a process that stays warm.

Whatever a trial raises becomes a report, so that the process and what it has loaded outlive the
trial. Reports go to the driver; nothing here records anything.
"""

import logging
import math
import os
import signal
import time
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import ray
from ray import tune

from tabiflow.checkpoints import Storage
from tabiflow.errors import Interrupted, TimedOut
from tabiflow.redaction import redacted
from tabiflow.runners import Job, runner
from tabiflow.runners.failures import kind_of, one_line
from tabiflow.spent import Stay, with_useful
from tabiflow.trial import Epoch, FailureKind, Result

log = logging.getLogger(__name__)

TRACEBACK = 4000
"""Characters kept of a traceback, from its end."""

TOGETHER = 0.1
"""Seconds within which a trial's reports travel together."""


@dataclass(frozen=True)
class Failed:
    """The report of a trial that raised."""

    kind: FailureKind
    error: str
    traceback: str


Report = Epoch | Result | Failed


class Worker(tune.Trainable):  # type: ignore[misc]
    """Tune's actor class. `step` is one epoch; the last step carries the result."""

    def __init__(self, config: dict[str, Any] | None = None, storage: Any = None) -> None:
        # Relative paths in environment variables are the driver's, not some trial folder's.
        os.environ["RAY_CHDIR_TO_TRIAL_DIR"] = "0"
        self._left: float | None = None
        super().__init__(config, storage)

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        # Trials with different needs share a sweep, so each says its own.
        return tune.PlacementGroupFactory([{"CPU": config["cpus"], "GPU": config["gpus"]}])

    def setup(self, config: dict[str, Any]) -> None:
        self._job, self._over = config["job"], False
        self._deadline = time.monotonic() + config["seconds"]
        self._epochs = _epochs(config["job"])
        fresh = self._left is None
        self._stay = Stay(config["since"] if self._left is None else self._left, fresh=fresh)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        # A pruned trial stands between two epochs and must let go of what it holds.
        with suppress(Exception):
            self._epochs.close()
        self.cleanup()
        self.setup(new_config)
        return True

    def cleanup(self) -> None:
        """By now the driver has what the trial ended with, but perhaps not this node's storage."""
        job = Job.from_json(self._job)
        if self._over and job.place is not None:
            Storage(job.place.address, job.place.record).delete(job.trial.id, job.attempt)

    def interrupt(self) -> None:
        """Between two epochs: the trial writes down where it is and is not gone on with here."""
        try:
            self._epochs.throw(Interrupted("the sweep was stopped"))
        except Interrupted:
            return
        except Exception:
            log.warning("what was trained last is not written down", exc_info=True)

    def step(self) -> dict[str, Any]:
        report = self._report()
        self._over, self._left = isinstance(report, Result), time.time()
        score = math.nan if isinstance(report, Failed) else report.score
        if isinstance(report, Epoch):
            return {"score": score, "report": report, "epoch": report.epoch}
        return {"score": score, "report": report, "done": True}

    def _report(self) -> Report:
        try:
            with self._stay.working(), _time_limit(self._deadline - time.monotonic()):
                return next(self._epochs)
        except StopIteration as end:
            result: Result = end.value
            return replace(result, facts=with_useful({**result.facts, **self._stay.facts()}))
        except Exception as error:
            told = redacted(traceback.format_exc())[-TRACEBACK:]
            return Failed(kind_of(error), one_line(error), told)

    def train_buffered(self, *settings: Any) -> list[dict[str, Any]]:
        """Short epochs travel together: a round trip costs more than an epoch that does nothing.

        Ray 2.60 gives its two settings in the wrong order, so they are not looked at.
        """
        results: list[dict[str, Any]] = []
        until = time.monotonic() + TOGETHER
        while not results or (time.monotonic() < until and not results[-1]["done"]):
            results.append(self.train())
        return results

    def get_auto_filled_metrics(
        self, *args: Any, debug_metrics_only: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Where the actor is. Tune would add a dozen figures to each report and keep statistics
        of them for each trial."""
        if not debug_metrics_only:
            return {}
        filled: dict[str, Any] = super().get_auto_filled_metrics(debug_metrics_only=True)
        return filled


def _epochs(job: str) -> Generator[Epoch, None, Result]:
    """The imports of a runner belong to the first step, where what they raise is caught."""
    told = Job.from_json(job)
    result = yield from runner(told.trial.runner.get("name", "finetune"))(told)
    return replace(result, facts={**result.facts, "node": ray.util.get_node_ip_address()})


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raises TimedOut in the middle of whatever runs; a thread could only ask."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimedOut("took longer than `limits.trial_hours`")

    if math.isinf(seconds):
        yield
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

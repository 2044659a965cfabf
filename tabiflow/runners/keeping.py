"""Writes a training down between two epochs, when that is worth it, and takes one up again.

Knows what a checkpoint holds: the run's state, the epochs that were told, and whose they are. Its
tensors are read without running code from the file.
"""

import io
import logging
import pickle
import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from tabiflow.checkpoints import Storage, Version
from tabiflow.runners import Job
from tabiflow.runners.failures import one_line
from tabiflow.training import Training
from tabiflow.trial import Epoch

log = logging.getLogger(__name__)

FORMAT = 1
"""Raised when older checkpoints can no longer be read: they are left alone then."""
WORTH = 20.0
"""Seconds of training at risk for which a second of writing is spent: a twentieth at most."""
ASSUMED_RATE = 2e8
"""Bytes a second, until the first write has shown the true rate."""
UNREADABLE = (ValueError, RuntimeError, pickle.UnpicklingError, EOFError, AttributeError)
"""What torch and `Storage` raise about a file that is none of ours."""
COPIES = 4
"""The weights, the best epoch's, and the optimizer's two moments."""


class Keeper:
    """Of one attempt. Without a storage it keeps nothing."""

    def __init__(self, job: Job, facts: Mapping[str, str | int | float]) -> None:
        """`facts` are what else must be equal for a checkpoint to be this trial's."""
        self._job = job
        self._storage = None if job.place is None else Storage(job.place.address, job.place.record)
        self._whose = {"format": FORMAT, "trial": job.trial.to_json(), **facts}
        self._told: list[Epoch] = []
        self._written, self._since = 0, time.perf_counter()
        self._cost: float | None = None

    def take_up(self, training: Training) -> tuple[Epoch, ...]:
        """Brings the training to where the newest checkpoint was written; the epochs until then.

        A checkpoint that is torn or not this trial's is left alone. Raises EnvironmentFault when
        the storage is away.
        """
        if self._storage is None:
            return ()
        for version in self._storage.versions(self._job.trial.id):
            state = self._mine(self._storage, version)
            if state is not None:
                training.load_state(state["training"])
                self._told = [Epoch(**each) for each in state["told"]]
                self._written, self._since = version.epoch, time.perf_counter()
                log.info("%s goes on after epoch %d", self._job.trial.id, version.epoch)
                break
        return tuple(self._told)

    def ended(self, epoch: Epoch, training: Training) -> None:
        """Between two epochs. Raises EnvironmentFault when the storage does not take it."""
        self._told.append(epoch)
        if self._storage is not None and (self._job.keeping == "epoch" or self._worth(training)):
            self.write(training)

    def write(self, training: Training) -> None:
        """Where the training is now, if that is not there already."""
        if self._storage is None or self._written == training.epoch:
            return
        state = {
            **self._whose,
            "attempt": self._job.attempt,
            "told": [_plain(each) for each in self._told],
            "training": training.state(),
        }

        began = time.perf_counter()
        version = Version(self._job.attempt, training.epoch)
        self._storage.write(self._job.trial.id, version, partial(torch.save, state))
        self._written, self._since = training.epoch, time.perf_counter()
        self._cost = self._since - began

    def _worth(self, training: Training) -> bool:
        if self._cost is None:
            weights = training.model.parameters()
            size = sum(each.numel() * each.element_size() for each in weights)
            self._cost = COPIES * size / ASSUMED_RATE
        return is_worth(time.perf_counter() - self._since, self._cost)

    def _mine(self, storage: Storage, version: Version) -> dict[str, Any] | None:
        """None, and a line in the log, for what cannot be gone on from."""
        try:
            content = storage.read(self._job.trial.id, version)
            state: dict[str, Any] = torch.load(
                io.BytesIO(content), map_location="cpu", weights_only=True
            )
            theirs = {name: state.get(name) for name in self._whose}
            if theirs != self._whose:
                raise ValueError("it was written for another trial or by another version")
        except UNREADABLE as error:
            trial, reason = self._job.trial.id, one_line(error)
            log.warning("checkpoint %s of %s is ignored: %s", version.name, trial, reason)
            return None
        return state


def is_worth(at_risk: float, cost: float) -> bool:
    """Whether so many seconds of training are worth so many of writing."""
    return at_risk >= WORTH * cost


def _plain(epoch: Epoch) -> dict[str, Any]:
    """Python's own numbers: others would need their class's code to be read."""
    metrics = {name: float(value) for name, value in epoch.metrics.items()}
    return {**asdict(epoch), "metrics": metrics, "score": float(epoch.score)}

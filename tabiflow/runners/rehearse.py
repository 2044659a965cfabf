"""A runner without a model: the curve of a trial is made up from its meaning, the same every time.

For tests, for trying a sweep file out, and for measuring the engine at full scale. It needs
neither data nor torch. A cell has a best learning rate of its own; misfortunes happen to the share
of trials that the sweep's `rehearse:` asks for.
"""

import hashlib
import math
import os
import time
from collections.abc import Generator
from dataclasses import replace

from tabiflow.errors import Diverged, EnvironmentFault
from tabiflow.runners import Job
from tabiflow.trial import Epoch, Result, Trial

TEST_ITEMS = 100


class RehearsedBug(RuntimeError):
    """Stands for a mistake in the code of a task."""


def run(job: Job) -> Generator[Epoch, None, Result]:
    trial = job.trial
    _strike(job)
    quality, epochs = _quality(trial), []
    for number in range(1, trial.protocol.epochs + 1):
        time.sleep(trial.runner.get("seconds", 0.0))
        epochs.append(_epoch(trial, number, quality))
        yield epochs[-1]
    kept = max(epochs, key=lambda epoch: epoch.score)
    if trial.split == "validation":
        return Result(epoch=kept.epoch, score=kept.score)
    test = _bounded(kept.score + 2 * _luck(trial.id, "test") - 1)
    return Result(epoch=kept.epoch, score=kept.score, test=test, n=TEST_ITEMS)


def _strike(job: Job) -> None:
    """The misfortunes that the sweep asks for; some spare the second attempt."""
    trial, first = job.trial, job.attempt == 1
    if _meets(trial, "failing"):
        raise RehearsedBug("a made-up bug")
    if _meets(trial, "diverging"):
        raise Diverged("a made-up loss became NaN")
    if first and _meets(trial, "faulty"):
        raise EnvironmentFault("a made-up disk is full")
    if _meets(trial, "oversized") or (first and _meets(trial, "crowded")):
        raise MemoryError("made-up memory has ended")
    if first and _meets(trial, "lost"):
        os._exit(1)


def _meets(trial: Trial, misfortune: str) -> bool:
    share: float = trial.runner.get(misfortune, 0.0)
    return _luck(trial.id, misfortune) < share


def _epoch(trial: Trial, number: int, quality: float) -> Epoch:
    learned = 1 - math.exp(-number / 2)
    score = _bounded(quality * learned)
    loss = 2.5 - 2 * learned * quality / 100
    seconds = trial.runner.get("seconds", 0.0)
    return Epoch(number, score, loss, {"train_loss": 0.9 * loss, "train_seconds": seconds})


def _quality(trial: Trial) -> float:
    """The score that the trial approaches: highest at its cell's own learning rate."""
    ceiling = 60 + 35 * _luck(*trial.cell, "ceiling")
    optimum = -5.2 + _luck(*trial.cell, "optimum")
    distance = math.log10(trial.trained.learning_rate) - optimum
    # A confirming trial must repeat the curve of the trial that it confirms.
    noise = 2 * _luck(replace(trial, split="validation").id, "noise") - 1
    return ceiling * math.exp(-(distance**2) / 2) + noise


def _bounded(score: float) -> float:
    return min(100.0, max(0.0, score))


def _luck(*of: str) -> float:
    """A number in [0, 1) that looks random and is always the same."""
    digits = hashlib.sha256("\0".join(of).encode()).digest()[:8]
    return int.from_bytes(digits, "big") / 2**64

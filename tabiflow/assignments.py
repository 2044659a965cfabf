"""Attempts -> what their worker is told and what they occupy, as Tune's `config`."""

import math
import os
from dataclasses import dataclass
from typing import Any

from tabiflow.cluster import Need, most_cpus
from tabiflow.ledger import home
from tabiflow.resolution import Resolution
from tabiflow.runners import Job, Place
from tabiflow.search import Alone, Attempt
from tabiflow.spec import Model, Sweep


def place(sweep: Sweep, record: str) -> Place | None:
    """Where the sweep's checkpoints are; None where nothing is written down."""
    if sweep.runner != "finetune" or sweep.checkpoint == "never":
        return None
    return Place(named(sweep) or str(home() / "checkpoints"), record)


def named(sweep: Sweep) -> str | None:
    """The storage that the sweep or the machine names."""
    return sweep.storage or os.environ.get("TABIFLOW_STORAGE")


def need(sweep: Sweep, model: Model, *, has_gpus: bool) -> Need:
    """What a trial occupies as a rule."""
    share = model.gpus if model.gpus is not None else sweep.gpus
    if share is None:
        share = 1.0 if has_gpus and sweep.runner == "finetune" else 0.0
    return Need(model.cpus or sweep.cpus, share)


@dataclass(frozen=True)
class Assignments:
    """Of one run of the engine."""

    sweep: Sweep
    resolution: Resolution
    place: Place | None
    has_gpus: bool

    def config(self, attempt: Attempt) -> dict[str, Any]:
        cell, hours = attempt.work.cell, self.sweep.limits.trial_hours
        usual, occupied = self._usual(attempt), self._occupied(attempt)
        job = Job(
            trial=attempt.trial,
            attempt=attempt.number,
            model=self.resolution.pinned(cell.model),
            dataset=self.resolution.pinned(cell.dataset),
            metrics=self.sweep.metrics,
            opening=attempt.opening,
            # More threads would add up in another order.
            cpus=usual.cpus,
            place=self.place,
            keeping=self.sweep.checkpoint,
        )
        seconds = hours * 3600 if hours else math.inf
        return {
            "job": job.to_json(),
            "cpus": occupied.cpus,
            "gpus": occupied.gpus,
            "seconds": seconds,
        }

    def roomier(self, attempt: Attempt, *, killed: bool) -> Alone | None:
        """What an attempt is tried in after it ran out of memory; None where it was alone.

        `killed` is by its node, whose own memory ended.
        """
        occupied = self._occupied(attempt)
        if 0 < occupied.gpus < 1 and not killed:
            return "gpu"
        shares_node = occupied.cpus < most_cpus(occupied)
        return "node" if shares_node and (killed or not occupied.gpus) else None

    def _usual(self, attempt: Attempt) -> Need:
        return need(self.sweep, attempt.work.cell.model, has_gpus=self.has_gpus)

    def _occupied(self, attempt: Attempt) -> Need:
        usual = self._usual(attempt)
        if attempt.alone is None:
            return usual
        gpus = float(math.ceil(usual.gpus))
        if attempt.alone == "gpu":
            return Need(usual.cpus, gpus)
        # Every trial takes a share of the CPUs: with all of them no other fits.
        return Need(most_cpus(Need(usual.cpus, gpus)), gpus)

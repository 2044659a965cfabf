"""Which running trials are cut short: ASHA, one bracket for each cell.

One scheduler over all cells would compare scores of different data sets and cut the hard ones
everywhere; here a trial competes only with its cell, and only with trials of the same length.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler

from tabiflow.spec import Pruning
from tabiflow.trial import Cell, Trial


class InOrder(FIFOScheduler):  # type: ignore[misc]
    """Trials run in the order in which the searcher hands them out."""

    _metric = "score"

    def choose_trial_to_run(self, tune_controller: Any) -> None:
        """None lets Tune start what is pending; FIFOScheduler looks at every trial each time."""


@dataclass(frozen=True)
class _Runner:
    """All that AsyncHyperBandScheduler reads of a trial."""

    trial_id: str


class AshaPerCell(InOrder):
    """Stops trials that fall behind at a rung; the first to reach a rung always goes on."""

    def __init__(self, pruning: Pruning, trial_of: Callable[[str], Trial]) -> None:
        """`trial_of` knows the trial behind Tune's own trial id."""
        super().__init__()
        self._pruning, self._trial_of = pruning, trial_of
        self._brackets: dict[tuple[Cell, int], AsyncHyperBandScheduler] = {}

    def refill(self, curves: Iterable[tuple[Trial, Iterable[tuple[int, float]]]]) -> None:
        """Tells the brackets what earlier runs reached: (epoch, score) by trial."""
        for trial, curve in curves:
            for epoch, score in curve:
                self._judge(trial, epoch, score)

    def on_trial_result(
        self, tune_controller: Any, trial: TuneTrial, result: Mapping[str, Any]
    ) -> str:
        ours = self._trial_of(trial.trial_id)
        # Full length is never cut: the runner has yet to return its result.
        if result["epoch"] >= ours.protocol.epochs:
            return str(TrialScheduler.CONTINUE)
        return self._judge(ours, result["epoch"], result["score"])

    def _judge(self, trial: Trial, epoch: int, score: float) -> str:
        # A NaN would stand in the rung for ever and beat nobody.
        if math.isnan(score):
            return str(TrialScheduler.CONTINUE)
        runner, bracket = _Runner(trial.id), self._bracket(trial)
        bracket.on_trial_add(None, runner)
        return str(bracket.on_trial_result(None, runner, {"epoch": epoch, "score": score}))

    def _bracket(self, trial: Trial) -> AsyncHyperBandScheduler:
        length = trial.protocol.epochs
        key = (trial.cell, length)
        if key not in self._brackets:
            self._brackets[key] = AsyncHyperBandScheduler(
                time_attr="epoch",
                metric="score",
                mode="max",
                max_t=length,
                grace_period=min(self._pruning.grace_period, length),
                reduction_factor=self._pruning.reduction_factor,
                stop_last_trials=False,
            )
        return self._brackets[key]

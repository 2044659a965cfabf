"""Which configuration of a sampled cell to try next: one Optuna TPE study a cell.

The study lives in memory and is refilled from the ledger's outcomes, so a restarted sweep goes on
where it was. Knows nothing of Ray, nor of when a trial runs.
"""

import math
from collections.abc import Iterable
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState, create_trial

from tabiflow.plan import Study
from tabiflow.spec import Choice, Range
from tabiflow.trial import Outcome, Status, Trial

REPEATS = 20
"""Draws of known configurations in a row after which a space of choices is walked through."""


class Sampler:
    """Draws the trials of one cell. At most one trial for each configuration."""

    def __init__(self, study: Study, known: Iterable[Outcome], again: Iterable[Trial]) -> None:
        """`known` trials have ended; `again` are known too but will run once more."""
        again = tuple(again)
        ended = [each for each in known if each.trial.id not in {trial.id for trial in again}]
        self._study, self._space = study, _distributions(study)
        self._asked: dict[str, optuna.Trial] = {}
        self._drawn = {trial.id for trial in again} | {each.trial.id for each in ended}
        # The same seed after a restart would draw again what has been drawn.
        seed = int(study.template.id[:7], 16) + len(self._drawn)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna = optuna.create_study(
            direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed)
        )
        for outcome in ended:
            self._refill(outcome)
        for trial in again:
            self._optuna.enqueue_trial(trial.point(self._space))
            self._asked[trial.id] = self._optuna.ask(self._space)

    def draw(self) -> Trial | None:
        """A configuration that was not drawn before; None when the space has no other."""
        for _ in range(REPEATS):
            asked = self._optuna.ask(self._space)
            trial = self._study.trial(asked.params)
            if trial.id not in self._drawn:
                return self._take(trial, asked)
            self._optuna.tell(asked, state=TrialState.FAIL)
        left = next((each for each in self._choices() if each.id not in self._drawn), None)
        if left is None:
            return None
        self._optuna.enqueue_trial(left.point(self._space))
        return self._take(left, self._optuna.ask(self._space))

    def tell(self, trial: Trial, status: Status, score: float, epoch: int) -> None:
        """What became of a trial; a killed one may be told never."""
        asked = self._asked.pop(trial.id)
        state = _state(status, score)
        if state is TrialState.PRUNED:
            asked.report(score, epoch)
        self._optuna.tell(asked, score if state is TrialState.COMPLETE else None, state)

    def _take(self, trial: Trial, asked: optuna.Trial) -> Trial:
        self._drawn.add(trial.id)
        self._asked[trial.id] = asked
        return trial

    def _choices(self) -> Iterable[Trial]:
        dimensions = self._study.space.dimensions.values()
        if any(isinstance(each, Range) for each in dimensions):
            return ()
        return (self._study.trial(settings) for settings in self._study.space.grid())

    def _refill(self, outcome: Outcome) -> None:
        state = _state(outcome.status, outcome.score)
        complete = state is TrialState.COMPLETE
        steps = {outcome.epoch: outcome.score} if state is TrialState.PRUNED else {}
        ended = create_trial(
            state=state,
            value=outcome.score if complete else None,
            params=outcome.trial.point(self._space),
            distributions=self._space,
            intermediate_values=steps,
        )
        self._optuna.add_trial(ended)


def _distributions(study: Study) -> dict[str, BaseDistribution]:
    return {name: _distribution(each) for name, each in study.space.dimensions.items()}


def _distribution(dimension: Choice | Range) -> BaseDistribution:
    if isinstance(dimension, Choice):
        return CategoricalDistribution(dimension.values)
    bounds: dict[str, Any] = {"low": dimension.low, "high": dimension.high, "log": dimension.log}
    if dimension.integer:
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return FloatDistribution(**bounds)


def _state(status: Status, score: float) -> TrialState:
    # TPE has no use for NaN: a trial without a score is one that failed.
    if math.isnan(score):
        return TrialState.FAIL
    states = {Status.DONE: TrialState.COMPLETE, Status.PRUNED: TrialState.PRUNED}
    return states.get(status, TrialState.FAIL)

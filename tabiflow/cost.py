"""How long trials take, relative to each other: sizes, corrected by what finished trials took.

A size is parameters x tokens x epochs. Where a number is unknown, finished trials of the same model
or data set tell it. What the seconds of a whole sweep are, `forecast` knows.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import mean, median

from tabiflow.plan import CellPlan
from tabiflow.trial import Cell, Outcome, Trial

Facts = Mapping[str, str | int | float]


@dataclass(frozen=True)
class Taken:
    """What a finished trial tells of those to come."""

    trial: Trial
    seconds: float
    """That it held its worker or let it wait, all attempts of a resumed trial together."""
    epochs: int
    """Trained, after early stopping."""
    parameters: float
    tokens: float
    """Of an epoch, without padding."""
    rows: float

    @classmethod
    def of(cls, trial: Trial, facts: Facts) -> "Taken | None":
        """None of a trial that trained nothing, or did not tell."""
        names = ("trained_epochs", "parameters", "train_tokens", "train_rows")
        if not {"held_seconds", *names} <= facts.keys():
            return None
        epochs, parameters, tokens, rows = (float(facts[name]) for name in names)
        return cls(trial, _seconds(facts), int(epochs), parameters, tokens, rows)


def _seconds(facts: Facts) -> float:
    def told(*names: str) -> float:
        return sum(float(facts.get(f"{name}_seconds", 0.0)) for name in names)

    if told("process"):
        # Imports are part of what the first trial of a process holds: no other trial repeats them.
        return told("start", "data", "model", "train", "validation", "tracking")
    return told("held", "waiting", "earlier_train", "earlier_validation")


def taken(outcomes: Iterable[Outcome]) -> list[Taken]:
    told = (Taken.of(each.trial, each.tags) for each in outcomes if each.finished)
    return [each for each in told if each is not None]


class Costs:
    """Sizes and, as trials finish, seconds."""

    def __init__(self, known: Iterable[Taken] = ()) -> None:
        self._parameters: dict[str, float] = {}
        self._tokens: dict[Cell, float] = {}
        """A row."""
        self._rows: dict[str, float] = {}
        self._rates: dict[Cell, list[float]] = defaultdict(list)
        """Seconds by unit of size."""
        for each in known:
            self.learn(each)

    def learn(self, done: Taken) -> None:
        cell = done.trial.cell
        self._parameters[cell.model] = done.parameters
        self._tokens[cell] = done.tokens / done.rows if done.rows else math.nan
        if not done.trial.limit:
            self._rows[cell.dataset] = done.rows
        size = done.parameters * done.tokens * done.trial.protocol.epochs
        if size:
            self._rates[cell].append(done.seconds / size)

    def size(self, cell: CellPlan, trial: Trial) -> float:
        """NaN where the model's parameters or the data set's rows are unknown."""
        known = cell.dataset.sizes.get("train", math.nan)
        rows = min(trial.limit.get("train", math.inf), self._rows.get(cell.cell.dataset, known))
        if math.isnan(known) and math.isinf(rows):
            return math.nan
        parameters = self._parameters.get(cell.cell.model, cell.model.parameters or math.nan)
        return parameters * rows * self._tokens_a_row(cell.cell) * trial.protocol.epochs

    def seconds(self, cell: CellPlan, trial: Trial) -> float:
        """Expected; before any trial has finished, the size itself, for comparison only."""
        return self.size(cell, trial) * self._rate(cell.cell)

    def _tokens_a_row(self, cell: Cell) -> float:
        """The cell's own, another model's of the same data set, or those of a typical data set."""
        if cell in self._tokens:
            return self._tokens[cell]
        alike = [each for other, each in self._tokens.items() if other.dataset == cell.dataset]
        return median(alike or self._tokens.values() or [1.0])

    def _rate(self, cell: Cell) -> float:
        if cell in self._rates:
            return mean(self._rates[cell])
        return median([mean(each) for each in self._rates.values()] or [1.0])

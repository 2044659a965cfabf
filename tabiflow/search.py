"""Which attempt of which trial is handed out next: longest first, retries, holds, limits.

`Queue` decides and knows nothing of Ray; `PlanSearcher` lets Tune ask it. Nothing here runs a trial
or records one: the engine tells the queue what became of each attempt.
"""

import heapq
import math
import re
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ray.tune.search import Searcher

from tabiflow.cost import Costs, Taken, taken
from tabiflow.sampling import Sampler
from tabiflow.spec import Limits
from tabiflow.trial import HOLDING, Cell, FailureKind, Hold, Opening, Outcome, Status, Trial
from tabiflow.work import Work

RETRIED: frozenset[FailureKind] = frozenset({"environment", "node_lost"})
"""Kinds that say nothing about the trial: worth another attempt."""
PAUSE = 30.0
"""Seconds before the second attempt after an environment fault; doubled before each further one."""
EQUAL_ERRORS = 2
"""So many trials of a cell with the same error hold the rest of it."""


Alone = Literal["gpu", "node"]


@dataclass(frozen=True)
class Attempt:
    """One go at one trial."""

    trial: Trial
    number: int
    """1 for the first that the ledger has ever seen."""
    work: Work
    alone: Alone | None = None
    """What it has to itself, where an earlier attempt ran out of the memory that it shared."""

    @property
    def opening(self) -> Opening | None:
        return self.work.openings.get(self.trial.id)


@dataclass(frozen=True)
class Verdict:
    """What follows from a failure."""

    retry: bool = False
    hold: Hold | None = None


def signature(error: str) -> str:
    """What two errors have in common when they are the same: no paths, no numbers."""
    line = error.splitlines()[0] if error else ""
    return re.sub(r"\S*/\S*|\b0x[0-9a-fA-F]+\b|\d+", "", line)


class Queue:
    """Hands attempts out and learns how they ended. Every attempt must be told of once."""

    def __init__(
        self,
        work: Sequence[Work],
        outcomes: Mapping[str, Outcome],
        limits: Limits,
        pause: float = PAUSE,
    ) -> None:
        """`outcomes` is all that the ledger knows, by trial id."""
        self._limits, self._pause, self._started = limits, pause, time.monotonic()
        self._work = {each.cell.cell: each for each in work}
        self._numbers = Counter({id: outcome.attempt for id, outcome in outcomes.items()})
        self._lost: Counter[str] = Counter()
        self._alone: dict[str, Alone] = {}
        self._costs = Costs(taken(outcomes.values()))
        self._waiting = deque(trial for each in work for trial in each.trials)
        self._sorted = False
        self._paused: list[tuple[float, str, Trial]] = []
        sampled = sorted(
            (each for each in work if each.samples), key=lambda each: _rank(self._study_cost(each))
        )
        self._drawing = {each.cell.cell: each.samples for each in sampled}
        self._samplers = {each.cell.cell: _sampler(each) for each in sampled}
        self._running: Counter[Cell] = Counter()
        self._errors = {each.cell.cell: _earlier_errors(each) for each in work}
        self._held: set[Cell] = set()
        self._sound = {each.cell.cell for each in work if _has_trained(each)}
        self._failures = 0
        self._stopped = False

    @property
    def stopped(self) -> str:
        """Why no more trials start although there are some; empty while they do."""
        if self._limits.hours and time.monotonic() - self._started > self._limits.hours * 3600:
            return f"limits.hours: {self._limits.hours:g} hours have passed"
        if self._limits.failures is not None and self._failures > self._limits.failures:
            return f"limits.failures: {self._failures} trials failed"
        return "interrupted" if self._stopped else ""

    @property
    def finished(self) -> bool:
        """Whether nothing will be handed out any more."""
        if self.stopped:
            return True
        # A running trial may come back for another attempt.
        return not (self.left or self._running.total())

    @property
    def left(self) -> bool:
        """Whether there is something that has not been handed out."""
        return bool(self._waiting or self._paused or self._drawing)

    def stop(self) -> None:
        self._stopped = True

    def drop(self, cell: Cell) -> None:
        """Nothing more of this cell is handed out."""
        self._held.add(cell)
        self._drawing.pop(cell, None)
        self._waiting = deque(each for each in self._waiting if each.cell != cell)
        self._paused = [each for each in self._paused if each[2].cell != cell]
        heapq.heapify(self._paused)

    def next(self) -> Attempt | None:
        """None when nothing is ready at the moment."""
        trial = None if self.stopped else self._retry() or self._planned() or self._drawn()
        if trial is None:
            return None
        self._numbers[trial.id] += 1
        self._running[trial.cell] += 1
        alone = self._alone.get(trial.id)
        return Attempt(trial, self._numbers[trial.id], self._work[trial.cell], alone)

    def trained(self, cell: Cell) -> None:
        """A trial of the cell has trained an epoch: its model and data set work."""
        self._sound.add(cell)

    def done(
        self, attempt: Attempt, status: Status, score: float, epoch: int, told: Taken | None = None
    ) -> None:
        """The attempt ended without a failure; what it took corrects the order of the others."""
        self._running[attempt.trial.cell] -= 1
        if told is not None:
            self._costs.learn(told)
            self._sorted = False
        self._tell(attempt.trial, status, score, epoch)

    def dropped(self, attempt: Attempt) -> None:
        """The attempt went down with others, which does not count against it."""
        self._running[attempt.trial.cell] -= 1
        self._again(attempt.trial)

    def failed(
        self, attempt: Attempt, kind: FailureKind, error: str, roomier: Alone | None = None
    ) -> Verdict:
        """`roomier` is what an attempt that ran out of memory could have to itself; None where it
        shared nothing."""
        trial = attempt.trial
        self._running[trial.cell] -= 1
        if trial.cell not in self._held and not self.stopped:
            if kind == "oom" and roomier is not None:
                self._alone[trial.id] = roomier
                self._again(trial)
                return Verdict(retry=True)
            if kind in RETRIED and self._lost[trial.id] < self._limits.retries:
                wait = self._pause * 2 ** self._lost[trial.id] if kind == "environment" else 0.0
                self._lost[trial.id] += 1
                self._again(trial, wait)
                return Verdict(retry=True)
        self._failures += 1
        self._tell(trial, Status.FAILED, math.nan, 0)
        return Verdict(hold=self._hold(trial, kind, error))

    def _hold(self, trial: Trial, kind: FailureKind, error: str) -> Hold | None:
        if kind not in HOLDING or trial.cell in self._held:
            return None
        errors = self._errors[trial.cell]
        errors[kind, signature(error)].add(trial.id)
        if len(errors[kind, signature(error)]) < EQUAL_ERRORS:
            return None
        self.drop(trial.cell)
        return Hold.of(trial, kind, error)

    def _again(self, trial: Trial, wait: float = 0.0) -> None:
        heapq.heappush(self._paused, (time.monotonic() + wait, trial.id, trial))

    def _retry(self) -> Trial | None:
        if self._paused and self._paused[0][0] <= time.monotonic():
            return heapq.heappop(self._paused)[2]
        return None

    def _planned(self) -> Trial | None:
        if not self._sorted:
            self._waiting = deque(sorted(self._waiting, key=self._place))
            self._sorted = True
        for index, trial in enumerate(self._waiting):
            if self._takes_more(trial.cell):
                del self._waiting[index]
                return trial
        return None

    def _place(self, trial: Trial) -> float:
        """The longest first, so that none is begun when everything else is done."""
        return _rank(self._costs.seconds(self._work[trial.cell].cell, trial))

    def _study_cost(self, work: Work) -> float:
        study = work.cell.study
        return math.nan if study is None else self._costs.seconds(work.cell, study.template)

    def _takes_more(self, cell: Cell) -> bool:
        """Until a trial of a cell has trained an epoch, no more of them run than may fail alike."""
        alike = max(map(len, self._errors[cell].values()), default=0)
        return cell in self._sound or self._running[cell] < max(1, EQUAL_ERRORS - alike)

    def _drawn(self) -> Trial | None:
        """From the cell with the fewest running trials: TPE learns from those that have ended."""
        while open_cells := [cell for cell in self._drawing if self._takes_more(cell)]:
            cell = min(open_cells, key=lambda each: self._running[each])
            trial = self._samplers[cell].draw()
            self._drawing[cell] -= 1
            if trial is None or not self._drawing[cell]:
                del self._drawing[cell]
            if trial is not None:
                return trial
        return None

    def _tell(self, trial: Trial, status: Status, score: float, epoch: int) -> None:
        if trial.cell in self._samplers:
            self._samplers[trial.cell].tell(trial, status, score, epoch)


def _has_trained(work: Work) -> bool:
    return any(outcome.finished for outcome in work.cell.outcomes.values())


def _sampler(work: Work) -> Sampler:
    assert work.cell.study is not None, "only a sampled cell has samples to draw"
    return Sampler(work.cell.study, work.cell.outcomes.values(), work.trials)


def _earlier_errors(work: Work) -> dict[tuple[str, str], set[str]]:
    """(kind, signature) -> trials that failed so before and are not tried again now."""
    errors: dict[tuple[str, str], set[str]] = defaultdict(set)
    again = {trial.id for trial in work.trials}
    for outcome in work.cell.outcomes.values():
        if outcome.kind in HOLDING and outcome.trial.id not in again:
            errors[str(outcome.kind), signature(outcome.error)].add(outcome.trial.id)
    return errors


def _rank(cost: float) -> float:
    """Cells of unknown cost lead, in the plan's order: they may be the longest."""
    return -math.inf if math.isnan(cost) else -cost


class PlanSearcher(Searcher):  # type: ignore[misc]
    """Tune's way to the queue."""

    def __init__(
        self,
        queue: Queue,
        attempts: dict[str, Attempt],
        configure: Callable[[Attempt], dict[str, Any]],
        before: Callable[[Attempt], None],
        room: Callable[[], int],
    ) -> None:
        """`attempts` holds what is out: this fills in the attempt behind each of Tune's trial ids,
        at most `room()` at a time. `before` is called for each before Tune learns of it."""
        super().__init__(metric="score", mode="max")
        self._queue, self._attempts = queue, attempts
        self._configure, self._before, self._room = configure, before, room
        self._began, self._handed = time.time(), 0

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its searcher for a restore that is never asked for."""
        return {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        full = len(self._attempts) >= self._room()
        attempt = None if full else self._queue.next()
        if attempt is None:
            finished: str = Searcher.FINISHED
            return finished if self._queue.finished else None
        self._before(attempt)
        self._attempts[trial_id] = attempt
        # The first workers are started for the first trials; later ones have been waited for.
        since = self._began if self._handed < self._room() else time.time()
        self._handed += 1
        return {**self._configure(attempt), "since": since}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """The engine's callback tells the queue: Tune says less here than it knows."""

    def save(self, checkpoint_path: str) -> None:
        """The ledger is the only state."""

    def restore(self, checkpoint_path: str) -> None:
        """See `save`."""

"""Runs work to its end: the only module that builds a Tuner.

It ties together the queue that says what comes next, the actors that do it and the driver that
passes on what happens. `Tuner.restore` is not used: the ledger is the only state, so starting
again is this function with less work.
"""

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ray import tune
from ray.air.execution._internal import RayActorManager
from ray.exceptions import RayError
from ray.tune.execution import class_cache
from ray.tune.schedulers import TrialScheduler

from tabiflow import assignments
from tabiflow.checkpoints import Storage
from tabiflow.cluster import Room, gpus, joined
from tabiflow.driver import Driver, Listener, Summary
from tabiflow.ledger import Recorder
from tabiflow.pruning import AshaPerCell, InOrder
from tabiflow.registry import local
from tabiflow.registry.kinds import KINDS
from tabiflow.resolution import Resolution, Resolve, hub_commit, resolve
from tabiflow.runners import Place, metrics
from tabiflow.search import PAUSE, PlanSearcher, Queue
from tabiflow.spec import Sweep
from tabiflow.trial import Outcome, Trial
from tabiflow.work import Work
from tabiflow.worker import Worker

__all__ = ["Listener", "Options", "Summary", "ready", "run"]

ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",  # the new output looks at every trial after every event
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # it would leave running trials without an end
    "TUNE_GLOBAL_CHECKPOINT_S": "1e9",  # the ledger is the state; Tune's grows with every trial
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_RESULT_BUFFER_LENGTH": "1000",  # see Worker.train_buffered
}
"""Settings of Tune that it reads from nowhere else."""
EVENT_WAIT = 1.0
"""Seconds that Tune's loop waits for an event at most."""
MOST = 10_000
"""Trials at a time, in any cluster."""
Curves = Mapping[str, Sequence[tuple[int, float]]]
"""(epoch, score) points by run id."""


@dataclass(frozen=True)
class Options:
    """How to run, which changes no result."""

    workers: int | None = None
    """Trials at a time, at most; None is as many as fit."""
    address: str | None = None
    """Of a running Ray to join."""
    pause: float = PAUSE
    """Seconds before another attempt after an environment fault."""
    resolve: Resolve = hub_commit


def run(
    work: Sequence[Work],
    sweep: Sweep,
    recorder: Recorder,
    outcomes: Mapping[str, Outcome],
    *,
    curves: Curves | None = None,
    listener: Listener | None = None,
    options: Options | None = None,
) -> Summary:
    """Returns when nothing is left to hand out, or after the first Ctrl-C or SIGTERM.

    `outcomes` is all that the ledger knows, by trial id; `curves` is needed where the sweep prunes.
    Raises what the recorder raises, and UserError where no trial could run.
    """
    if not work:
        return Summary()
    options = options or Options()
    resolution = _resolved(work, sweep, outcomes, options)
    queue = Queue(work, outcomes, sweep.limits, options.pause)
    with _joined(options):
        where = assignments.place(sweep, recorder.id)
        told = assignments.Assignments(sweep, resolution, where, has_gpus=gpus() > 0)
        driver = Driver(queue, recorder, listener, _storage(where, outcomes), told.roomier)
        _open_cells(driver, work, recorder, resolution)
        room = _room(work, sweep, options)
        searcher = PlanSearcher(queue, driver.attempts, told.config, driver.open_test, room)
        scheduler = _scheduler(work, sweep, driver, curves or {})
        with _stopped_by_signals(driver.stop):
            while not queue.finished:
                _fit(searcher, scheduler, driver)
    return driver.end()


@contextmanager
def ready(work: Sequence[Work], sweep: Sweep, options: Options) -> Iterator[None]:
    """Ray, kept for `run` inside the block, and what the trials will write to.

    Raises UserError, before anything is recorded, where no trial could run.
    """
    if sweep.runner == "finetune":
        local.check_cache()
    with _joined(options):
        _room(work, sweep, options)
        if (named := assignments.place(sweep, "")) and named.address == assignments.named(sweep):
            Storage(named.address, named.record).check()
        yield


@contextmanager
def _joined(options: Options) -> Iterator[None]:
    # Ray's own notices go to standard output, which belongs to the command's answer.
    with redirect_stdout(sys.stderr), joined(options.address, options.workers):
        yield


def _room(work: Sequence[Work], sweep: Sweep, options: Options) -> Room:
    has_gpus = gpus() > 0
    needs = (assignments.need(sweep, each.cell.model, has_gpus=has_gpus) for each in work)
    return Room(needs, options.workers)


def _storage(place: Place | None, outcomes: Mapping[str, Outcome]) -> Storage | None:
    if place is None:
        return None
    storage = Storage(place.address, place.record)
    # A driver that died could not; a lost attempt may have written after its trial's end.
    storage.tidy({id for id, outcome in outcomes.items() if outcome.finished})
    return storage


def _resolved(
    work: Sequence[Work], sweep: Sweep, outcomes: Mapping[str, Outcome], options: Options
) -> Resolution:
    if sweep.runner == "rehearse":
        return Resolution()
    metrics.check(sweep.metrics)
    return resolve(work, outcomes.values(), options.resolve)


def _open_cells(
    driver: Driver, work: Sequence[Work], recorder: Recorder, resolution: Resolution
) -> None:
    for each in work:
        row = each.cell.dataset
        facts = resolution.facts(each)
        recorder.cell(each.cell.cell, row.group, KINDS[row.task].metric, facts)
    for hold in resolution.holds:
        driver.hold(hold)


def _scheduler(
    work: Sequence[Work], sweep: Sweep, driver: Driver, curves: Curves
) -> TrialScheduler:
    if sweep.pruning is None:
        return InOrder()

    def trial_of(tune_id: str) -> Trial:
        return driver.attempts[tune_id].trial

    scheduler = AshaPerCell(sweep.pruning, trial_of)
    known = (outcome for each in work for outcome in each.cell.outcomes.values())
    scheduler.refill((each.trial, curves.get(each.run_id, ())) for each in known)
    return scheduler


def _fit(searcher: PlanSearcher, scheduler: TrialScheduler, driver: Driver) -> None:
    with _quiet(), _patient(), _plain(), tempfile.TemporaryDirectory(prefix="tabiflow-") as folder:
        tuner = tune.Tuner(
            Worker,
            tune_config=tune.TuneConfig(
                num_samples=-1,
                search_alg=searcher,
                scheduler=scheduler,
                # Without it Tune lets one trial wait at a time for a searcher it does not know;
                # the searcher itself knows how many may run.
                max_concurrent_trials=MOST,
                reuse_actors=True,
                trial_name_creator=_tune_id,
                trial_dirname_creator=_tune_id,
            ),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=folder,
                callbacks=[driver],
                stop=driver.brake,
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                verbose=0,
            ),
        )
        try:
            tuner.fit()
        except RuntimeError as error:
            # Tune 2.60 gives up as a whole where Ray's memory monitor has killed an actor.
            if not isinstance(error.__cause__, RayError):
                raise
            driver.lost(error.__cause__)


def _tune_id(trial: Any) -> str:
    return str(trial.trial_id)


@contextmanager
def _quiet() -> Iterator[None]:
    """Tune says nothing: what is worth saying comes from the driver."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    logger = logging.getLogger("ray.tune")
    level = logger.level
    os.environ.update(ENVIRONMENT)
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({name: value} if value is not None else {})


@contextmanager
def _patient() -> Iterator[None]:
    """Tune would look for events ten times a second, which slows trials down on busy cores. It has
    no setting for that."""
    look = RayActorManager.next

    def wait(manager: RayActorManager, timeout: float | None = None) -> bool:
        return bool(look(manager, None if timeout is None else max(timeout, EVENT_WAIT)))

    RayActorManager.next = wait
    try:
        yield
    finally:
        RayActorManager.next = look


@contextmanager
def _plain() -> Iterator[None]:
    """Tune would give its actors a variable for PyTorch Lightning, and with it processes of their
    own: started late, Ray imported twice, beside those that Ray has started already."""
    before = class_cache.DEFAULT_ENV_VARS
    class_cache.DEFAULT_ENV_VARS = {}
    try:
        yield
    finally:
        class_cache.DEFAULT_ENV_VARS = before


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """The first signal stops in order; the second does what it did before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def first(number: int, frame: FrameType | None) -> None:
        restore()
        stop()

    for number in before:
        signal.signal(number, first)
    try:
        yield
    finally:
        restore()

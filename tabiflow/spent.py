"""Where the seconds of workers go: measured by the worker, summed up for a sweep.

A worker is allocated from when the sweep asked for it until the sweep's session ends. Only training
steps and validation passes of trials that count are useful; every other second has a name, too.
"""

import os
import socket
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields

from tabiflow.trial import Outcome

Facts = Mapping[str, str | int | float]


class Stay:
    """One attempt's time on a worker, told by the worker's clock."""

    def __init__(self, since: float, *, fresh: bool) -> None:
        """`since`: seconds since 1970 from when on the worker is this attempt's. `fresh`: the
        worker's process has been started for it."""
        self._since, self._fresh = since, fresh
        self._began, self._working = time.time(), 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._working += time.perf_counter() - started

    def facts(self) -> dict[str, str | int | float]:
        now = time.time()
        held, before = now - self._began, max(0.0, self._began - self._since)
        return {
            "worker": f"{socket.gethostname()}:{os.getpid()}",
            "held_seconds": round(held, 3),
            "tracking_seconds": round(max(0.0, held - self._working), 3),
            "waiting_seconds": 0.0 if self._fresh else round(before, 3),
            "process_seconds": round(before, 3) if self._fresh else 0.0,
            "left_at": round(now, 3),
        }


@dataclass(frozen=True)
class Spent:
    """Seconds of allocated workers."""

    training: float = 0.0
    validation: float = 0.0
    start: float = 0.0
    """Processes, imports, loading and compiling models, writing checkpoints."""
    data: float = 0.0
    """Reading and encoding rows."""
    tracking: float = 0.0
    """Between a trial's reports: the driver has them."""
    waiting: float = 0.0
    """Between trials, and until the last worker is done."""

    @property
    def allocated(self) -> float:
        return float(sum(getattr(self, each.name) for each in fields(self)))

    @property
    def useful(self) -> float:
        """The share of training steps and validation passes; NaN of nothing."""
        allocated = self.allocated
        return (self.training + self.validation) / allocated if allocated else float("nan")

    def __add__(self, other: "Spent") -> "Spent":
        pairs = ((getattr(self, each.name), getattr(other, each.name)) for each in fields(self))
        return Spent(*(mine + theirs for mine, theirs in pairs))

    @classmethod
    def of(cls, facts: Facts) -> "Spent | None":
        """Of one attempt, from what was recorded with it; None where too little was."""
        if not {"held_seconds", "train_seconds"} <= facts.keys():
            return None

        def told(name: str) -> float:
            return float(facts.get(f"{name}_seconds", 0.0))

        # A resumed trial's figures are of all its attempts, but an earlier one held other workers.
        training = told("train") - told("earlier_train")
        validation = told("validation") - told("earlier_validation")
        inside = told("held") - told("tracking")
        rest = max(0.0, inside - training - validation - told("data"))
        return cls(
            training,
            validation,
            told("process") + rest,
            told("data"),
            told("tracking"),
            told("waiting"),
        )


def with_useful(facts: Facts) -> dict[str, str | int | float]:
    """The same facts, with the share of a trial's seconds that its protocol needs."""
    found = Spent.of(facts)
    return {**facts, **({"useful_fraction": round(found.useful, 4)} if found else {})}


def together(told: Iterable[Facts]) -> Spent:
    """Of all trials, by what was recorded with each, where anything was; with what their workers
    waited at each session's end."""
    pairs = [(facts, found) for facts in told if (found := Spent.of(facts)) is not None]
    return sum((found for _, found in pairs), Spent(waiting=_tails(facts for facts, _ in pairs)))


def kept(facts: Facts) -> dict[str, str | int | float]:
    """What `together` needs of them."""
    names = ("worker", "left_at")
    return {name: facts[name] for name in facts if name.endswith("_seconds") or name in names}


def summary(told: Iterable[Facts]) -> dict[str, str]:
    """As tags of a sweep's experiment; empty where no trial has told."""
    spent = together(told)
    if not spent.allocated:
        return {}
    parts = {f"{name}_seconds": f"{each:.1f}" for name, each in asdict(spent).items()}
    return {"useful_fraction": f"{spent.useful:.4f}", **parts}


def last_workers(outcomes: Iterable[Outcome]) -> int:
    """How many workers the latest session had; 0 where none has told."""
    told = [each for each in outcomes if "worker" in each.tags]
    if not told:
        return 0
    driver = max(told, key=lambda each: float(each.tags["left_at"])).tags.get("driver")
    return len({each.tags["worker"] for each in told if each.tags.get("driver") == driver})


def _tails(told: Iterable[Facts]) -> float:
    """Seconds between each worker's last trial and the last one of all workers of its driver."""
    left: dict[str, dict[str, float]] = defaultdict(dict)
    for tags in told:
        workers, worker = left[str(tags.get("driver", ""))], str(tags["worker"])
        workers[worker] = max(workers.get(worker, 0.0), float(tags["left_at"]))
    return sum(max(ends.values()) - end for ends in left.values() for end in ends.values())

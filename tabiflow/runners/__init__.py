"""Ways to run one trial. A runner yields an `Epoch` after each epoch and returns a `Result`.

Each runner is imported only by the worker that needs it: the heavy libraries live behind it.
"""

import gc
import json
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from typing import Protocol

from tabiflow.spec import Dataset, Keeping, Model
from tabiflow.trial import Epoch, Opening, Result, Trial


@dataclass(frozen=True)
class Place:
    """Where a sweep's checkpoints are: what `tabiflow.checkpoints.Storage` is made of."""

    address: str
    record: str


@dataclass(frozen=True)
class Job:
    """Everything a worker is told about one attempt. Travels as JSON."""

    trial: Trial
    attempt: int
    model: Model
    dataset: Dataset
    metrics: tuple[str, ...] = ()
    """Additional `evaluate` modules to record beside the headline."""
    opening: Opening | None = None
    """Present only when the trial may read the test split."""
    cpus: float = 1
    place: Place | None = None
    """Where the trial is written down between epochs; None is nowhere."""
    keeping: Keeping = "auto"

    def to_json(self) -> str:
        opening = None if self.opening is None else asdict(self.opening)
        place = None if self.place is None else asdict(self.place)
        fields = {
            "trial": self.trial.to_json(),
            "attempt": self.attempt,
            "model": self.model.model_dump(mode="json"),
            "dataset": self.dataset.model_dump(mode="json"),
            "metrics": self.metrics,
            "opening": opening,
            "cpus": self.cpus,
            "place": place,
            "keeping": self.keeping,
        }
        return json.dumps(fields, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Job":
        fields = json.loads(text)
        return cls(
            trial=Trial.from_json(fields["trial"]),
            attempt=fields["attempt"],
            model=Model(**fields["model"]),
            dataset=Dataset(**fields["dataset"]),
            metrics=tuple(fields["metrics"]),
            opening=Opening(**fields["opening"]) if fields["opening"] else None,
            cpus=fields["cpus"],
            place=Place(**fields["place"]) if fields["place"] else None,
            keeping=fields["keeping"],
        )


class Runner(Protocol):
    def __call__(self, job: Job) -> Generator[Epoch, None, Result]:
        """Raises whatever went wrong; `tabiflow.runners.failures` gives it a kind.

        `Interrupted` thrown into it between two epochs asks it to write down where it is.
        """


RUNNERS: Mapping[str, str] = {
    "finetune": "tabiflow.runners.finetune",
    "rehearse": "tabiflow.runners.rehearse",
}
"""Name -> the module whose `run` is the runner."""


@cache
def runner(name: str) -> Runner:
    """Once a process: no collection of garbage walks the libraries' objects, which all stay."""
    gc.disable()
    try:
        run: Runner = import_module(RUNNERS[name]).run
        gc.freeze()
    finally:
        gc.enable()
    return run

"""Which share of a GPU a model's trials would fit into, by the memory that they have used."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tabiflow.trial import Outcome

SPARE = 0.1
"""Of a GPU's memory, left to CUDA itself and to what the allocator cannot use."""
MOST = 8
"""Trials on one GPU."""


@dataclass(frozen=True)
class Fit:
    model: str
    device: str
    peak_mb: float
    """The most of all its finished trials."""
    memory_mb: float
    """The device's."""

    @property
    def share(self) -> float:
        """The smallest of 1/8, 1/7, ..., 1; over 1 where not even a whole device leaves room."""
        together = int(self.memory_mb * (1 - SPARE) / self.peak_mb)
        return 1 / min(MOST, together) if together else self.peak_mb / self.memory_mb / (1 - SPARE)


def fits(outcomes: Iterable[Outcome]) -> Iterator[Fit]:
    """By model and device, of trials on GPUs."""
    peaks: dict[tuple[str, str, float], float] = defaultdict(float)
    for each in outcomes:
        if each.finished and "device_memory_mb" in each.tags:
            key = (each.trial.model, each.tags["device"], float(each.tags["device_memory_mb"]))
            peaks[key] = max(peaks[key], float(each.tags["peak_memory_mb"]))
    for (model, device, memory), peak in sorted(peaks.items()):
        if peak:
            yield Fit(model, device, peak, memory)

"""The Ray that trials run on: joined where there is one, started and ended here where not."""

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import ray

from tabiflow.errors import UserError

OBJECT_STORE = 200 * 1024**2
"""Bytes. Reports are small: Ray's default would take a third of the memory from the trials."""


@dataclass(frozen=True)
class Need:
    """What one trial occupies."""

    cpus: float
    gpus: float


@contextmanager
def joined(address: str | None = None, workers: int | None = None) -> Iterator[None]:
    """`workers` sizes a Ray that is started here, with a CPU each; by default all cores."""
    address = address or os.environ.get("RAY_ADDRESS")
    if ray.is_initialized():
        yield
        return
    quiet = {"log_to_driver": False, "logging_level": logging.WARNING}
    if address:
        ray.init(address=address, **quiet)
    else:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(
            num_cpus=max(workers or 0, os.cpu_count() or 1),
            include_dashboard=False,
            object_store_memory=OBJECT_STORE,
            **quiet,
        )
    try:
        yield
    finally:
        ray.shutdown()


def gpus() -> float:
    """All GPUs of the cluster."""
    return float(ray.cluster_resources().get("GPU", 0.0))


def capacity(needs: Iterable[Need], workers: int | None = None) -> int:
    """Trials that run at a time; at most `workers`. Raises UserError when some never could."""
    has = ray.cluster_resources()
    fits = []
    for need in set(needs):
        wanted = {"CPU": need.cpus, "GPU": need.gpus}
        fit = min(int(has.get(name, 0) / share) for name, share in wanted.items() if share)
        if fit < 1 and workers is None:
            raise UserError(
                f"a trial takes {need.cpus:g} CPUs and {need.gpus:g} GPUs, "
                f"the cluster has {has.get('CPU', 0):g} and {has.get('GPU', 0):g}",
                hint="change `cpus` or `gpus` of the sweep or the model's row",
            )
        fits.append(fit)
    most = max(fits, default=1)
    return max(1, min(most, workers)) if workers else most

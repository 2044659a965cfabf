"""Whether a cluster has room for replicas, and if not, what is missing, in words."""

from collections.abc import Mapping
from dataclasses import dataclass

import ray

from tabiflow import cluster
from tabiflow.errors import UserError


@dataclass(frozen=True)
class Demand:
    """What one replica occupies."""

    cpus: float
    gpus: float
    processes: int = 1
    """That share its weights; they may lie on different nodes."""

    @property
    def of_each(self) -> dict[str, float]:
        return {"CPU": self.cpus, "GPU": self.gpus}


def check(demand: Demand, replicas: int) -> None:
    """Raises UserError where the cluster could never hold them, with all that it may yet add."""
    room = cluster.room_for(demand.of_each)
    wanted = replicas * demand.processes
    if room >= wanted:
        return
    each = f"{demand.processes} x " if demand.processes > 1 else ""
    raise UserError(
        f"no room for {_counted(replicas)} with {each}{_named(demand.of_each)}: {room} of the "
        f"{wanted} fit, the largest node has {_named(cluster.largest(tuple(demand.of_each)))}",
        hint="change `replicas`, `cpus` or `gpus` of the model's row, or add nodes",
    )


def shortage(demand: Demand, replicas: int) -> str:
    """Of what there is too little just now; empty where there is enough."""
    total, free = ray.cluster_resources(), ray.available_resources()
    wanted = {name: each * demand.processes * replicas for name, each in demand.of_each.items()}
    short = [
        f"{_counted(replicas)} need {share:g} {name}, {free.get(name, 0.0):g} of "
        f"{total.get(name, 0.0):g} are free"
        for name, share in wanted.items()
        if share > total.get(name, 0.0)
    ]
    return "; ".join(short)


def _counted(replicas: int) -> str:
    return "1 replica" if replicas == 1 else f"{replicas} replicas"


def _named(resources: Mapping[str, float]) -> str:
    return " and ".join(f"{share:g} {name}" for name, share in resources.items())

"""The Ray that trials run on: joined where there is one, started and ended here where not."""

import logging
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray._private.node import Node
from ruamel.yaml import YAML

from tabiflow.errors import UserError

log = logging.getLogger(__name__)

STARTS = 3
OBJECT_STORE = 200 * 1024**2
"""Bytes. Reports are small: Ray's default would take a third of the memory from the trials."""
UNASKED = ("start_api_server", "start_monitor", "start_log_monitor")
"""What a Ray of one command has no use for: it has no dashboard, no nodes to add and shows no
worker's log. Each is a process that imports Ray beside us, and the first is waited for."""
NEWS = 1.0
"""Seconds between two looks at the nodes."""


@dataclass(frozen=True)
class Need:
    """What one trial occupies."""

    cpus: float
    gpus: float


@contextmanager
def joined(address: str | None = None, workers: int | None = None) -> Iterator[None]:
    """`workers` sizes a Ray that is started here, with a CPU each; by default all cores."""
    address = address or _address()
    if ray.is_initialized():
        yield
        return
    quiet = {"log_to_driver": False, "logging_level": logging.WARNING}
    if address:
        ray.init(address=address, **quiet)
    else:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        _start(
            num_cpus=max(workers or 0, os.cpu_count() or 1),
            include_dashboard=False,
            object_store_memory=OBJECT_STORE,
            **quiet,
        )
    try:
        yield
    finally:
        ray.shutdown()


def _start(**settings: Any) -> None:
    """Ray gives itself 30 seconds, which a busy machine may exceed."""
    for left in reversed(range(STARTS)):
        try:
            with _nothing_unasked():
                ray.init(**settings)
            return
        except Exception as error:  # Ray 2.60 raises nothing narrower.
            if not left:
                raise UserError(f"Ray does not start: {error}", hint="try again later") from error
            log.warning("Ray did not start in time; once more")


@contextmanager
def _nothing_unasked() -> Iterator[None]:
    """`ray.init` has no settings for it. The monitor would cost the end a second as well: it
    reports its end to a server that is gone, until it is killed."""
    before = {name: getattr(Node, name) for name in UNASKED if hasattr(Node, name)}
    for name in before:
        setattr(Node, name, lambda node, **settings: None)
    try:
        yield
    finally:
        for name, start in before.items():
            setattr(Node, name, start)


def _address() -> str | None:
    return os.environ.get("RAY_ADDRESS")


def gpus() -> float:
    """All GPUs of the cluster, with those that its autoscaler may yet add."""
    return sum(node.get("GPU", 0.0) for node in (*_nodes(), *_promised()))


def most_cpus(need: Need) -> float:
    """CPUs of the largest node that could hold it; its own where none is there yet."""
    fitting = (node for node in _nodes() if _fit(need, [node]))
    return max((node["CPU"] for node in fitting), default=need.cpus)


class Room:
    """How many trials may be out at a time: follows the nodes as they join and leave.

    As many as the autoscaler could make fit: only trials that wait make it add nodes.
    """

    def __init__(self, needs: Iterable[Need], workers: int | None = None) -> None:
        """At most `workers`. Raises UserError for a trial that no node could ever hold."""
        self._needs, self._workers = frozenset(needs), workers
        self._promised = _promised()
        self._asked, self._most = -math.inf, 1
        for need in self._needs:
            if not _fit(need, [*_nodes(), *self._promised]):
                raise _never_fits(need)

    def __call__(self) -> int:
        if time.monotonic() - self._asked > NEWS:
            nodes = _nodes()
            fits = [max(_fit(each, nodes), _fit(each, self._promised)) for each in self._needs]
            self._asked, self._most = time.monotonic(), max(fits, default=1)
        return max(1, min(self._most, self._workers or self._most))


def _never_fits(need: Need) -> UserError:
    most = [max((node.get(name, 0.0) for node in _nodes()), default=0.0) for name in ("CPU", "GPU")]
    return UserError(
        f"a trial takes {need.cpus:g} CPUs and {need.gpus:g} GPUs, "
        f"the cluster's largest node has {most[0]:g} and {most[1]:g}",
        hint="change `cpus` or `gpus` of the sweep or the model's row",
    )


Resources = Mapping[str, float]


def _fit(need: Need, nodes: Iterable[Resources]) -> int:
    wanted = {"CPU": need.cpus, "GPU": need.gpus}
    return sum(
        min(int(node.get(name, 0) / share) for name, share in wanted.items() if share)
        for node in nodes
    )


def _nodes() -> list[Resources]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _promised() -> list[Resources]:
    """The workers that the autoscaler may have at most, by the file that `ray up` leaves."""
    file = launched()
    workers = [
        kind.get("resources", {})
        for name, kind in file.get("available_node_types", {}).items()
        if name != file.get("head_node_type")
        for _ in range(kind.get("max_workers", 0))
    ]
    return workers[: file.get("max_workers", len(workers))]


def launched() -> dict[str, Any]:
    """What `ray up` was told. It leaves this on the head, so nobody else has an autoscaler."""
    file = Path.home() / "ray_bootstrap_config.yaml"
    if _address() is None or not file.is_file():
        return {}
    found: dict[str, Any] = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))
    return found


def room_for(need: Resources) -> int:
    """How many processes of this need all nodes could hold, those yet to be added included."""
    return sum(
        min((int(node.get(name, 0) / share) for name, share in need.items() if share), default=0)
        for node in (*_nodes(), *_promised())
    )


def largest(names: Iterable[str]) -> Resources:
    """The most of each resource that one node has."""
    return {name: max((node.get(name, 0.0) for node in _nodes()), default=0.0) for name in names}

"""What every node of a running cluster is like, asked from its head: for `doctor --cluster`.

Facts only; what is wrong with them is judged where they are read.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from uuid import uuid4

import ray
from pyarrow import ArrowException
from pyarrow.fs import FileSystem
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tabiflow.cluster import joined, launched
from tabiflow.provenance import RECORDED, code_commit
from tabiflow.runners.failures import one_line

ANSWER = 120.0
"""Seconds for a node to say what it is: it imports a few libraries first."""
KNOCK = 10
"""Seconds for a machine to answer ssh."""
KEY = "~/ray_bootstrap_key.pem"
"""Where `ray up` leaves the head its key to the workers."""


@dataclass(frozen=True)
class Node:
    address: str
    head: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    storage: str = ""
    """Why the shared folder cannot be used; empty where it can."""
    hub_cache: str = ""
    """Why models and data of the hub cannot be kept; empty where they can."""
    error: str = ""
    """Why nothing of this is known."""


@dataclass(frozen=True)
class Missing:
    """A machine that the cluster file names and that has not joined."""

    address: str
    error: str
    command: str


def look() -> dict[str, Any]:
    """All nodes that are up, and those of a local cluster that are not."""
    storage = os.environ.get("TABIFLOW_STORAGE")
    with redirect_stdout(sys.stderr), joined():
        probe = _leave(storage) if storage else None
        here = ray.get_runtime_context().get_node_id()
        nodes = [node for node in ray.nodes() if node["Alive"]]
        asked = [_ask(node, node["NodeID"] == here, storage, probe) for node in nodes]
        found = [_heard(node, answer) for node, answer in zip(nodes, asked, strict=True)]
    if storage and probe:
        _remove(storage, probe)
    missing = list(_missing({node.address for node in found}))
    return {
        "nodes": [asdict(node) for node in found],
        "missing": [asdict(each) for each in missing],
        "least": _least(),
        "storage": storage,
    }


def _ask(node: dict[str, Any], head: bool, storage: str | None, probe: str | None) -> Any:
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    described = ray.remote(num_cpus=0, max_retries=0)(describe)
    return described.options(scheduling_strategy=there).remote(
        node["NodeManagerAddress"], head, storage, probe
    )


def _heard(node: dict[str, Any], answer: Any) -> Node:
    try:
        found: Node = ray.get(answer, timeout=ANSWER)
    except ray.exceptions.RayError as error:
        return Node(node["NodeManagerAddress"], error=one_line(error))
    return found


def describe(address: str, head: bool, storage: str | None, probe: str | None) -> Node:
    """Runs on the node itself."""
    return Node(
        address,
        head,
        dict(_versions()),
        _storage_fault(storage, probe) if storage else "",
        _cache_fault(),
    )


def _versions() -> Iterator[tuple[str, str]]:
    yield "python", platform.python_version()
    for package in RECORDED:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "not installed"
    yield "code", code_commit()


def _storage_fault(storage: str, probe: str | None) -> str:
    try:
        files, path = _opened(storage)
        if probe and not files.get_file_info(f"{path}/{probe}").is_file:
            return "does not hold what the head has written there"
    except (OSError, ArrowException) as error:
        return one_line(error)
    return ""


def _leave(storage: str) -> str | None:
    """A file that every node must see. None where it cannot be written, which nodes tell, too."""
    name = f".doctor.{uuid4().hex}"
    try:
        files, path = _opened(storage)
        files.create_dir(path, recursive=True)
        with files.open_output_stream(f"{path}/{name}") as file:
            file.write(b"")
    except (OSError, ArrowException):
        return None
    return name


def _remove(storage: str, probe: str) -> None:
    files, path = _opened(storage)
    files.delete_file(f"{path}/{probe}")


def _opened(storage: str) -> tuple[FileSystem, str]:
    """A bucket's address, or a folder."""
    place = storage if "://" in storage else str(Path(storage).expanduser())
    files, path = FileSystem.from_uri(place)
    return files, path.rstrip("/")


def _cache_fault() -> str:
    folder = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    if not folder.is_dir():
        return f"there is no {folder}"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"{folder} cannot be written to"


def _least() -> int:
    """Workers that the cluster always has, by its file."""
    kinds = launched().get("available_node_types", {})
    head = launched().get("head_node_type")
    local = launched().get("provider", {}).get("type") == "local"
    return sum(kind.get("min_workers", 0) for name, kind in kinds.items() if local or name != head)


def _missing(up: set[str]) -> Iterator[Missing]:
    """A cloud's machines have no address before they are there."""
    file = launched()
    user = file.get("auth", {}).get("ssh_user", "")
    for address in file.get("provider", {}).get("worker_ips", ()):
        if address not in up:
            yield _knocked(address, f"ssh -i {KEY} {user}@{address} true")


def _knocked(address: str, command: str) -> Missing:
    options = "-o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    tried = f"{command.replace('ssh', f'ssh {options} -o ConnectTimeout={KNOCK}', 1)}"
    done = subprocess.run(tried, shell=True, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if not line.startswith("Warning")]
        return Missing(address, f"no ssh from the head: {(said or ['no answer'])[-1]}", command)
    told = "answers ssh, but its setup or `ray start` has failed"
    log = "tail -n 50 /tmp/ray/session_latest/logs/monitor.out"
    return Missing(address, told, log)

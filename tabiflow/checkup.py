"""Is a cluster fit to run a sweep? Each fault with the command that shows it.

Looks at the cluster's file, reaches its head, and judges what the head tells of all nodes.
"""

import json
import os
import platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tabiflow.doctor import Finding
from tabiflow.remote import Answer, Cluster, ClusterError

TOKEN = "auth_token"
MODE = "RAY_AUTH_MODE=token"
COMMANDS = ("setup_commands", "head_start_ray_commands", "worker_start_ray_commands")
EVERYWHERE = ("--dashboard-host=0.0.0.0", "--host 0.0.0.0", "--host=0.0.0.0")
"""Options that open the dashboard or MLflow to whoever reaches the head."""


def examine(cluster: Cluster) -> Iterator[Finding]:
    """In the order in which faults show; what cannot be asked any more is left out."""
    yield Finding("cluster file", "ok", str(cluster.file))
    yield from _token(cluster)
    yield from _exposed(cluster)
    try:
        cluster.run("true")
    except ClusterError as error:
        yield Finding("ssh", "fault", error.message, error.hint or "")
        return
    yield Finding("ssh", "ok", "the head answers")
    yield from _running(cluster)


def _token(cluster: Cluster) -> Iterator[Finding]:
    mounts = {
        target: Path(source).expanduser()
        for target, source in (cluster.content.get("file_mounts") or {}).items()
        if target.endswith(TOKEN)
    }
    advice = "ray get-auth-token --generate"
    if not mounts:
        told = f"no {TOKEN} among `file_mounts`: nodes would not let each other in"
        yield Finding("token", "fault", told, advice)
    for source in mounts.values():
        if not source.is_file() or not source.read_text().strip():
            yield Finding("token", "fault", f"{source} is missing or empty", advice)
        elif source.stat().st_mode & 0o077:
            yield Finding("token", "warning", f"others can read {source}", f"chmod 600 {source}")
        else:
            yield Finding("token", "ok", str(source))
    if MODE not in _commands(cluster):
        told = f"no command sets {MODE}: Ray may let anybody in"
        yield Finding("token", "fault", told, f"add `export {MODE}` before `ray start`")


def _exposed(cluster: Cluster) -> Iterator[Finding]:
    commands = _commands(cluster)
    for option in EVERYWHERE:
        if option in commands:
            told = f"`{option}` opens a port to whoever reaches the head"
            yield Finding("ports", "fault", told, "bind to 127.0.0.1; `tabiflow ui` goes by ssh")


def _commands(cluster: Cluster) -> str:
    content = cluster.content
    kinds = (content.get("available_node_types") or {}).values()
    places = [content, *kinds]
    return "\n".join(
        line
        for place in places
        for name in (*COMMANDS, "head_setup_commands", "worker_setup_commands")
        for line in place.get(name) or ()
    )


def _running(cluster: Cluster) -> Iterator[Finding]:
    command = "tabiflow job nodes"
    answer = cluster.run(command)
    if answer.code:
        yield Finding("head", "fault", _last(answer), cluster.exec_command(command))
        return
    found = json.loads(answer.out)
    yield from judged(found, cluster)
    yield from _head(cluster)


def judged(found: Mapping[str, Any], cluster: Cluster) -> Iterator[Finding]:
    """What the head tells, as findings."""
    nodes: list[dict[str, Any]] = found["nodes"]
    yield from _nodes(nodes, found["missing"], found["least"], cluster)
    heard = [node for node in nodes if not node["error"]]
    yield from _versions(heard, cluster)
    yield from _storage(found["storage"], heard, cluster)
    yield from _caches(heard, cluster)


def _nodes(
    nodes: Sequence[Mapping[str, Any]],
    missing: Sequence[Mapping[str, str]],
    least: int,
    cluster: Cluster,
) -> Iterator[Finding]:
    up = ", ".join(node["address"] for node in nodes)
    yield Finding("nodes", "ok", f"{len(nodes)} are up: {up}")
    for each in missing:
        told = f"never joined: {each['error']}"
        yield Finding(each["address"], "fault", told, cluster.exec_command(each["command"]))
    if not missing and len(nodes) - 1 < least:
        told = f"{len(nodes) - 1} of at least {least} workers have joined"
        yield Finding("workers", "fault", told, f"ray monitor {cluster.shown}")
    for node in nodes:
        if node["error"]:
            told = f"cannot run tabiflow: {node['error']}"
            yield Finding(node["address"], "fault", told, _on(node, "tabiflow doctor", cluster))


def _versions(nodes: Sequence[Mapping[str, Any]], cluster: Cluster) -> Iterator[Finding]:
    head = next((node for node in nodes if node["head"]), None)
    if head is None:
        return
    same = True
    for node in nodes:
        for name, number in head["versions"].items():
            if node["versions"].get(name) != number:
                same = False
                told = f"{name} {node['versions'].get(name, '–')}, but {number} on the head"
                command = f"pip show {name}" if name not in ("python", "code") else "git log -1"
                yield Finding(node["address"], "fault", told, _on(node, command, cluster))
    for name, number in (("python", platform.python_version()), ("ray", version("ray"))):
        if head["versions"][name] != number:
            told = f"{name} {head['versions'][name]} on the head, {number} here"
            yield Finding("versions", "warning", told, f"ray up {cluster.shown}")
    if same:
        shown = ", ".join(f"{name} {number}" for name, number in head["versions"].items())
        yield Finding("versions", "ok", shown)


def _storage(
    place: str | None, nodes: Sequence[Mapping[str, Any]], cluster: Cluster
) -> Iterator[Finding]:
    if not place:
        told = "no shared storage is named: trials of a lost node would start anew"
        advice = "`export TABIFLOW_STORAGE=...` in the cluster file's cluster.sh"
        yield Finding("storage", "fault", told, advice)
        return
    failing = [node for node in nodes if node["storage"]]
    for node in failing:
        told = f"storage {place}: {node['storage']}"
        yield Finding(node["address"], "fault", told, _on(node, f"ls -ld {place}", cluster))
    if not failing:
        yield Finding("storage", "ok", f"{place}, the same on {len(nodes)} nodes")


def _caches(nodes: Sequence[Mapping[str, Any]], cluster: Cluster) -> Iterator[Finding]:
    failing = [node for node in nodes if node["hub_cache"]]
    for node in failing:
        told = f"hub cache: {node['hub_cache']}"
        command = _on(node, 'mkdir -p "${HF_HOME:-$HOME/.cache/huggingface}"', cluster)
        yield Finding(node["address"], "fault", told, command)
    if not failing:
        yield Finding("hub cache", "ok", f"writable on {len(nodes)} nodes")


def _head(cluster: Cluster) -> Iterator[Finding]:
    """What `doctor` finds on the head: the ledger, the disk, the hub."""
    command = "tabiflow doctor --json"
    answer = cluster.run(command)
    try:
        findings = json.loads(answer.out)["findings"]
    except (ValueError, KeyError):
        yield Finding("head", "fault", _last(answer), cluster.exec_command(command))
        return
    for each in findings:
        if each["state"] != "ok" or each["subject"] == "ledger":
            yield Finding(f"head: {each['subject']}", each["state"], each["detail"], each["advice"])


def _on(node: Mapping[str, Any], command: str, cluster: Cluster) -> str:
    """The command that shows it, from here."""
    if node["head"]:
        return cluster.exec_command(command)
    user = (cluster.content.get("auth") or {}).get("ssh_user", os.environ.get("USER", "root"))
    there = f"ssh -i ~/ray_bootstrap_key.pem {user}@{node['address']} {shlex.quote(command)}"
    return cluster.exec_command(there)


def _last(answer: Answer) -> str:
    lines = [line for line in (answer.err or answer.out).splitlines() if line.strip()]
    return lines[-1] if lines else f"ended with {answer.code}"

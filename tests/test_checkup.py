"""Doctor of a cluster: every fault is named, with the command that shows it."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster as Nodes

from tabiflow import nodes
from tabiflow.checkup import examine, judged
from tabiflow.doctor import Finding
from tabiflow.remote import Cluster

FILE = """
cluster_name: {name}
provider: {{type: local, head_ip: 10.0.0.1, worker_ips: [10.0.0.2]}}
auth: {{ssh_user: me}}
file_mounts: {{~/.ray/auth_token: {token}}}
setup_commands: ["export RAY_AUTH_MODE=token"]
head_start_ray_commands: ["ray start --head {options}"]
"""
ROOT = Path(__file__).parent.parent
VERSIONS = {"python": "3.11.7", "ray": "2.60.0", "torch": "2.13.0", "code": "abc"}


def cluster(
    folder: Path, *, token: str = "0" * 64, mode: int = 0o600, options: str = ""
) -> Cluster:
    kept = folder / "auth_token"
    kept.write_text(token)
    kept.chmod(mode)
    file = folder / "mine.yaml"
    # Ray remembers clusters by their name.
    file.write_text(FILE.format(name=folder.name, token=kept, options=options))
    return Cluster.read(file)


def node(address: str, **facts: Any) -> dict[str, Any]:
    plain = {"head": False, "versions": VERSIONS, "storage": "", "hub_cache": "", "error": ""}
    return {"address": address, **plain, **facts}


def told(*found: dict[str, Any], **more: Any) -> dict[str, Any]:
    head = node("10.0.0.1", head=True)
    return {"nodes": [head, *found], "missing": [], "least": 0, "storage": "/mnt/x", **more}


def faults(findings: Any) -> list[Finding]:
    return [each for each in findings if each.state == "fault"]


def test_a_cluster_whose_nodes_agree_has_no_fault(tmp_path: Path) -> None:
    assert not faults(judged(told(node("10.0.0.2")), cluster(tmp_path)))


@pytest.mark.parametrize(
    ("found", "subject", "detail", "advice"),
    [
        (
            told(node("10.0.0.2", versions={**VERSIONS, "torch": "2.6.0"})),
            *("10.0.0.2", "torch 2.6.0, but 2.13.0 on the head", "10.0.0.2 'pip show torch'"),
        ),
        (
            told(node("10.0.0.2", error="ModuleNotFoundError: No module named 'tabiflow'")),
            *("10.0.0.2", "cannot run tabiflow: ModuleNotFoundError", "tabiflow doctor"),
        ),
        (
            told(node("10.0.0.2", storage="does not hold what the head has written there")),
            *("10.0.0.2", "storage /mnt/x: does not hold", "ls -ld /mnt/x"),
        ),
        (
            told(node("10.0.0.2"), storage=None),
            *("storage", "no shared storage is named", "TABIFLOW_STORAGE"),
        ),
        (
            told(node("10.0.0.2", hub_cache="there is no /x")),
            *("10.0.0.2", "hub cache: there is no /x", "mkdir -p"),
        ),
        (
            told(missing=[{"address": "10.0.0.2", "error": "no ssh", "command": "ssh 10.0.0.2"}]),
            *("10.0.0.2", "never joined: no ssh", "'ssh 10.0.0.2'"),
        ),
        (told(least=2), "workers", "0 of at least 2 workers have joined", "ray monitor"),
    ],
)
def test_each_fault_is_named_with_the_command_that_shows_it(
    found: dict[str, Any], subject: str, detail: str, advice: str, tmp_path: Path
) -> None:
    [fault] = faults(judged(found, cluster(tmp_path)))
    assert fault.subject == subject and detail in fault.detail
    # Quotes are doubled where one command holds another.
    assert advice.replace("'", "") in fault.advice.replace("'", "").replace('"', "")


def test_a_token_that_is_missing_or_open_to_others_is_named(tmp_path: Path) -> None:
    empty = next(each for each in examine(cluster(tmp_path, token="")) if each.subject == "token")
    assert empty.state == "fault" and empty.advice == "ray get-auth-token --generate"
    shared = next(
        each for each in examine(cluster(tmp_path, mode=0o644)) if each.subject == "token"
    )
    assert shared.state == "warning" and shared.advice.startswith("chmod 600")


def test_a_port_that_is_open_to_the_world_is_named(tmp_path: Path) -> None:
    open_file = cluster(tmp_path, options="--dashboard-host=0.0.0.0")
    found = next(each for each in examine(open_file) if each.subject == "ports")
    assert found.state == "fault" and "--dashboard-host=0.0.0.0" in found.detail


def test_a_cluster_that_is_not_up_is_told_from_one_that_does_not_answer(tmp_path: Path) -> None:
    mine = cluster(tmp_path)
    [fault] = faults(examine(mine))
    assert (fault.subject, fault.detail) == ("ssh", "its head is not up")
    assert fault.advice == f"run `ray up {shlex.quote(str(mine.file))}`"


def test_a_node_tells_why_its_storage_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert nodes.describe("here", True, str(tmp_path), None).storage == ""
    assert "hold" in nodes.describe("here", True, str(tmp_path), "not-there").storage
    assert nodes.describe("here", True, "s4://bucket", "probe").storage


def test_a_node_tells_that_it_has_no_hub_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    assert nodes.describe("here", True, None, None).hub_cache == f"there is no {tmp_path / 'hub'}"
    (tmp_path / "hub").mkdir()
    assert nodes.describe("here", True, None, None).hub_cache == ""


def test_a_running_cluster_is_looked_at_node_by_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local_ray: None
) -> None:
    monkeypatch.setenv("TABIFLOW_STORAGE", str(tmp_path / "shared"))
    found = nodes.look()
    [only] = found["nodes"]
    assert only["head"] and only["versions"]["ray"] and not only["error"]
    assert only["storage"] == "" and not list((tmp_path / "shared").iterdir())


@pytest.mark.slow
def test_a_node_that_is_unlike_the_head_is_told_from_it(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    well, ill = (
        {"PYTHONPATH": str(ROOT), "HF_HOME": str(tmp_path / cache)} for cache in ("hub", "none")
    )
    started = Nodes(head_node_args={"num_cpus": 1, "env_vars": well})
    try:
        started.add_node(num_cpus=1, env_vars=ill)
        found = looked({**os.environ, **well, "RAY_ADDRESS": started.address})
    finally:
        started.shutdown()
    details = {each.detail for each in faults(judged(found, cluster(tmp_path)))}
    assert f"hub cache: there is no {tmp_path / 'none'}" in details
    assert any(detail.startswith("no shared storage is named") for detail in details)


def looked(environment: dict[str, str]) -> Any:
    """From a process of its own: this one may have another Ray."""
    code = "import json; from tabiflow import nodes; print(json.dumps(nodes.look()))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)

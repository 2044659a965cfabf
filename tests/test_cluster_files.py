"""The cluster files that are shipped, and what is said of files that are wrong."""

import re
from pathlib import Path
from typing import Any

import pytest
from ray.autoscaler._private.util import prepare_config, validate_config
from ruamel.yaml import YAML

from tabiflow.cluster import Need, Room
from tabiflow.errors import SpecError
from tabiflow.remote import Cluster

ROOT = Path(__file__).parent.parent
SHIPPED = ("cluster.yaml", "cluster.local.yaml")
LOCAL = """
cluster_name: mine
provider: {type: local, head_ip: 10.0.0.1, worker_ips: [10.0.0.2]}
auth: {ssh_user: me}
"""


def content(name: str) -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe", pure=True).load((ROOT / name).read_text())
    return found


def commands(name: str, kind: str) -> str:
    return "\n".join(content(name).get(f"{kind}_commands", ()))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_file_is_what_ray_asks_for(name: str) -> None:
    validate_config(prepare_config(content(name)))
    assert Cluster.read(ROOT / name).settings.folder in content(name)["file_mounts"]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_node_asks_for_the_token_and_has_it(name: str) -> None:
    assert "~/.ray/auth_token" in content(name)["file_mounts"]
    assert "export RAY_AUTH_MODE=token" in commands(name, "setup")
    for kind in ("head_start_ray", "worker_start_ray"):
        started = [line for line in commands(name, kind).splitlines() if "ray start" in line]
        assert started and all(line.startswith(". ~/.tabiflow/cluster.sh;") for line in started)


@pytest.mark.parametrize("name", SHIPPED)
def test_dashboard_and_ledger_listen_on_the_head_itself(name: str) -> None:
    started = commands(name, "head_start_ray")
    hosts = re.findall(r"--(?:dashboard-)?host[= ](\S+)", started)
    assert hosts and set(hosts) == {"127.0.0.1"}
    assert "--dashboard-host" not in commands(name, "worker_start_ray")


@pytest.mark.parametrize("name", SHIPPED)
def test_the_project_is_installed_from_the_synced_checkout_with_constraints(name: str) -> None:
    assert content(name)["file_mounts"]["~/tabiflow"] == "."
    assert "-c ~/tabiflow/constraints.txt -e ~/tabiflow[cluster]" in commands(name, "setup")


def test_in_the_cloud_trials_run_on_spot_machines_and_never_on_the_head() -> None:
    kinds = content("cluster.yaml")["available_node_types"]
    assert kinds["head"]["resources"] == {"CPU": 0}
    assert kinds["gpu"]["resources"]["GPU"] == 1 and kinds["gpu"]["min_workers"] == 0
    assert kinds["gpu"]["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert Cluster.read(ROOT / "cluster.yaml").settings.py_executable


def test_trials_wait_for_the_machines_that_the_autoscaler_may_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local_ray: None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "ray_bootstrap_config.yaml").write_text((ROOT / "cluster.yaml").read_text())
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert Room([Need(1, 1)])() == 16
    assert Room([Need(1, 0.5)])() == 32
    assert Room([Need(1, 1)], workers=3)() == 3


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("max_worker: 3", ":5: unknown key `max_worker`; did you mean `max_workers`"),
        ("max_workers: many", ":5: not what Ray asks of a cluster file: 'many'"),
        ("metadata: {tabiflow: {foldr: x}}", ":5: unknown key `foldr`; did you mean `folder`"),
        ("metadata: {tabiflow: {folder: [x]}}", ":5: `folder`: must be text"),
    ],
)
def test_a_mistake_in_a_cluster_file_is_shown_where_it_stands(
    change: str, told: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(LOCAL + change + "\n")
    with pytest.raises(SpecError, match=told):
        Cluster.read(file)

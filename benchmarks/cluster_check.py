"""A cluster that loses machines, tried for real: nothing is lost, nothing is run twice.

Three hosts become a cluster by `ray up` (cluster.local.yaml with their addresses). Then three
sweeps of 24 real trials: one left alone, one with a host cut off the network and healed, one with a
host killed. What the ledger holds afterwards is printed and checked.

    HOSTS_TOOL=<program> python benchmarks/cluster_check.py
    python benchmarks/cluster_check.py --hosts A,B,C --user USER --key FILE \
        --cut 'COMMAND {}' --heal 'COMMAND {}' --kill 'COMMAND {}'

HOSTS_TOOL makes test hosts: `up 3` prints a private key's path, `cut`, `heal` and `kill` take a
host's number, `down` removes them. Hosts need this Python environment at the same path.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabiflow.remote import Cluster

CHECKOUT = Path(__file__).resolve().parent.parent
NUMBER = 3
VERBS = ("cut", "heal", "kill")
SCENES = ("left-alone", "cut-and-healed", "killed")
MADE_HOSTS = "10.77.0.1,10.77.0.2,10.77.0.3"
TABIFLOW = (sys.executable, "-c", "from tabiflow.cli import main; main()")
SIZE = (
    "--num-cpus=1 --object-store-memory=100000000 --metrics-export-port=52365"
    " --dashboard-agent-listen-port=52366 --dashboard-agent-grpc-port=52367"
    " --runtime-env-agent-port=52368"
)
"""Of every host: one trial at a time, and little memory set aside. On a busy machine Ray would give
up on agents that have not told their ports in 15 seconds, so they are given."""
TRIES = 4
"""Of `ray up`: on a busy machine Ray gives up on a host that is slow to start."""
JOINING = 200.0
"""Seconds for all hosts to join."""
AWAY = 60.0
"""Seconds that a host is cut off: longer than Ray waits for it."""
BEFORE = 5
"""Trials that are done when a host is lost."""


@dataclass(frozen=True)
class Hosts:
    addresses: list[str]
    user: str
    key: str
    cut: str
    heal: str
    kill: str

    def do(self, command: str, number: int) -> None:
        print(f"  {command.format(number)}", flush=True)
        subprocess.run(shlex.split(command.format(number)), check=True)


def main() -> None:
    options = arguments()
    if options.evidence:
        print(json.dumps(evidence(options.evidence)))
        return
    tool = os.environ.get("HOSTS_TOOL")
    if not options.key and not (tool and os.access(tool, os.X_OK)):
        print("cluster check: not run, there are no hosts (HOSTS_TOOL or --hosts with --key)")
        return
    with hosts_of(options, tool) as hosts, tempfile.TemporaryDirectory(prefix="tabiflow-") as made:
        cluster = launched(hosts, Path(made))
        try:
            check(hosts, cluster, Path(made), options.scenes.split(","))
        finally:
            ray("down", "-y", str(cluster.file))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--hosts", default=MADE_HOSTS, help="three addresses, the head first")
    parser.add_argument("--user", default="root")
    parser.add_argument("--key", help="of ssh")
    for verb in VERBS:
        parser.add_argument(f"--{verb}", default="false", help="a command; {} is a host's number")
    parser.add_argument("--scenes", default=",".join(SCENES), help="of these, in this order")
    parser.add_argument("--evidence", metavar="SWEEP", help="on the head: what its ledger holds")
    return parser.parse_args()


@contextmanager
def hosts_of(options: argparse.Namespace, tool: str | None) -> Iterator[Hosts]:
    addresses = options.hosts.split(",")
    if options.key:
        yield Hosts(addresses, options.user, options.key, options.cut, options.heal, options.kill)
        return
    said = subprocess.run([str(tool), "up", str(NUMBER)], check=True, stdout=subprocess.PIPE)
    key = said.stdout.decode().split()[-1]
    try:
        yield Hosts(addresses, options.user, key, *(f"{tool} {verb} {{}}" for verb in VERBS))
    finally:
        subprocess.run([str(tool), "down"], check=False)
        # Hosts of a tool share this machine's home folder, where `ray up` leaves its file and key.
        for name in ("ray_bootstrap_config.yaml", "ray_bootstrap_key.pem"):
            (Path.home() / name).unlink(missing_ok=True)


def launched(hosts: Hosts, folder: Path) -> Cluster:
    """`ray up` with the local provider; returns when all hosts have joined."""
    cluster = Cluster.read(cluster_file(hosts, folder))
    up(cluster, len(hosts.addresses))
    return cluster


def up(cluster: Cluster, number: int) -> None:
    for _ in range(TRIES):
        started = time.monotonic()
        if ray("up", "-y", str(cluster.file)) and joined(cluster, number):
            print(f"ray up: {number} hosts in {time.monotonic() - started:.0f} s", flush=True)
            return
    sys.exit("not all hosts have joined")


def cluster_file(hosts: Hosts, folder: Path) -> Path:
    """cluster.local.yaml for these hosts, with everything of its own below one folder."""
    text = (CHECKOUT / "cluster.local.yaml").read_text(encoding="utf-8")
    head, *workers = hosts.addresses
    token = folder / "auth_token"
    token.write_text(os.urandom(32).hex())
    token.chmod(0o600)
    changes: list[tuple[str, str]] = [
        (r"cluster_name: .*", f"cluster_name: tabiflow-check-{os.getpid()}"),
        (r"head_ip: .*", f"head_ip: {head}"),
        (r"worker_ips: .*", f"worker_ips: [{', '.join(workers)}]"),
        (r"ssh_user: .*", f"ssh_user: {hosts.user}"),
        (r"ssh_private_key: .*", f"ssh_private_key: {hosts.key}"),
        (r"~/\.ray/auth_token: .*", f"{folder}/head/auth_token: {token}"),
        (r"~/tabiflow: \.", f"{folder}/head/checkout: {CHECKOUT}"),
        (r"  - >-\n    flock .*\n.*", "  - 'true'"),
        (r"  - grep .*bashrc", "  - 'true'"),
        (r"~/\.tabiflow/venv/bin", f"{sys.prefix}/bin"),
        (r"~/\.tabiflow", f"{folder}/head/home"),
        (r"ray start ", f"ray start {SIZE} "),
        (r"(    export RAY_AUTH_MODE=token)", rf"{ENVIRONMENT.format(folder=folder)}\n\1"),
        (r"TABIFLOW_STORAGE=.*", f"TABIFLOW_STORAGE={folder}/storage"),
        (r"\Z", SETTINGS.format(folder=folder)),
    ]
    for pattern, new in changes:
        text, times = re.subn(pattern, new, text)
        assert times, f"cluster.local.yaml has no {pattern}"
    file = folder / "cluster.yaml"
    file.write_text(text)
    return file


ENVIRONMENT = (
    "    export RAY_AUTH_TOKEN_PATH={folder}/head/auth_token PYTHONPATH={folder}/head/checkout\n"
    "    export OMP_NUM_THREADS=1\n"
    "    export RAY_raylet_start_wait_time_s=60"
)
SETTINGS = """
metadata:
  tabiflow:
    folder: {folder}/head/checkout
    home: {folder}/head/home
"""


def joined(cluster: Cluster, number: int) -> bool:
    """Whether so many hosts are up in time. Ray tries once to start a host's Ray."""
    until = time.monotonic() + JOINING
    while time.monotonic() < until:
        answer = cluster.run("tabiflow job nodes")
        if not answer.code and len(json.loads(answer.out)["nodes"]) == number:
            return True
        time.sleep(5)
    return False


def check(hosts: Hosts, cluster: Cluster, folder: Path, names: Sequence[str]) -> None:
    def plain(sweep: "Sweep") -> None:
        pass

    def cut_off(sweep: "Sweep") -> None:
        sweep.wait_for(BEFORE)
        hosts.do(hosts.cut, 2)
        time.sleep(AWAY)
        hosts.do(hosts.heal, 2)

    def killed(sweep: "Sweep") -> None:
        sweep.wait_for(BEFORE)
        hosts.do(hosts.kill, 3)

    assert not faults(cluster), "doctor finds faults in a cluster that is well"
    scenes = dict(zip(SCENES, (plain, cut_off, killed), strict=True))
    found, number = {}, len(hosts.addresses)
    for name in names:
        found[name] = scened(cluster, folder, name, SCENES.index(name) + 1, scenes[name])
        if scenes[name] is not killed and not joined(cluster, number):
            print("  the healed host has not come back by itself", flush=True)
            up(cluster, number)
    for name, each in found.items():
        judge(name, each, hosts)
    resumed = [epoch for each in found.values() for epoch in each["resumed after epoch"]]
    assert not resumed or any(resumed), "every lost trial had only begun: nothing was resumed"
    if "killed" in found:
        diagnose(hosts, cluster)
    print(f"{len(found)} passed, 0 failed")


def diagnose(hosts: Hosts, cluster: Cluster) -> None:
    """The third host is gone; then the first, too."""
    lost = faults(cluster)[hosts.addresses[2]]
    assert "never joined: no ssh from the head" in lost, lost
    hosts.do(hosts.kill, 1)
    assert "its head does not answer" in faults(cluster)["ssh"]


def faults(cluster: Cluster) -> dict[str, str]:
    """What `doctor` finds wrong, by subject, with the command that shows it."""
    done = subprocess.run(
        [*TABIFLOW, "doctor", "--cluster", str(cluster.file), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    findings = json.loads(done.stdout)["findings"]
    found = {
        each["subject"]: f"{each['detail']}: {each['advice']}"
        for each in findings
        if each["state"] == "fault"
    }
    print(f"  doctor: {found or 'no fault'}", flush=True)
    return found


class Sweep:
    """A sweep that runs on the cluster while this process looks on."""

    def __init__(self, file: Path, cluster: Cluster) -> None:
        self.log = file.with_suffix(".log")
        command = [*TABIFLOW, "sweep", str(file), "--cluster", str(cluster.file), "--json"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.log.open("w"), text=True
        )

    def wait_for(self, done: int) -> None:
        while self.log.read_text().count("validation") < done:
            if self.process.poll() is not None:
                sys.exit(f"the sweep ended early:\n{self.log.read_text()}")
            time.sleep(0.5)

    def end(self) -> dict[str, Any]:
        out, _ = self.process.communicate()
        if self.process.returncode:
            sys.exit(f"the sweep ended with {self.process.returncode}:\n{self.log.read_text()}")
        answer: dict[str, Any] = json.loads(out)
        return answer


def scened(
    cluster: Cluster, folder: Path, name: str, seed: int, scene: Callable[[Sweep], None]
) -> dict[str, Any]:
    started = time.monotonic()
    print(f"{name}: 24 trials", flush=True)
    sweep = Sweep(sweep_file(folder, name, seed), cluster)
    scene(sweep)
    counts = sweep.end()["counts"]
    seconds = time.monotonic() - started
    answer = cluster.run(f"python benchmarks/cluster_check.py --evidence {name}")
    assert not answer.code, answer.err
    found: dict[str, Any] = json.loads(answer.out)
    print(f"  {seconds:.0f} s; {counts}; {found}", flush=True)
    return {"done": counts["done"], **found}


def sweep_file(folder: Path, name: str, seed: int) -> Path:
    """24 trials of the embedded example, which takes no network."""
    space = {"learning_rate": [k * 1e-4 for k in (1, 2, 3, 5, 8, 13)], "batch_size": [16, 32]}
    content = {
        "name": name,
        "models": ["example-bert"],
        "search": [{"datasets": ["example-classification", "example-nli"], "space": space}],
        "seeds": [seed],
        "protocol": {"epochs": 12, "patience": None},
        "checkpoint": "epoch",
    }
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps(content))
    return file


def evidence(sweep: str) -> dict[str, Any]:
    """What the ledger of this machine holds of a sweep: read by MLflow's own client."""
    from mlflow.tracking import MlflowClient

    from tabiflow import ledger

    client = MlflowClient(ledger.address())
    experiment = client.get_experiment_by_name(sweep)
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    trials = [run for run in runs if "trial" in run.data.tags]
    finished = [run for run in trials if run.info.status == "FINISHED"]
    times = Counter(run.data.tags["trial"] for run in finished)
    again = [run for run in finished if int(run.data.tags["attempt"]) > 1]

    def told(trial: str) -> int:
        lost = [run for run in trials if run.data.tags["trial"] == trial and run not in finished]
        curves = [client.get_metric_history(run.info.run_id, "validation_score") for run in lost]
        return max((point.step for curve in curves for point in curve), default=0)

    return {
        "trials": len({run.data.tags["trial"] for run in trials}),
        "finished once": sum(number == 1 for number in times.values()),
        "finished twice": sum(number > 1 for number in times.values()),
        "left running": sum(run.info.status == "RUNNING" for run in runs),
        "nodes": dict(Counter(run.data.tags.get("node", "?") for run in finished)),
        "tried again": len(again),
        "epochs told before": [told(run.data.tags["trial"]) for run in again],
        "resumed after epoch": [int(run.data.tags.get("resumed_after_epoch", 0)) for run in again],
    }


def judge(name: str, found: dict[str, Any], hosts: Hosts) -> None:
    assert found["done"] == found["trials"] == found["finished once"] == 24, (name, found)
    assert not found["finished twice"] and not found["left running"], (name, found)
    if name == "left-alone":
        assert set(found["nodes"]) == set(hosts.addresses), (name, found)
        return
    assert found["tried again"], (name, found)
    pairs = zip(found["epochs told before"], found["resumed after epoch"], strict=True)
    assert all(told <= resumed for told, resumed in pairs), (name, found)


def ray(*words: str) -> bool:
    command = [sys.executable, "-m", "ray.scripts.scripts", *words]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"ray {shlex.join(words)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return not done.returncode


if __name__ == "__main__":
    main()

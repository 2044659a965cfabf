"""The verbs about the machine: doctor and ui."""

import os
import sys
from pathlib import Path

import click

from tabiflow import ledger
from tabiflow.cli.common import FAILED, say, table
from tabiflow.errors import UserError
from tabiflow.remote import Cluster

SERVED = 5000
"""MLflow's port on a head's loopback."""


@click.command()
@click.option("--port", type=int, default=5000, show_default=True)
@click.option("--cluster", type=click.Path(path_type=Path), help="The ledger of this cluster.")
@click.option("--json", "as_data", is_flag=True, help="Only say where, as JSON; start nothing.")
def ui(port: int, cluster: Path | None, as_data: bool) -> int:
    """Open the ledger in MLflow's web pages, for this machine only."""
    if cluster is not None:
        return _ui_there(Cluster.read(cluster), port, as_data)
    address = ledger.address()
    served = address.startswith(("http://", "https://"))
    url = ledger.shown_address() if served else f"http://127.0.0.1:{port}"
    if as_data or served:
        say(as_data, {"ledger": ledger.shown_address(), "url": url}, url)
        return 0
    if not ledger.exists():
        raise UserError("there is no ledger yet", hint="run `tabiflow sweep` first")
    click.echo(f"{url} shows {ledger.shown_address()}; Ctrl-C ends it", err=True)
    command = [sys.executable, "-m", "mlflow", "ui", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1"]  # for one person; each takes seconds to start
    # In place of this process, so that what ends the command ends the server. Everybody on the
    # machine may read a process's arguments, and an address may hold a password.
    os.execve(sys.executable, command, {**os.environ, "MLFLOW_BACKEND_STORE_URI": address})


def _ui_there(cluster: Cluster, port: int, as_data: bool) -> int:
    """The pages of the head's ledger, through a tunnel that ends with this command."""
    url = f"http://127.0.0.1:{port}"
    if as_data:
        say(True, {"ledger": str(cluster.file), "url": url})
        return 0
    click.echo(f"{url} shows the ledger of {cluster.file}; Ctrl-C ends it", err=True)
    # Where the head has a server already, `ui` only says so.
    cluster.forward(f"tabiflow ui --port {SERVED}; sleep infinity", port, SERVED)
    return 0


@click.command()
@click.option("--cluster", type=click.Path(path_type=Path), help="Is this cluster fit?")
@click.option("--json", "as_data", is_flag=True, help="One JSON object on stdout.")
def doctor(cluster: Path | None, as_data: bool) -> int:
    """Is this machine fit? Versions, device, ledger, disk, hub. Of a cluster: every node."""
    if cluster is None:
        from tabiflow.doctor import examine

        found = list(examine())
    else:
        from tabiflow import checkup

        found = list(checkup.examine(Cluster.read(cluster)))
    rows = [(each.subject, each.state, each.detail, each.advice) for each in found]
    faults = sum(each.state == "fault" for each in found)
    content = {"findings": [vars(each) for each in found], "faults": faults}
    say(as_data, content, table("", ("what", "state", "detail", "advice"), rows))
    return FAILED if faults else 0

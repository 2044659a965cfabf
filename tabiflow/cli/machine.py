"""The verbs about the machine: doctor and ui."""

import subprocess
import sys

import click

from tabiflow import ledger
from tabiflow.cli.common import FAILED, say, table
from tabiflow.errors import UserError


@click.command()
@click.option("--port", type=int, default=5000, show_default=True)
@click.option("--json", "as_data", is_flag=True, help="Only say where, as JSON; start nothing.")
def ui(port: int, as_data: bool) -> int:
    """Open the ledger in MLflow's web pages, for this machine only."""
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
    return subprocess.call([*command, "--backend-store-uri", address])


@click.command()
@click.option("--json", "as_data", is_flag=True, help="One JSON object on stdout.")
def doctor(as_data: bool) -> int:
    """Is this machine fit? Versions, device, ledger, disk, hub."""
    from tabiflow.doctor import examine

    found = list(examine())
    rows = [(each.subject, each.state, each.detail, each.advice) for each in found]
    faults = sum(each.state == "fault" for each in found)
    content = {"findings": [vars(each) for each in found], "faults": faults}
    say(as_data, content, table("", ("what", "state", "detail", "advice"), rows))
    return FAILED if faults else 0

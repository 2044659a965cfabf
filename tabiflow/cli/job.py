"""The verbs that `--cluster` calls on the head; not meant for people."""

import json
import shutil
import sys

import click


@click.group(hidden=True)
def job() -> None:
    """Verbs as jobs of the cluster that this machine is the head of."""


@job.command()
@click.argument("sweep")
def running(sweep: str) -> None:
    """The job that works on a sweep, if there is one."""
    from tabiflow import jobs

    found = jobs.running(sweep)
    click.echo(found.id if found else "")


@job.command(context_settings={"ignore_unknown_options": True})
@click.argument("sweep")
@click.argument("arguments", nargs=-1, required=True)
def start(sweep: str, arguments: tuple[str, ...]) -> None:
    """Run a verb as a job; one that works on the sweep already is shown instead."""
    from tabiflow import jobs

    click.echo(jobs.start(sweep, arguments).id)


@job.command()
@click.argument("id")
def follow(id: str) -> int:
    """The job's log on standard error until it ends; then its answer, and its exit code."""
    from tabiflow import jobs

    code = jobs.follow(id, lambda line: click.echo(line, err=True))
    answer = jobs.Job(id, "").answer
    if answer.is_file():
        with answer.open(encoding="utf-8") as kept:
            shutil.copyfileobj(kept, sys.stdout)
    return code


@job.command()
def nodes() -> None:
    """What every node is like, as JSON."""
    from tabiflow.nodes import look

    click.echo(json.dumps(look()))

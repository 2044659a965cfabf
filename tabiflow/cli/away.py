"""The verbs on a cluster: `--cluster FILE` sends a verb to the head instead of running it here.

Verbs that run trials become jobs, which outlive this process; the others answer at once.
"""

import shlex
import tempfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from tabiflow import parcel
from tabiflow.cli.common import INTERRUPTED, err
from tabiflow.errors import UserError
from tabiflow.remote import Answer, Cluster, ClusterError
from tabiflow.spec import Sweep

_HERE = ("cluster", "address", "sweep", "folder")
"""Parameters that mean something else there."""


def anywhere(*, as_job: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a verb about a sweep the option `--cluster`."""

    def decorate(verb: Callable[..., Any]) -> Callable[..., Any]:
        @click.option("--cluster", type=click.Path(path_type=Path), help="Run there, by this file.")
        @wraps(verb)
        def command(*, cluster: Path | None, **given: Any) -> Any:
            if cluster is None:
                return verb(**given)
            if given.get("address"):
                raise UserError("--cluster knows the address", hint="leave --address out")
            return _Errand(Cluster.read(cluster), click.get_current_context()).run(as_job)

        return command

    return decorate


class _Errand:
    """One verb, sent to a cluster."""

    def __init__(self, cluster: Cluster, context: click.Context) -> None:
        self.cluster, self.context = cluster, context
        self.verb = str(context.info_name)
        self.file: Path = context.params["sweep"]
        self.sweep = Sweep.read(self.file, rehearse=context.params["rehearse"])
        home = cluster.settings.home
        self.folder, self.report = (
            f"{home}/{kind}/{self.sweep.name}" for kind in ("sweeps", "reports")
        )

    def run(self, as_job: bool) -> int:
        place = self._sent()
        if as_job:
            return self._as_job(place)
        answer = self.cluster.run(self._command(place), _told)
        return self._answered(answer)

    def _sent(self) -> str:
        """Where the sweep's file is on the head. What a running job reads is left as it is."""
        with tempfile.TemporaryDirectory(prefix="tabiflow-") as made:
            laid = Path(made)
            place = parcel.pack(self.sweep, laid)
            name = shlex.quote(self.sweep.name)
            ready = f"mkdir -p {self.folder} && tabiflow job running {name}"
            if not self._asked(ready):
                self.cluster.send(laid, self.folder)
        return f"{self.folder}/{shlex.quote(place.as_posix())}"

    def _asked(self, command: str) -> str:
        answer = self.cluster.run(command)
        if answer.code:
            told = (answer.err.strip().splitlines() or ["no reason given"])[-1]
            raise ClusterError(
                told.removeprefix("tabiflow: "),
                where=str(self.cluster.file),
                hint=f"try `{self.cluster.exec_command(command)}`",
            )
        return answer.out.strip()

    def _as_job(self, place: str) -> int:
        job = self._asked(f"tabiflow job start {self.sweep.name} -- {self._arguments(place)}")
        err.print(f"job {job} on {self.cluster.file}", highlight=False, soft_wrap=True)
        try:
            return self._answered(self.cluster.run(f"tabiflow job follow {job}", _told))
        except KeyboardInterrupt:
            err.print(f"detached; {self._goes_on(job)}", highlight=False, soft_wrap=True)
            return INTERRUPTED
        except ClusterError as error:
            err.print(f"{error}; {self._goes_on(job)}", highlight=False, soft_wrap=True)
            return INTERRUPTED

    def _goes_on(self, job: str) -> str:
        there = f"{shlex.quote(str(self.file))} --cluster {self.cluster.shown}"
        stop = self.cluster.exec_command(f"{self.cluster.entering}; ray job stop {job}")
        return (
            f"job {job} goes on. Look: `tabiflow status {there}`; follow: the same command again; "
            f"end: `{stop}`"
        )

    def _command(self, place: str) -> str:
        command = f"tabiflow {self._arguments(place)}"
        if self.context.params.get("folder") is None:
            return command
        return f"rm -rf {self.report} && {command} -o {self.report}"

    def _arguments(self, place: str) -> str:
        """What was given here, for a shell there."""
        words = [self.verb]
        for param in self.context.command.params:
            value = self.context.params.get(str(param.name))
            if param.name in _HERE or value in (None, False, ()):
                continue
            for each in value if isinstance(value, tuple) else (value,):
                words += [param.opts[0], *([] if value is True else [str(each)])]
        return f"{shlex.join(words)} {place}"

    def _answered(self, answer: Answer) -> int:
        out = answer.out
        if (target := self.context.params.get("folder")) and not answer.code:
            self.cluster.fetch(self.report, target)
            out = _at_home(out, self.report, target)
        click.echo(out, nl=False)
        return answer.code


def _at_home(out: str, report: str, folder: Path) -> str:
    """`wrote <there>/report.md` names the file where it is now."""
    mark = report.removeprefix("~")
    lines = [
        f"wrote {folder}{line.partition(mark)[2]}" if line.startswith("wrote ") else line
        for line in out.splitlines(keepends=True)
    ]
    return "".join(lines)


def _told(line: str) -> None:
    click.echo(line, err=True)

"""A cluster by the file that describes it, and commands on its head: the side of the laptop.

Machines are reached through Ray's launcher, which knows every provider's way to them. What runs
there is for the caller.
"""

import base64
import importlib.util
import json
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabiflow.errors import UserError, near
from tabiflow.protocol import Frozen
from tabiflow.source import Source

LAUNCHER = (sys.executable, "-m", "ray.scripts.scripts")
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class ClusterError(UserError):
    """The cluster cannot be reached, or is not what its file says."""


class Settings(Frozen):
    """`metadata: {tabiflow: ...}` of a cluster file, which Ray keeps and does not read."""

    folder: str = "~/tabiflow"
    """The checkout on every node; verbs run there."""
    home: str = "~/.tabiflow"
    """What the head keeps of its own, its `TABIFLOW_HOME`. `cluster.sh` there, on every node, is
    what a shell reads first: the way to the tools, addresses, caches."""
    py_executable: str | None = None
    """The Python of the serving environment, on every node that serves."""


@dataclass(frozen=True)
class Answer:
    """What a command on the head said."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Cluster:
    source: Source
    content: Mapping[str, Any]
    settings: Settings

    @classmethod
    def read(cls, file: Path) -> "Cluster":
        """Raises SpecError where Ray's schema or tabiflow's settings are not met."""
        source = Source.read(file)
        _meets_schema(source)
        content = source.plain
        place = ("metadata", "tabiflow")
        metadata = content.get("metadata") or {}
        return cls(source, content, source.validate(Settings, metadata.get("tabiflow", {}), place))

    @property
    def file(self) -> Path:
        return self.source.file

    @property
    def shown(self) -> str:
        """As a person would name it in a command."""
        return shlex.quote(str(self.file))

    @property
    def entering(self) -> str:
        """What a shell on a node starts with."""
        return f". {self.settings.home}/cluster.sh"

    def exec_command(self, command: str) -> str:
        """The command that a person could type to run `command` on the head."""
        return f"ray exec {self.shown} {shlex.quote(command)}"

    def run(self, command: str, tell: Callable[[str], None] | None = None) -> Answer:
        """Runs a shell command in the checkout on the head.

        `tell` takes each line of its standard error as it is said. Raises ClusterError when the
        head cannot be reached or the connection breaks before the end.
        """
        mark = secrets.token_hex(8)
        with subprocess.Popen(
            [*LAUNCHER, "exec", str(self.file), _framed(self._there(command), mark)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Ctrl-C is for this process: what runs on the head goes on.
            start_new_session=True,
        ) as process:
            try:
                said, answer = _read(process.stdout or (), mark, tell)
                process.wait()
            finally:
                process.kill()
        if answer is None:
            raise self._unreachable(said, command)
        return answer

    def send(self, folder: Path, target: str) -> None:
        """The content of a local folder into a folder of the head, which must be there."""
        self._copy("rsync-up", f"{folder}/", f"{target}/")

    def fetch(self, folder: str, target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        self._copy("rsync-down", f"{folder}/", f"{target}/")

    def forward(self, command: str, local: int, remote: int) -> None:
        """Shows a port of the head's loopback at this machine's, as long as the command runs."""
        # Takes a second, and only this verb needs it here.
        from ray.autoscaler.sdk import run_on_cluster

        there = self._there(command)
        run_on_cluster(str(self.file), cmd=there, port_forward=[(local, remote)])

    def _there(self, command: str) -> str:
        return f"{self.entering} && cd {self.settings.folder} && {command}"

    def _copy(self, verb: str, source: str, target: str) -> None:
        command = [*LAUNCHER, verb, str(self.file), source, target]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            shown = f"ray {verb} {self.shown} {shlex.quote(source)} {shlex.quote(target)}"
            raise self._failed(f"cannot be copied: {_last(done.stdout.splitlines())}", shown)

    def _unreachable(self, said: Sequence[str], command: str) -> ClusterError:
        text = "\n".join(said)
        if "not found" in text and "Head node" in text:
            up = f"ray up {self.shown}"
            return ClusterError("its head is not up", where=str(self.file), hint=f"run `{up}`")
        return self._failed(f"its head does not answer: {_last(said)}", self.exec_command("true"))

    def _failed(self, message: str, command: str) -> ClusterError:
        return ClusterError(message, where=str(self.file), hint=f"try `{command}`")


def _meets_schema(source: Source) -> None:
    from jsonschema import Draft7Validator

    package = importlib.util.find_spec("ray")
    assert package is not None and package.origin is not None
    schema = json.loads((Path(package.origin).parent / "autoscaler/ray-schema.json").read_text())
    for error in Draft7Validator(schema).iter_errors(source.tree):
        if error.validator == "additionalProperties":
            known = error.schema["properties"]
            key = next(each for each in error.instance if each not in known)
            place = (*error.absolute_path, key)
            raise source.error(f"unknown key `{key}`", *place, hint=near(key, known))
        told = error.message if len(error.message) < 200 else f"does not meet `{error.validator}`"
        raise source.error(f"not what Ray asks of a cluster file: {told}", *error.absolute_path)


def _framed(command: str, mark: str) -> str:
    """The launcher's terminal mixes both outputs with words of its own: this keeps them apart."""
    return (
        f"t=$(mktemp -d); echo {mark} begins; "
        f"{{ {command}; }} </dev/null 2>&1 >$t/out | tee $t/err; "
        f"code=${{PIPESTATUS[0]}}; echo; "
        f'echo {mark} $code $(base64 -w0 <$t/out) . $(base64 -w0 <$t/err); rm -rf "$t"'
    )


def _read(
    lines: Iterable[str], mark: str, tell: Callable[[str], None] | None
) -> tuple[list[str], Answer | None]:
    """What was said around the command, and the command's answer if it came to an end."""
    around: list[str] = []
    begun = False
    for raw in lines:
        line = COLOURS.sub("", raw).strip("\r\n")
        if line == f"{mark} begins":
            begun = True
        elif line.startswith(f"{mark} "):
            return around, _answer(line)
        elif begun and tell is not None and line:
            tell(line)
        elif not begun:
            around.append(line)
    return around, None


def _answer(line: str) -> Answer:
    _, code, *texts = line.split(" ")
    split = texts.index(".")
    out, err = ("".join(texts[:split]), "".join(texts[split + 1 :]))
    decoded = [base64.b64decode(text).decode("utf-8", errors="replace") for text in (out, err)]
    return Answer(int(code), *decoded)


def _last(lines: Sequence[str]) -> str:
    """The line that says most: ssh's own where there is one."""
    plain = (COLOURS.sub("", each).strip() for each in lines)
    known = [line for line in plain if line]
    told = [line for line in known if line.startswith(("ssh:", "rsync:")) or "denied" in line]
    return (told or known or ["no answer"])[-1]

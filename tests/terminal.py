"""The command line as tests use it: in this process, in a folder of its own."""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from tabiflow import cli


def driver(*verb: str | Path) -> list[str]:
    """The command of a process of its own."""
    code = "import sys; from tabiflow.cli import main; sys.argv[0] = 'tabiflow'; main()"
    return [sys.executable, "-c", code, *map(str, verb)]


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Terminal:
    """A working directory with a fresh ledger."""

    folder: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str | Path) -> Said:
        self.capsys.readouterr()
        code = cli.execute([str(argument) for argument in arguments])
        said = self.capsys.readouterr()
        return Said(code, said.out, said.err)

    def json(self, verb: str, *arguments: str | Path) -> Any:
        said = self(verb, *arguments, "--json")
        assert said.code in (0, 3), said.err
        return said.data

    @property
    def ledger(self) -> Path:
        return self.folder / ".tabiflow" / "mlflow.db"

    def runs(self, query: str = "", sweep: str = "study") -> list[Run]:
        """The child runs, as somebody with MLflow's own client sees them."""
        client = MlflowClient(f"sqlite:///{self.ledger}")
        experiment = client.get_experiment_by_name(sweep)
        found = client.search_runs([experiment.experiment_id], query) if experiment else []
        return [run for run in found if "trial" in run.data.tags]


def opened(
    folder: Path,
    template: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Terminal:
    terminal = Terminal(folder, capsys)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("TABIFLOW_DATA", raising=False)
    terminal.ledger.parent.mkdir()
    shutil.copy(template, terminal.ledger)
    return terminal

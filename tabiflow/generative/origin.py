"""Where a task's rows come from: a folder, the embedded example, or the hub.

A folder has `<task>/{validation,test}.{parquet,jsonl}` with the fields of the task's release, and
perhaps `subject`. On the hub a task's row says which splits stand for the two.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tabiflow import files, hub
from tabiflow.errors import DataError
from tabiflow.example import benchmark_folder
from tabiflow.origin import HubSplit
from tabiflow.registry import UNPINNED, dataset_files
from tabiflow.spec import BenchmarkTask

Role = Literal["test", "validation"]
Rows = list[dict[str, Any]]
SUBJECT = "subject"


@dataclass(frozen=True)
class Origin:
    """A task's rows; `validation` is empty where its release has none."""

    test: Rows
    validation: Rows
    where: str
    commit: str = ""
    """Of the hub; empty for files."""


def opened(
    task: BenchmarkTask,
    data: Literal["hub", "example"] | Path,
    pauses: Sequence[float] = hub.PAUSES,
) -> Origin:
    """Raises DataError for what is missing or unreadable, EnvironmentFault without the hub."""
    if data == "hub":
        return _from_hub(task, pauses)
    return in_folder(task, (benchmark_folder() if data == "example" else data) / task.name)


def in_folder(task: BenchmarkTask, folder: Path) -> Origin:
    found = dataset_files(folder)
    if "test" not in found:
        hint = "put test.jsonl or test.parquet there"
        raise DataError("no test rows", where=str(folder), hint=hint)
    validation = _read(task, found["validation"]) if "validation" in found else []
    return Origin(_read(task, found["test"]), validation, str(folder))


def _read(task: BenchmarkTask, file: Path) -> Rows:
    table = files.read(file, task.fields, [SUBJECT])
    return [_of_subject(row, row.get(SUBJECT)) for row in table.to_pylist()]


def _from_hub(task: BenchmarkTask, pauses: Sequence[float]) -> Origin:
    source = hub.Repository("dataset", task.hub, task.revision or UNPINNED)
    commit = hub.commit(source, pauses)
    test: Rows = []
    validation: Rows = []
    for config in task.configs or (None,):
        tables = hub.dataset_tables(source, config, commit, pauses)
        subject = config if len(task.configs) > 1 else None
        for rows, split in ((test, task.split), (validation, task.validation)):
            if split is not None:
                rows += _of_split(task, tables, split, subject)
    return Origin(test, validation, source.title, commit)


def _of_split(task: BenchmarkTask, tables: dict[str, Any], split: str, subject: str | None) -> Rows:
    if split not in tables:
        raise DataError(f"no split `{split}`, but {', '.join(tables)}", where=task.hub)
    table = HubSplit(f"{task.hub} ({split})", tables[split]).read(task.fields)
    return [_of_subject(row, subject) for row in table.to_pylist()]


def _of_subject(row: dict[str, Any], subject: Any) -> dict[str, Any]:
    return row if subject is None else {**row, "_subject": str(subject)}

"""A task's rows from a folder: `<folder>/<task>/{validation,test}.{parquet,jsonl}`, with the fields
of the task's release. The embedded example is such a folder."""

from pathlib import Path
from typing import Any, Literal

from tabiflow import files
from tabiflow.errors import DataError
from tabiflow.registry import dataset_files
from tabiflow.spec import BenchmarkTask

Role = Literal["test", "validation"]
SUBJECT = "subject"
"""A column that says where a row belongs; the hub's configurations are subjects, too."""


def rows(task: BenchmarkTask, folder: Path, role: Role = "test") -> list[dict[str, Any]]:
    """Empty where there is no validation file. Raises DataError for what cannot be read."""
    found = dataset_files(folder / task.name)
    if role not in found:
        if role == "validation":
            return []
        hint = f"put {role}.jsonl or {role}.parquet there"
        raise DataError(f"no {role} rows", where=str(folder / task.name), hint=hint)
    table = files.read(found[role], task.fields, [SUBJECT])
    return [_with_subject(row) for row in table.to_pylist()]


def _with_subject(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "_subject": str(row[SUBJECT])} if row.get(SUBJECT) is not None else row

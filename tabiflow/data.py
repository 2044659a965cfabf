"""A data set's row -> its canonical splits, with the test split behind its seal."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet

from tabiflow.casing import turkish_lower
from tabiflow.errors import DataError, SealError
from tabiflow.registry import dataset_files
from tabiflow.registry.kinds import KINDS
from tabiflow.spec import Dataset
from tabiflow.trial import Opening

__all__ = [
    "Data",
    "Schema",
    "TestData",
    "check",
    "load",
    "load_split",
    "load_test",
    "resolve_commit",
    "turkish_lower",
]

SplitName = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class Schema:
    """What the labels of a data set are, the same for all its splits."""

    labels: tuple[str, ...] = ()
    """Class names or tags, in the order of their ids; empty where there are none."""
    label_range: tuple[float, float] | None = None
    """Similarity: the smallest and largest gold score."""


@dataclass(frozen=True)
class Data:
    """Everything that a sweep's trial may see of a data set."""

    train: pa.Table
    validation: pa.Table
    schema: Schema
    fingerprints: Mapping[str, str]
    """Split -> 16 hex digits over its rows."""
    excluded: Mapping[str, int]
    """Reason -> rows left out."""
    commit: str
    """The hub commit that the rows come from; empty for local files."""
    split_rule: str


@dataclass(frozen=True)
class TestData:
    """The test split, opened."""

    rows: pa.Table
    fingerprint: str


def load(dataset: Dataset, limit: Mapping[str, int]) -> Data:
    """Train and validation; `limit` keeps so many rows of a split."""
    train = load_split(dataset, "train", limit)
    validation = load_split(dataset, "validation", limit)
    labels = tuple(str(label) for label in dataset.labels)
    if not labels:
        column = {"classification": "label", "nli": "label", "ner": "tags", "pos": "tags"}
        name = column.get(dataset.task)
        if name:
            values = pa.chunked_array(train[name].chunks + validation[name].chunks)
            flat = values.to_pylist()
            labels = tuple(
                sorted({str(t) for v in flat for t in (v if isinstance(v, list) else [v])})
            )
    return Data(train, validation, Schema(labels, dataset.label_range), {}, {}, "", "given")


def load_split(
    dataset: Dataset, split: str, limit: Mapping[str, int], opening: Opening | None = None
) -> pa.Table:
    """Any split by name; raises SealError for `test` without an opening."""
    if split == "test" and opening is None:
        raise SealError(f"the test split is sealed: `{dataset.name}` has no opening")
    folder = dataset.path
    if folder is None:
        raise DataError("only local folders so far")
    file = dataset_files(Path(folder))[split]
    reader = pyarrow.parquet.read_table if file.suffix == ".parquet" else pyarrow.json.read_json
    table = reader(file)
    names = [
        n
        for n in (*KINDS[dataset.task].columns, "id")
        if dataset.columns.get(n, n) in table.column_names
    ]
    table = pa.table({n: table[dataset.columns.get(n, n)] for n in names})
    table = table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
    return table.slice(0, limit.get(split, table.num_rows))


def load_test(dataset: Dataset, limit: Mapping[str, int], opening: Opening) -> TestData:
    """The test split, for the confirming trial that the opening belongs to."""
    return TestData(load_split(dataset, "test", limit, opening), "")


def check(dataset: Dataset, where: str | None = None) -> None:
    """Raises DataError when a local data set does not hold what its row says."""
    load(dataset, {})


def resolve_commit(dataset: Dataset) -> str:
    """The commit behind a hub data set's revision; empty for local files."""
    return ""

"""Where a data set's rows come from: a folder, a recipe's folder, or the hub.

Opens the given splits without reading their rows. What the columns mean is for `rows`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from tabiflow import files, hub
from tabiflow.errors import DataError
from tabiflow.example import data_folder
from tabiflow.registry import SPLITS, UNPINNED, dataset_files
from tabiflow.spec import Dataset

_ALIASES = dict.fromkeys(("dev", "valid", "val", "trial"), "validation")
"""What the hub's data sets call their validation split."""


class GivenSplit(Protocol):
    @property
    def where(self) -> str:
        """The file or the hub's split, for messages."""

    def size(self) -> int:
        """Rows; looks at none of them."""

    def read(self, columns: Sequence[str], optional: Sequence[str] = ()) -> pa.Table:
        """Raises DataError for a missing column and for what cannot be read."""


@dataclass(frozen=True)
class FileSplit:
    file: Path

    @property
    def where(self) -> str:
        return str(self.file)

    def size(self) -> int:
        return files.count(self.file)

    def read(self, columns: Sequence[str], optional: Sequence[str] = ()) -> pa.Table:
        return files.read(self.file, columns, optional)


@dataclass(frozen=True)
class HubSplit:
    where: str
    dataset: Any
    """A `datasets.Dataset`: memory-mapped, so that nothing is read before `read`."""

    def size(self) -> int:
        return len(self.dataset)

    def read(self, columns: Sequence[str], optional: Sequence[str] = ()) -> pa.Table:
        present = self.dataset.column_names
        files.require(columns, present, self.where)
        wanted = [*columns, *(column for column in optional if column in present)]
        chosen = self.dataset.select_columns(wanted)
        table: pa.Table = chosen.with_format("arrow")[:]
        # The names of class labels travel in the metadata, as in Parquet files from the hub.
        return table.replace_schema_metadata(chosen.features.arrow_schema.metadata)


@dataclass(frozen=True)
class Origin:
    splits: Mapping[str, GivenSplit]
    """By the names train, validation and test; at least one."""
    commit: str = ""
    """Of the hub; empty for files."""


def repository(dataset: Dataset) -> hub.Repository:
    return hub.Repository("dataset", dataset.hub or "", dataset.revision or UNPINNED)


def opened(dataset: Dataset, pauses: Sequence[float] = hub.PAUSES) -> Origin:
    """Raises DataError when there is no split, EnvironmentFault when the hub is out of reach."""
    if dataset.hub is not None:
        return _from_hub(dataset, pauses)
    folder = dataset.path or data_folder(dataset.build or "")
    if not folder.is_dir():
        raise DataError("there is no such folder", where=str(folder))
    found = dataset_files(folder)
    if not found:
        raise DataError("no split in it: train, validation or test", where=str(folder))
    return Origin({name: FileSplit(file) for name, file in found.items()})


def _from_hub(dataset: Dataset, pauses: Sequence[float]) -> Origin:
    source = repository(dataset)
    commit = hub.commit(source, pauses)
    tables = hub.dataset_tables(source, dataset.config, commit, pauses)
    named = {_ALIASES.get(name, name): table for name, table in tables.items()}
    known = {name: table for name, table in named.items() if name in SPLITS}
    if not known and len(named) == 1:
        known = {"train": next(iter(named.values()))}
    if not known:
        raise source.error(f"has no split train, validation or test, but {', '.join(tables)}")
    return Origin(
        {name: HubSplit(f"{dataset.hub} ({name})", table) for name, table in known.items()}, commit
    )

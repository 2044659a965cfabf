"""The models and data sets that tabiflow knows, and how a sweep's names become rows.

A name or a tag of a sweep becomes rows here, each with the revision that its trials' identity
holds. Reads local files' bytes for that; never a hub.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tabiflow.errors import UserError, near
from tabiflow.registry import local
from tabiflow.registry.datasets import DATASETS
from tabiflow.registry.models import MODELS
from tabiflow.source import Source
from tabiflow.spec import Dataset, Model, Space, Sweep

Row = TypeVar("Row", Model, Dataset)
SPLITS = ("train", "validation", "test")
FORMATS = ("parquet", "jsonl")
UNPINNED = "main"
"""The revision of a hub row without a commit; what it resolved to is recorded with each trial."""


@dataclass(frozen=True)
class Grid:
    """A sweep with its names resolved."""

    models: tuple[Model, ...]
    searches: tuple[tuple[tuple[Dataset, ...], Space], ...]
    places: Mapping[str, str]
    """Data set -> `file:line` of the entry that named it."""
    origin: "Grid | None" = None
    """Of a sweep of winners: the named sweep's."""

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        by_name = {each.name: each for datasets, _ in self.searches for each in datasets}
        return tuple(by_name.values())


def resolve(sweep: Sweep) -> Grid:
    """Raises SpecError for an unknown name, UserError for unreadable local files."""
    source = sweep.source
    origin = resolve(sweep.winners_of.sweep) if sweep.winners_of else None
    known_models = _known(origin.models if origin else (), MODELS)
    known_datasets = _known(origin.datasets if origin else (), DATASETS)
    models: dict[str, Model] = {}
    for index, entry in enumerate(sweep.models):
        for row in _rows(source, entry, known_models, "model", ("models", index)):
            with source.blaming("models", index):
                model = _revised_model(source, row, index)
            _add(source, models, model, ("models", index))
    datasets: dict[str, Dataset] = {}
    places: dict[str, str] = {}
    searches = []
    for index, search in enumerate(sweep.search):
        chosen: dict[str, Dataset] = {}
        for inner, named in enumerate(search.datasets):
            place = ("search", index, "datasets", inner)
            for each in _rows(source, named, known_datasets, "data set", place):
                with source.blaming(*place):
                    dataset = _revised_dataset(source, each, place)
                _add(source, datasets, dataset, place)
                chosen[dataset.name] = dataset
                places.setdefault(dataset.name, source.where(*place))
        searches.append((tuple(chosen.values()), search.space))
    return Grid(tuple(models.values()), tuple(searches), places, origin)


def _known(own: Sequence[Row], registered: Sequence[Row]) -> Sequence[Row]:
    """What names stand for in a sweep of winners: first for the rows of the sweep it names."""
    names = {row.name for row in own}
    others = [row for row in registered if row.name not in names]
    return list(own) + others


def dataset_files(folder: Path) -> dict[str, Path]:
    """The split files of a local data set, by split. Both formats of one split is a mistake."""
    found: dict[str, Path] = {}
    for split in SPLITS:
        files = [folder / f"{split}.{format}" for format in FORMATS]
        present = [file for file in files if file.is_file()]
        if len(present) > 1:
            both = " and ".join(file.name for file in present)
            raise UserError(f"both {both} are there", where=str(folder), hint="keep one of them")
        if present:
            found[split] = present[0]
    return found


def _rows(
    source: Source,
    entry: str | Row,
    rows: Sequence[Row],
    what: str,
    place: tuple[str | int, ...],
) -> Iterable[Row]:
    if not isinstance(entry, str):
        return (entry,)
    chosen = [row for row in rows if entry == row.name] or [
        row for row in rows if entry in row.tags
    ]
    if not chosen:
        known = {row.name for row in rows} | {tag for row in rows for tag in row.tags}
        raise source.error(
            f"unknown {what} `{entry}`",
            *place,
            hint=near(entry, sorted(known)) or "`tabiflow list` shows the known ones",
        )
    return chosen


def _add(source: Source, rows: dict[str, Row], row: Row, place: tuple[str | int, ...]) -> None:
    """Tags may overlap, so the same row twice is one; two rows of one name are a mistake."""
    if rows.setdefault(row.name, row) != row:
        raise source.error(f"`{row.name}` names two different rows", *place)


def _revised_model(source: Source, model: Model, index: int) -> Model:
    if model.path is None:
        return model if model.revision else model.model_copy(update={"revision": UNPINNED})
    if not model.path.is_dir():
        raise source.error(
            f"model `{model.name}`: there is no folder {model.path}", "models", index
        )
    files = [file for file in model.path.rglob("*") if file.is_file()]
    if not (model.path / "config.json").is_file():
        raise source.error(f"model `{model.name}`: no config.json in {model.path}", "models", index)
    return model.model_copy(update={"revision": local.revision(model.path, files)})


def _revised_dataset(source: Source, row: Dataset, place: tuple[str | int, ...]) -> Dataset:
    offered = _offered(row)
    if offered is not None:
        row = row.model_copy(update={"path": offered, "hub": None, "build": None})
    if row.path is None:
        return row if row.revision else row.model_copy(update={"revision": UNPINNED})
    if not row.path.is_dir():
        raise source.error(f"data set `{row.name}`: there is no folder {row.path}", *place)
    files = dataset_files(row.path)
    if not files:
        names = ", ".join(f"{split}.{{{','.join(FORMATS)}}}" for split in SPLITS)
        raise source.error(f"data set `{row.name}`: none of {names} in {row.path}", *place)
    return row.model_copy(update={"revision": local.revision(row.path, list(files.values()))})


def _offered(row: Dataset) -> Path | None:
    """The local copy that `TABIFLOW_DATA` offers, if any; inline folders need none."""
    offer = os.environ.get("TABIFLOW_DATA")
    if not offer or row.path is not None:
        return None
    folder = Path(offer).expanduser().resolve()
    if not folder.is_dir():
        # Going to the hub instead would make other trials of the same sweep.
        raise UserError(f"TABIFLOW_DATA names no folder: {folder}")
    offered = folder / (row.files_of or row.name)
    return offered if offered.is_dir() else None

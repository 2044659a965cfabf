"""What a sweep needs to run elsewhere: its files, laid out so that its relative paths stay true.

Absolute paths and those below `~` are taken as the cluster's own and stay behind; so do rows of the
hub and of the registry. Only what a trial reads is taken, whatever else lies beside it.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tabiflow.errors import SpecError
from tabiflow.registry import dataset_files
from tabiflow.source import Place
from tabiflow.spec import Sweep, space_file


def pack(sweep: Sweep, folder: Path) -> Path:
    """Lays the files out below `folder`; the sweep's own place in it.

    Raises SpecError at the line that names something that is not there.
    """
    files = {file.absolute(): target for file, target in _files(sweep)}
    top = Path(os.path.commonpath([target.parent for target in files.values()]))
    for file, target in files.items():
        _lay(file, folder / target.relative_to(top))
    return _normal(sweep.source.file).relative_to(top)


def _files(sweep: Sweep) -> Iterator[tuple[Path, Path]]:
    """Every file with the place that the sweep looks for it."""
    source = sweep.source
    yield source.file, _normal(source.file)
    if sweep.winners_of is not None:
        yield from _files(sweep.winners_of.sweep)
    for index, search in enumerate(source.plain["search"]):
        named = search["space"]
        if isinstance(named, str) and not Path(named).is_absolute():
            file = space_file(source, named, ("search", index))
            yield file, _space_place(sweep, named, file)
        for inner, row in enumerate(search["datasets"]):
            place: Place = ("search", index, "datasets", inner)
            for path in _sent(sweep, row, place):
                yield from ((file, file) for file in dataset_files(path).values())
    for index, row in enumerate(source.plain["models"]):
        for path in _sent(sweep, row, ("models", index)):
            yield from _below(path)
    for metric in sweep.metrics:
        if Path(metric).is_absolute():
            yield from _below(Path(metric))


def _sent(sweep: Sweep, row: Any, place: Place) -> Iterator[Path]:
    """The folder of an inline row with a relative path."""
    written = row.get("path") if isinstance(row, dict) else None
    if written is None or Path(written).expanduser().is_absolute():
        return
    path = _normal(sweep.folder / written)
    if not path.is_dir():
        raise sweep.source.error(f"there is no folder {path} to send", *place)
    yield path


def _space_place(sweep: Sweep, named: str, file: Path) -> Path:
    """A space of the working directory goes where the sweep finds it without one."""
    folder, place = _normal(sweep.folder), _normal(file)
    if named.endswith((".yaml", ".yml")) or place.parent.parent in (folder, folder.parent):
        return place
    return folder / "search_spaces" / file.name


def _below(path: Path) -> Iterator[tuple[Path, Path]]:
    if path.is_file():
        yield path, path
    for file in sorted(path.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file, file


def _normal(path: Path) -> Path:
    """Absolute, without `..`, and with links as they are: their names are what a sweep says."""
    return Path(os.path.normpath(path.absolute()))


def _lay(file: Path, place: Path) -> None:
    """A hard link where the disk allows: models are large."""
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        try:
            os.link(file.resolve(), place)
        except OSError:
            shutil.copyfile(file, place)
    except OSError as error:
        raise SpecError(f"cannot be sent: {error.strerror}", where=str(file)) from error

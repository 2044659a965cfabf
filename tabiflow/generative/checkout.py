"""A user's checkout of the CETVEL repository, read as data: its YAML is parsed, nothing of it runs.

`!function`, `class:` and any other tag stay names of code that is never imported. Includes are
merged as lm-evaluation-harness merges them. A file that cannot be read is a fault of its own; the
others are read all the same.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from tabiflow.errors import SpecError, UserError
from tabiflow.source import Source

KEYS = frozenset(
    {"task", "include", "class", "dataset_path", "dataset_name", "test_split", "validation_split"}
    | {"output_type", "description", "doc_to_text", "doc_to_choice", "doc_to_target"}
    | {"target_delimiter", "generation_kwargs", "filter_list", "metric_list", "process_docs"}
    | {"process_results"}
)
"""What is read of a task; whatever else it holds is not looked at."""
MOST_VALUES = 5_000
"""In one file, aliases counted as often as they are used."""
LARGEST = 100_000
"""Bytes of one file."""
DEEPEST = 100
"""Open brackets of one file: the parser takes half a minute for 2,000."""


@dataclass(frozen=True)
class Code:
    """What a tag points at: Python code of the checkout."""

    name: str


@dataclass(frozen=True)
class Written:
    """One task as its YAML has it, with what it includes."""

    name: str
    file: Path
    values: Mapping[str, Any]
    places: Mapping[str, str]
    """Key -> `file:line`."""

    def where(self, key: str) -> str:
        return self.places.get(key, str(self.file))


@dataclass(frozen=True)
class Checkout:
    folder: Path
    tasks: Mapping[str, Written]
    faults: tuple[str, ...]
    fingerprint: str
    """Hash of every task file's name and bytes."""


def read(folder: Path) -> Checkout:
    """Raises UserError where there is no task at all."""
    root = folder / "tasks" if (folder / "tasks").is_dir() else folder
    if not root.is_dir():
        raise UserError("there is no such folder", where=str(folder))
    tasks: dict[str, Written] = {}
    faults: list[str] = []
    files = sorted(file for file in root.rglob("*") if file.is_file() and _is_yaml(file))
    for file in files:
        try:
            found = _task(file, root)
        except SpecError as error:
            faults.append(str(error))
            continue
        if found is None:
            continue
        if found.name in tasks:
            other = tasks[found.name].file
            faults.append(f"{file}: task `{found.name}` is also in {other}, which is kept")
            continue
        tasks[found.name] = found
    if not tasks:
        raise UserError(
            "no task in it", where=str(folder), hint="name a checkout of the CETVEL repository"
        )
    return Checkout(folder, tasks, tuple(faults), _fingerprint(files, root))


def _is_yaml(file: Path) -> bool:
    """Included files of the harness end with `_yaml`."""
    return file.suffix in (".yaml", ".yml") or file.name.endswith("_yaml")


def _fingerprint(files: list[Path], root: Path) -> str:
    found = hashlib.sha256()
    for file in files:
        found.update(f"{file.relative_to(root)}\0{file.stat().st_size}\0".encode())
        found.update(file.read_bytes() if file.stat().st_size <= LARGEST else b"")
    return found.hexdigest()[:16]


def _task(file: Path, root: Path) -> Written | None:
    """None for what is no task of its own: parts that others include, groups."""
    values, places = _merged(file, root, ())
    name = values.get("task")
    if not isinstance(name, str) or file.suffix not in (".yaml", ".yml"):
        return None
    return Written(name, file, values, places)


def _merged(
    file: Path, root: Path, outer: tuple[Path, ...]
) -> tuple[dict[str, Any], dict[str, str]]:
    """A file's keys over those of what it includes, of which the first named win."""
    own, places = _keys(file)
    included = own.pop("include", [])
    names = [included] if isinstance(included, str) else included
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SpecError("its include is no file name", where=places["include"])
    values: dict[str, Any] = {}
    lines: dict[str, str] = {}
    for name in reversed(names):
        inner = _inside(file, name, root, (*outer, file.resolve()), places["include"])
        for target, found in zip(
            (values, lines), _merged(inner, root, (*outer, file.resolve())), strict=True
        ):
            target.update(found)
    return values | own, lines | places


def _inside(file: Path, name: str, root: Path, outer: tuple[Path, ...], where: str) -> Path:
    target = (file.parent / name).resolve()
    if not target.is_relative_to(root.resolve()):
        raise SpecError(f"it includes `{name}`, outside the checkout", where=where)
    if target in outer:
        raise SpecError(f"it includes `{name}`, which includes it", where=where)
    return target


def _keys(file: Path) -> tuple[dict[str, Any], dict[str, str]]:
    if file.is_file() and file.stat().st_size > LARGEST:
        raise SpecError(f"it is larger than {LARGEST} bytes", where=str(file))
    if file.is_file() and _depth(file.read_bytes()) > DEEPEST:
        raise SpecError("it is nested too deeply", where=str(file))
    budget = iter(range(MOST_VALUES))
    try:
        source = Source.read(file)
        known = {key: value for key, value in source.tree.items() if key in KEYS}
        keys = {str(key): _plain(value, budget, file) for key, value in known.items()}
    except RecursionError as error:
        raise SpecError("it is nested too deeply", where=str(file)) from error
    except ValueError as error:
        # Dates that are none, and paths that no system has.
        raise SpecError(f"it cannot be read: {error}", where=str(file)) from error
    return keys, {key: source.where(key) for key in keys}


def _depth(content: bytes) -> int:
    steps = ((each in b"[{") - (each in b"]}") for each in content)
    return max(accumulate(steps), default=0)


def _plain(node: Any, budget: Iterator[int], file: Path) -> Any:
    """Without ruamel's own types; whatever bears a tag is code, and stays a name."""
    if next(budget, None) is None:
        raise SpecError(f"it holds more than {MOST_VALUES} values", where=str(file))
    tag = getattr(getattr(node, "tag", None), "value", None)
    if tag:
        return Code(str(getattr(node, "value", tag)))
    if isinstance(node, Mapping):
        return {str(key): _plain(value, budget, file) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value, budget, file) for value in node]
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return None if node is None else str(node)

"""YAML files with the line of every value, so that a mistake can be shown where it stands."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from tabiflow.errors import SpecError, near

Row = TypeVar("Row", bound=BaseModel)
Place = tuple[str | int, ...]
"""Keys and indices from the top of a document to a value."""


@dataclass(frozen=True)
class Source:
    """A parsed YAML mapping and where its values stand."""

    file: Path
    tree: Any

    @classmethod
    def read(cls, file: Path) -> "Source":
        """Raises SpecError when the file is missing, not YAML, or not a mapping."""
        tree = _parsed(file)
        if not isinstance(tree, Mapping):
            raise SpecError("is not a mapping of keys to values", where=f"{file}:1")
        return cls(file, tree)

    @property
    def plain(self) -> dict[str, Any]:
        """The content without ruamel's own types."""
        plain: dict[str, Any] = _plain(self.tree)
        return plain

    def where(self, *place: str | int) -> str:
        """`file:line` of the deepest part of `place` that exists in the file."""
        line = ([line for _, line in self._trail(place)] or [0])[-1]
        return f"{self.file}:{line + 1}"

    def _trail(self, place: Place) -> list[tuple[str | int, int]]:
        """The parts of `place` that exist in the file, each with its line, counted from 0.

        Others are left out: keys that are missing, pydantic's names for the sides of a union.
        """
        node, line = self.tree, 0
        trail: list[tuple[str | int, int]] = []
        for part in place:
            if isinstance(node, CommentedMap) and part in (keys := {str(key): key for key in node}):
                key = keys[str(part)]
                # A key that came in through `<<` has no line of its own.
                line = node.lc.key(key)[0] if key in (node.lc.data or ()) else line
            elif isinstance(node, CommentedSeq) and isinstance(part, int) and part < len(node):
                key, line = part, node.lc.item(part)[0]
            else:
                continue
            node = node[key]
            trail.append((part, line))
        return trail

    def error(self, message: str, *place: str | int, hint: str | None = None) -> SpecError:
        return SpecError(message, where=self.where(*place), hint=hint)

    def is_path(self, name: str, *place: str | int) -> bool:
        """Whether `name` is the path of a YAML file; otherwise it is a name, which is no path."""
        if name.endswith((".yaml", ".yml")):
            return True
        if Path(name).name != name or name.startswith("."):
            raise self.error(
                f"`{name}` is no name: only a path that ends in .yaml may hold a slash", *place
            )
        return False

    @contextmanager
    def blaming(self, *place: str | int) -> Iterator[None]:
        """For looking at a path that the file names: what is wrong with it is said at its line."""
        try:
            yield
        except OSError as error:
            raise self.error(f"{error.filename}: {error.strerror}", *place) from error
        except (RuntimeError, ValueError) as error:
            # `~` of nobody and characters that no path may hold.
            raise self.error(f"not a path: {error}", *place) from error

    def validate(self, row: type[Row], content: Mapping[str, Any], place: Place = ()) -> Row:
        """`row(**content)`; the first mistake becomes a SpecError at its line."""
        try:
            return row.model_validate(content)
        except ValidationError as error:
            raise self._explain(error.errors(), row, place) from error

    def _explain(
        self, mistakes: Sequence[ErrorDetails], row: type[BaseModel], place: Place
    ) -> SpecError:
        # A misspelt key is two mistakes to pydantic; the unknown key is the one to show.
        first = min(mistakes, key=lambda each: each["type"] != "extra_forbidden")
        location = (*place, *first["loc"])
        if first["type"] == "extra_forbidden":
            hint = _home(str(first["loc"][-1]), row, first["loc"][:-1])
            return self.error(f"unknown key `{first['loc'][-1]}`", *location, hint=hint)
        if first["type"] == "missing" and isinstance(first["loc"][-1], str):
            return self.error(f"`{first['loc'][-1]}` is missing", *location[:-1])
        trail = self._trail(location)
        same = [each for each in mistakes if self._trail((*place, *each["loc"])) == trail]
        names = [f"`{part}`: " for part, _ in trail if isinstance(part, str)]
        told = "".join(names[-1:]) + reason(same)
        return self.error(told, *location, hint=_hint(first))


def _parsed(file: Path) -> Any:
    # YAML 1.2: `5e-6` is a number and `no` is a word, neither of which PyYAML gets right.
    try:
        return YAML().load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", where=str(file)) from error
    except UnicodeDecodeError as error:
        raise SpecError("cannot be read: not UTF-8 text", where=str(file)) from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        told = ", ".join(part for part in (error.context, error.problem) if part)
        # Of a key that stands twice, ruamel repeats both values, however long.
        told = told.split(" with value ")[0]
        where = f"{file}:{mark.line + 1}" if mark else str(file)
        raise SpecError(f"not valid YAML: {told}", where=where) from error
    except (YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
        # ruamel lets Python's errors out for values that their tag refuses (`!!int ten`,
        # 2024-13-45) and for mappings as keys (`{{ x }}`).
        told = (str(error) or type(error).__name__).splitlines()[0]
        raise SpecError(f"not valid YAML: {told}", where=str(file)) from error


_REASONS = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a mapping of keys to values",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "int_type": "a whole number",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "missing": "longer",
    "model_type": "a mapping of keys to values",
    "path_type": "a path",
    "string_too_long": "at most {max_length} characters long",
    "string_pattern_mismatch": "made of letters, digits, `.`, `_` and `-`, a letter or digit first",
    "string_type": "text",
    "too_long": "no longer than {max_length}",
    "too_short": "a list that is not empty",
    "tuple_type": "a list",
}
"""What pydantic's kinds of mistake ask of a value, for people who do not program."""


def reason(mistakes: Sequence[ErrorDetails]) -> str:
    """What is wrong with a value; several mistakes when it may be of several kinds."""
    first = mistakes[0]
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    wanted = [
        _REASONS[each["type"]].format(**each.get("ctx", {}))
        for each in mistakes
        if each["type"] in _REASONS
    ]
    told = f"must be {' or '.join(dict.fromkeys(wanted))}" if wanted else first["msg"]
    shown = shortly(first["input"])
    return told if len(shown) > 60 else f"{told}, not {shown}"


def shortly(value: Any) -> str:
    """A value as YAML would say it, on one line."""
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _hint(mistake: ErrorDetails) -> str | None:
    value = mistake["input"]
    if mistake["type"] == "string_type" and not isinstance(value, list | dict | None):
        return "put it in quotes"
    expected = str(mistake.get("ctx", {}).get("expected", ""))
    return near(str(value), re.findall("'(.+?)'", expected))


def _home(name: str, row: type[BaseModel], inside: Place) -> str | None:
    """The near name of an unknown key where it stands, or the key that it belongs under."""
    here = row
    for part in inside:
        field = here.model_fields.get(str(part))
        here = next(_rows_in(field.annotation), here) if field else here
    homes = [parent for parent, each in _levels(row) if name in each.model_fields]
    return near(name, here.model_fields) or (f"it belongs under `{homes[0]}`" if homes else None)


def _levels(row: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """The rows inside a row, at any depth, each with the key that it stands under."""
    for name, field in row.model_fields.items():
        for inner in _rows_in(field.annotation):
            yield name, inner
            yield from _levels(inner)


def _rows_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _rows_in(argument)


def _plain(node: Any) -> Any:
    """ruamel's round-trip scalars carry formatting; identity and JSON want the bare value."""
    if isinstance(node, Mapping):
        return {str(key): _plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value) for value in node]
    # As a word, or pydantic would take `true` for the number 1.
    if isinstance(node, bool):
        return "true" if node else "false"
    for kind in (int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node

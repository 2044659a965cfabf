"""YAML files with the line of every value, so that a mistake can be shown where it stands."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
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
        # YAML 1.2: `5e-6` is a number and `no` is a word, neither of which PyYAML gets right.
        try:
            tree = YAML().load(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise SpecError(f"cannot be read: {reason}", where=str(file)) from error
        except MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            problem = (error.problem or "not YAML").splitlines()[0]
            raise SpecError(f"not valid YAML: {problem}", where=f"{file}:{line}") from error
        except YAMLError as error:
            raise SpecError(f"not valid YAML: {str(error).splitlines()[0]}", where=str(file)) from error
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
        node, line = self.tree, 0
        for key in place:
            if isinstance(node, Mapping) and key in node:
                line = node.lc.key(key)[0]
            elif isinstance(node, list) and isinstance(key, int) and key < len(node):
                line = node.lc.item(key)[0]
            else:
                continue  # a union's tag in pydantic's location, or a key that is missing
            node = node[key]
        return f"{self.file}:{line + 1}"

    def error(self, message: str, *place: str | int, hint: str | None = None) -> SpecError:
        return SpecError(message, where=self.where(*place), hint=hint)

    def validate(
        self, row: type[Row], content: Mapping[str, Any], place: Place = ()
    ) -> Row:
        """`row(**content)`; the first mistake becomes a SpecError at its line."""
        try:
            return row.model_validate(content)
        except ValidationError as error:
            raise self._explain(error, row, place) from error

    def _explain(self, error: ValidationError, row: type[BaseModel], place: Place) -> SpecError:
        # A misspelt key is two mistakes to pydantic; the unknown key is the one to show.
        first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        location = (*place, *first["loc"])
        name = next((str(part) for part in reversed(location) if isinstance(part, str)), "")
        if first["type"] == "extra_forbidden":
            return self.error(
                f"unknown key `{name}`", *location, hint=near(name, sorted(_field_names(row)))
            )
        if first["type"] == "missing":
            return self.error(f"`{name}` is missing", *location[:-1])
        message = first["msg"].removeprefix("Value error, ")
        message = message[:1].lower() + message[1:]
        shown = repr(first["input"])
        told = f"`{name}`: {message}" if name else message
        known = str(first.get("ctx", {}).get("expected", "")).replace("'", "")
        hint = near(str(first["input"]), known.replace(" or ", ", ").split(", "))
        return self.error(told if len(shown) > 60 else f"{told}, not {shown}", *location, hint=hint)


def _plain(node: Any) -> Any:
    """ruamel's round-trip scalars carry formatting; identity and JSON want the bare value."""
    if isinstance(node, Mapping):
        return {str(key): _plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value) for value in node]
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


def _field_names(row: type[BaseModel]) -> Iterator[str]:
    """The names of a row's fields, and of the rows inside it."""
    for name, field in row.model_fields.items():
        yield name
        for inner in _rows_in(field.annotation):
            yield from _field_names(inner)


def _rows_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _rows_in(argument)

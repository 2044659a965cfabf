"""Search spaces: which configurations a search may draw, and reading them from YAML."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from tabiflow.errors import near
from tabiflow.protocol import Frozen, Params, Protocol
from tabiflow.source import Place, Source, reason, shortly
from tabiflow.spec.written import WrittenSearch


class Choice(Frozen):
    values: tuple[Any, ...] = Field(min_length=1)

    @property
    def size(self) -> float:
        return len(self.values)


class Range(Frozen):
    low: float
    high: float
    log: bool = False
    integer: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> "Range":
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError("a range is [low, high] with low < high, above 0 if logarithmic")
        return self

    def holds(self, value: Any) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    @property
    def size(self) -> float:
        """How many values it holds."""
        return math.floor(self.high) - math.ceil(self.low) + 1 if self.integer else math.inf


RANGES = {
    "log_uniform": {"log": True},
    "uniform": {},
    "int_uniform": {"integer": True},
}
SEARCHABLE: Mapping[str, type[Params] | type[Protocol]] = {
    name: row for row in (Protocol, Params) for name in row.model_fields if name != "version"
}
"""What a space may name -> the row that checks its values."""
_ANY_PARAMS = {"learning_rate": 1e-5}


@dataclass(frozen=True)
class Space:
    """The configurations of a search: an exact grid, or ranges that are sampled."""

    dimensions: Mapping[str, Choice | Range]
    samples: int | None = None
    """Trials a cell, when sampled; None is the exact grid."""

    def grid(self) -> Iterator[dict[str, Any]]:
        """Every combination, the first dimension slowest. Only for spaces without ranges."""
        choices = [each.values for each in self.dimensions.values() if isinstance(each, Choice)]
        for values in product(*choices):
            yield dict(zip(self.dimensions, values, strict=True))

    def holds(self, settings: Mapping[str, Any]) -> bool:
        """Whether a configuration could have come from this space."""
        return all(
            settings.get(name) in dimension.values
            if isinstance(dimension, Choice)
            else dimension.holds(settings.get(name))
            for name, dimension in self.dimensions.items()
        )

    @property
    def size(self) -> float:
        """Distinct configurations; infinite with a range of real numbers."""
        return math.prod(dimension.size for dimension in self.dimensions.values())

    @property
    def varying(self) -> tuple[str, ...]:
        """The dimensions with more than one value: what a run's name shows."""
        return tuple(name for name, dimension in self.dimensions.items() if dimension.size > 1)


def read_space(source: Source, search: WrittenSearch, place: Place) -> Space:
    """The space of one search entry, read from its own file or from where it stands."""
    at: Place = ()
    if isinstance(search.space, str):
        with source.blaming(*place, "space"):
            file = space_file(source, search.space, place)
        source = Source.read(file)
        content = source.plain
    else:
        content, at = search.space, (*place, "space")
    own_samples = _whole_number(source, content.pop("samples", None), at)
    samples = search.samples or own_samples
    dimensions = {
        name: _dimension(source, name, written, (*at, name)) for name, written in content.items()
    }
    ranges = [name for name, each in dimensions.items() if isinstance(each, Range)]
    if "learning_rate" not in dimensions:
        raise source.error("a space needs `learning_rate`", *at)
    if ranges and samples is None:
        raise source.error(
            f"`{ranges[0]}` is a range, so the search needs `samples: N`", *at, ranges[0]
        )
    return _sampled(Space(dimensions, samples), ranged=bool(ranges))


def _sampled(space: Space, ranged: bool) -> Space:
    """No more samples than configurations; a space of lists that is drawn whole is a grid."""
    if space.samples is None or space.samples < space.size:
        return space
    return replace(space, samples=int(space.size) if ranged else None)


def space_file(source: Source, name: str, place: Place) -> Path:
    """`tpe` is search_spaces/tpe.yaml beside the sweep's folder or under the working directory;
    anything that ends in .yaml is a path from the sweep's folder."""
    folder = source.file.parent
    if source.is_path(name, *place, "space"):
        file = folder / name
        if not file.is_file():
            raise source.error(f"space `{name}`: there is no {file}", *place, "space")
        return file
    folders = [folder.parent / "search_spaces", folder / "search_spaces", Path("search_spaces")]
    for each in folders:
        if (each / f"{name}.yaml").is_file():
            return each / f"{name}.yaml"
    known = sorted({file.stem for each in folders for file in each.glob("*.yaml")})
    raise source.error(
        f"unknown space `{name}`: no search_spaces/{name}.yaml",
        *place,
        "space",
        hint=near(name, known),
    )


def _whole_number(source: Source, value: Any, at: Place) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise source.error(
        f"`samples`: must be a whole number above 0, not {shortly(value)}", *at, "samples"
    )


def _dimension(source: Source, name: str, written: Any, place: Place) -> Choice | Range:
    if name not in SEARCHABLE:
        raise source.error(f"unknown hyper-parameter `{name}`", *place, hint=near(name, SEARCHABLE))
    if isinstance(written, dict):
        return _range(source, name, written, place)
    values = written if isinstance(written, list) else [written]
    if not values:
        raise source.error(f"`{name}` has no values", *place)
    checked = tuple(
        _checked(source, name, value, (*place, index) if isinstance(written, list) else place)
        for index, value in enumerate(values)
    )
    if len(set(checked)) < len(checked):
        raise source.error(f"`{name}` holds a value twice", *place)
    return Choice(values=checked)


def _range(source: Source, name: str, written: Mapping[str, Any], place: Place) -> Range:
    known = ", ".join(RANGES)
    if len(written) != 1:
        raise source.error(f"`{name}`: a range is one of {known}", *place)
    kind = next(iter(written))
    if kind not in RANGES:
        raise source.error(
            f"`{name}`: `{kind}` is no range; known are {known}", *place, hint=near(kind, RANGES)
        )
    bounds = written[kind]
    if not (isinstance(bounds, list) and len(bounds) == 2):
        raise source.error(f"`{name}`: `{kind}` takes [low, high]", *place)
    low, high = (_checked(source, name, bound, place) for bound in bounds)
    integer = RANGES[kind].get("integer", False)
    if isinstance(low, int) and not integer:
        raise source.error(f"`{name}` takes whole numbers: `int_uniform`, not `{kind}`", *place)
    if isinstance(low, float) and integer:
        raise source.error(f"`{name}` takes any number: `uniform`, not `{kind}`", *place)
    return source.validate(Range, {"low": low, "high": high, **RANGES[kind]}, place)


def _checked(source: Source, name: str, value: Any, place: Place) -> Any:
    """The value as its field understands it: 1 and 1.0 must not be two trials."""
    row = SEARCHABLE[name]
    try:
        valid = row.model_validate({**(_ANY_PARAMS if row is Params else {}), name: value})
    except ValidationError as error:
        raise source.error(f"`{name}`: {reason(error.errors()[:1])}", *place) from error
    return getattr(valid, name)


def configured(protocol: Protocol, settings: Mapping[str, Any]) -> tuple[Params, Protocol]:
    """Splits a space's point into hyper-parameters and changes of the protocol."""
    params = {name: value for name, value in settings.items() if name in Params.model_fields}
    changes = {name: value for name, value in settings.items() if name not in params}
    return Params(**params), protocol.model_copy(update=changes)


def label(settings: Mapping[str, Any], varying: Sequence[str]) -> str:
    """A run's name: only what differs between the runs of its cell."""
    short = {"learning_rate": "lr", "weight_decay": "wd", "batch_size": "bs"}
    parts = [f"{short.get(name, name)}={_shown(settings[name])}" for name in varying]
    return " ".join(parts) or "the only configuration"


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)

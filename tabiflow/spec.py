"""What a user writes: sweeps, search spaces, and rows for models and data sets.

Reads YAML into frozen values and says `file:line` for every mistake. Does not know which names
the registry holds, nor what any of it means for training.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Tag,
    ValidationError,
    model_validator,
)

from tabiflow.errors import near
from tabiflow.protocol import Frozen, Params, Protocol
from tabiflow.source import Place, Source, reason, shortly

TaskKind = Literal["classification", "nli", "ner", "pos", "sts", "qa", "retrieval"]
Name = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Entry = TypeVar("Entry")


def _distinct(values: tuple[Entry, ...]) -> tuple[Entry, ...]:
    for value, times in Counter(values).items():
        if times > 1:
            raise ValueError(f"{value} stands there {times} times")
    return values


# numpy takes no other seeds.
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1), AfterValidator(_distinct)]


class _Origin(Frozen):
    """Where a model or a data set comes from: exactly one of hub, path and build."""

    name: Name
    hub: str | None = None
    """Hub id, `owner/name`."""
    path: Path | None = None
    """A local folder; relative to the sweep file."""
    build: str | None = None
    """The name of a recipe inside tabiflow that makes it; for the embedded example."""
    revision: str | None = None
    """A hub commit; of something local, the hash of its bytes, filled in when it is resolved."""
    tags: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_origin(self) -> "_Origin":
        if sum(origin is not None for origin in (self.hub, self.path, self.build)) != 1:
            raise ValueError(f"`{self.name}` needs one of `path` and `hub`, and not both")
        return self

    def _identity(self, *presentation: str) -> dict[str, Any]:
        """Fields that change results and differ from their defaults."""
        where = {"name", "path", "tags", *presentation}
        return self.model_dump(mode="json", exclude_defaults=True, exclude=where)


class Model(_Origin):
    """One row for an encoder."""

    title: str = ""
    """The name in published tables."""
    parameters: PositiveInt | None = None
    lowercase: Literal["turkish"] | None = None
    """How text is lower-cased before the tokenizer; None leaves it alone."""
    context: PositiveInt | None = None
    """Most tokens the model takes; None reads the model's own configuration."""
    add_prefix_space: bool = False
    """Needed by byte-level RoBERTa tokenizers to take words one by one."""
    trust_remote_code: bool = False
    """Runs Python code from the hub. Off unless a row asks for it; recorded with every trial."""
    cpus: PositiveFloat | None = None
    gpus: NonNegativeFloat | None = None
    """Share of a GPU a trial takes; None is one where the cluster has any."""
    notes: str = ""

    @property
    def identity(self) -> dict[str, Any]:
        return self._identity("title", "parameters", "cpus", "gpus", "notes")


class Dataset(_Origin):
    """One row for a data set."""

    task: TaskKind
    title: str = ""
    config: str | None = None
    """The hub data set's configuration."""
    columns: dict[str, str] = Field({})
    """The task's column -> the file's column, where they differ."""
    labels: Annotated[tuple[str | int, ...], AfterValidator(_distinct)] = ()
    """The label schema, in order. Empty: the union of the labels that the splits hold."""
    label_names: tuple[str, ...] = ()
    """What integer labels mean, where the files hold numbers; for people only."""
    label_range: tuple[float, float] | None = None
    """Similarity: the smallest and largest gold score; predictions are clipped to it."""
    bundles: bool = False
    """Parts of speech: tags are whole bundles of features (`Case=Nom|Number=Sing`), an open set.
    The schema is training's; a bundle that training lacks is never predicted and counts as wrong.
    """
    files_of: Name | None = None
    """The data set whose folder in `TABIFLOW_DATA` is this one's, too; None is its own name."""
    category: str = ""
    """Where its score is averaged; empty is the task's kind."""
    metric: str = ""
    """The published metric's name; for people only."""
    sizes: dict[str, int] = Field({})
    """Published rows of each split; `test` is the weight in the category's average."""
    licence: str = ""
    redistribution: str = ""
    processing: str = ""
    deviation: str = ""
    """How its released splits depart from the rule of TabiBERT section 4.2; for people only."""
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _ordered(self) -> "Dataset":
        if self.label_range is not None and not self.label_range[0] < self.label_range[1]:
            raise ValueError(f"`{self.name}`: `label_range` is [low, high] with low < high")
        if self.bundles and (self.task != "pos" or self.labels):
            raise ValueError(f"`{self.name}`: `bundles` are for `task: pos`, without `labels`")
        return self

    @property
    def group(self) -> str:
        return self.category or self.task

    @property
    def identity(self) -> dict[str, Any]:
        return self._identity(
            "title",
            "label_names",
            "files_of",
            "category",
            "metric",
            "sizes",
            "licence",
            "redistribution",
            "processing",
            "deviation",
            "notes",
        )


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


class Limit(Frozen):
    """Rows kept of each split, taken by a seeded shuffle; for trials at small cost."""

    train: PositiveInt | None = None
    validation: PositiveInt | None = None
    test: PositiveInt | None = None


class Limits(Frozen):
    """When to stop trying."""

    retries: int = Field(2, ge=0)
    """Attempts after the first, for trials lost to the environment or to a node."""
    hours: PositiveFloat | None = None
    """No trial starts after this long; running ones finish."""
    trial_hours: PositiveFloat | None = None
    """A trial that takes longer fails as `timeout`."""
    failures: int | None = Field(None, ge=0)
    """No trial starts after more failed trials than this; None goes on."""


class Confirm(Frozen):
    seeds: Seeds = (25,)
    fixed_epochs: bool = False
    """Train for as many epochs as the winner has recorded, the schedule squeezed into them and
    without early stopping, as TabiBench's released code does."""


class Pruning(Frozen):
    scheduler: Literal["asha"] = "asha"
    grace_period: PositiveInt = 1
    """Epochs that every trial gets."""
    reduction_factor: int = Field(3, ge=2)


class Rehearse(Frozen):
    """How a rehearsed trial behaves; it has no model and its score is made up."""

    seconds: NonNegativeFloat = 0.0
    """Wall time of an epoch."""
    failing: float = Field(0.0, ge=0, le=1)
    """Share of trials that fail with a made-up bug."""
    diverging: float = Field(0.0, ge=0, le=1)
    """Share of trials whose made-up loss turns NaN."""
    faulty: float = Field(0.0, ge=0, le=1)
    """Share of trials that meet a full disk in their first attempt."""
    lost: float = Field(0.0, ge=0, le=1)
    """Share of trials whose process dies in their first attempt."""


def _named(value: Any) -> str | None:
    if isinstance(value, str):
        return "name"
    return "row" if isinstance(value, dict | Model | Dataset) else None


_NAME_OR_ROW = Discriminator(
    _named,
    custom_error_type="entry",
    custom_error_message="must be a name or a mapping of keys to values",
)


def _scheduler(value: Any) -> Any:
    return {"scheduler": value} if isinstance(value, str) else value


class _Search(Frozen):
    datasets: tuple[
        Annotated[Annotated[str, Tag("name")] | Annotated[Dataset, Tag("row")], _NAME_OR_ROW],
        ...,
    ] = Field(min_length=1)
    space: str | dict[str, Any]
    samples: PositiveInt | None = None


class _Sweep(Frozen):
    name: Name
    models: tuple[
        Annotated[Annotated[str, Tag("name")] | Annotated[Model, Tag("row")], _NAME_OR_ROW],
        ...,
    ] = Field(min_length=1)
    search: tuple[_Search, ...] = Field(min_length=1)
    seeds: Seeds = (25,)
    confirm: Confirm = Confirm()
    protocol: Protocol = Protocol()
    limit: Limit = Limit()
    limits: Limits = Limits()
    pruning: Annotated[Pruning, BeforeValidator(_scheduler)] | None = None
    metrics: tuple[str, ...] = ()
    allow_hub_metrics: bool = False
    """Metrics from the hub run its code, so they need this."""
    runner: Literal["finetune", "rehearse"] = "finetune"
    rehearse: Rehearse = Rehearse()
    cpus: PositiveFloat = 1
    """CPU cores of a trial, unless its model's row says otherwise."""
    gpus: NonNegativeFloat | None = None


@dataclass(frozen=True)
class Search:
    """Data sets that share a space. Entries are names or tags of the registry, or rows."""

    datasets: tuple[str | Dataset, ...]
    space: Space
    """Empty where the winners of another sweep are taken."""


@dataclass(frozen=True)
class WinnersOf:
    """Another sweep, whose winners are confirmed again: with more seeds, under another protocol."""

    sweep: "Sweep"
    protocol: Mapping[str, Any]
    """The fields that are set here; the others are as each winner had them."""


@dataclass(frozen=True)
class Sweep:
    """What should be known: models x data sets x configurations x seeds."""

    source: Source
    name: str
    models: tuple[str | Model, ...]
    search: tuple[Search, ...]
    seeds: tuple[int, ...]
    confirm: Confirm
    protocol: Protocol
    limit: Limit
    limits: Limits
    pruning: Pruning | None
    metrics: tuple[str, ...]
    """Additional `evaluate` modules: local folders made absolute, or hub names."""
    runner: Literal["finetune", "rehearse"]
    rehearse: Rehearse
    cpus: float
    gpus: float | None
    winners_of: WinnersOf | None = None
    """Such a sweep has confirming trials only."""

    @property
    def folder(self) -> Path:
        """Relative paths of the sweep start here."""
        return self.source.file.parent

    @classmethod
    def read(cls, file: Path, *, rehearse: bool = False) -> "Sweep":
        """`rehearse` runs the same plan without models, in an experiment of its own."""
        return _sweep(file, rehearse, ())


def _sweep(file: Path, rehearse: bool, readers: tuple[Path, ...]) -> Sweep:
    """`readers` are the sweeps that wait for the winners of this one."""
    source = Source.read(file)
    written = source.validate(_Sweep, source.plain)
    fields = {name: getattr(written, name) for name in _Sweep.model_fields}
    name = _named_sweep(source, written)
    fields["search"] = tuple(
        Search(
            tuple(
                _placed(source, entry, ("search", index, "datasets", inner))
                for inner, entry in enumerate(each.datasets)
            ),
            _space(source, each, ("search", index)) if name is None else Space({}),
        )
        for index, each in enumerate(written.search)
    )
    fields["models"] = tuple(
        _placed(source, entry, ("models", index)) for index, entry in enumerate(written.models)
    )
    fields["metrics"] = _metrics(source, written)
    del fields["allow_hub_metrics"]
    if len(written.seeds) > 1 and any(each.space.samples for each in fields["search"]):
        raise source.error("a search with `samples` takes one seed", "seeds")
    if rehearse:
        fields |= {"runner": "rehearse", "name": f"{written.name}-rehearsal"}
    if name is not None:
        fields |= _taken(source, written, name, rehearse, readers)
    return Sweep(source=source, **fields)


Named = TypeVar("Named", str | Model, str | Dataset)


def _placed(source: Source, entry: Named, place: Place) -> Named:
    """An inline row's path, made absolute: workers run elsewhere."""
    if isinstance(entry, str) or entry.path is None:
        return entry
    with source.blaming(*place):
        path = (source.file.parent / entry.path.expanduser()).resolve()
    return entry.model_copy(update={"path": path})


def _metrics(source: Source, written: _Sweep) -> tuple[str, ...]:
    return tuple(
        _metric(source, entry, ("metrics", index), written.allow_hub_metrics)
        for index, entry in enumerate(written.metrics)
    )


def _metric(source: Source, entry: str, place: Place, allow_hub: bool) -> str:
    kind, _, name = entry.partition(":")
    if kind != "evaluate" or not name:
        raise source.error(f"metric `{entry}` is not `evaluate:<folder>`", *place)
    with source.blaming(*place):
        folder = (source.file.parent / name).resolve()
        if folder.exists():
            return str(folder)
    if name.startswith((".", "/")):
        raise source.error(f"metric `{entry}`: there is no {folder}", *place)
    if not allow_hub:
        raise source.error(
            f"metric `{entry}` would run code from the hub",
            *place,
            hint="write a local path, or set `allow_hub_metrics: true`",
        )
    return name


WINNERS_OF = "winners_of"
_OF_THE_NAMED = {
    "seeds": "`confirm: {seeds: ...}` says which to train",
    "pruning": "confirming trials are never cut short",
    "runner": None,
    "rehearse": None,
}
"""Keys that a sweep of winners leaves to the sweep it names, with what to do instead."""


def _named_sweep(source: Source, written: _Sweep) -> str | None:
    """The sweep whose winners are asked for; None in a sweep that searches."""
    spaces = [each.space if isinstance(each.space, dict) else {} for each in written.search]
    if not any(WINNERS_OF in space for space in spaces):
        return None
    name = spaces[0].get(WINNERS_OF)
    for index, space in enumerate(spaces):
        place: Place = ("search", index, "space")
        if WINNERS_OF not in space or space[WINNERS_OF] != name:
            raise source.error("all searches of a sweep take the winners of the same sweep", *place)
        if not isinstance(name, str):
            told = f"`{WINNERS_OF}` takes the name of a sweep, not {shortly(name)}"
            raise source.error(told, *place, WINNERS_OF)
        _alone(source, written.search[index], space, place)
    _left_to_the_named(source, written)
    return name


def _alone(source: Source, search: _Search, space: Mapping[str, Any], place: Place) -> None:
    others = [key for key in space if key != WINNERS_OF]
    if others:
        raise source.error(
            f"`{others[0]}` cannot stand beside `{WINNERS_OF}`",
            *(*place, others[0]),
            hint="the winner's configuration is taken; `protocol` may change how it trains",
        )
    if search.samples is not None:
        raise source.error("winners are not sampled: leave `samples` out", *place[:-1], "samples")


def _left_to_the_named(source: Source, written: _Sweep) -> None:
    for key, hint in _OF_THE_NAMED.items():
        if key in written.model_fields_set:
            raise source.error(f"a sweep of winners has no `{key}` of its own", key, hint=hint)
    if "fixed_epochs" in written.confirm.model_fields_set:
        told = "a sweep of winners has no `fixed_epochs` of its own"
        raise source.error(told, "confirm", "fixed_epochs")


def _taken(
    source: Source, written: _Sweep, name: str, rehearse: bool, readers: tuple[Path, ...]
) -> dict[str, Any]:
    """What a sweep of winners has from the sweep that it names."""
    place: Place = ("search", 0, "space", WINNERS_OF)
    with source.blaming(*place):
        file, own = _sweep_file(source, name, place), source.file.resolve()
        looped = file.resolve() in (*readers, own)
    if looped:
        raise source.error(f"`{WINNERS_OF}: {name}` leads back to this sweep", *place)
    named = _sweep(file, rehearse, (*readers, own))
    if named.name == written.name + ("-rehearsal" if rehearse else ""):
        raise source.error(f"`{name}` has the same name: give this sweep its own", "name")
    protocol = {key: getattr(written.protocol, key) for key in written.protocol.model_fields_set}
    limit = written.limit.model_dump(exclude_unset=True)
    return {
        "protocol": named.protocol.model_copy(update=protocol),
        "limit": named.limit.model_copy(update=limit),
        "runner": named.runner,
        "rehearse": named.rehearse,
        "winners_of": WinnersOf(named, protocol),
    }


def _sweep_file(source: Source, name: str, place: Place) -> Path:
    """`tabibench` is tabibench.yaml beside this sweep; anything that ends in .yaml is a path."""
    folder = source.file.parent
    file = folder / (name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    if file.is_file():
        return file
    known = sorted(each.stem for each in folder.glob("*.yaml") if each != source.file)
    raise source.error(
        f"unknown sweep `{name}`: there is no {file}", *place, hint=near(name, known)
    )


def _space(source: Source, search: _Search, place: Place) -> Space:
    """The space of one search entry, read from its own file or from where it stands."""
    at: Place = ()
    if isinstance(search.space, str):
        with source.blaming(*place, "space"):
            file = _space_file(source, search.space, place)
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


def _space_file(source: Source, name: str, place: Place) -> Path:
    """`tpe` is search_spaces/tpe.yaml beside the sweep's folder or under the working directory;
    anything that ends in .yaml is a path from the sweep's folder."""
    folder = source.file.parent
    if name.endswith((".yaml", ".yml")):
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

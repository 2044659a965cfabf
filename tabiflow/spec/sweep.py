"""A sweep: the written file with its rows, spaces and the sweep whose winners it takes, resolved.

Says `file:line` for every mistake. Does not know which names the registry holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from tabiflow.errors import near
from tabiflow.protocol import Protocol
from tabiflow.source import Place, Source, shortly
from tabiflow.spec.rows import Dataset, Model
from tabiflow.spec.space import Space, read_space
from tabiflow.spec.written import (
    Confirm,
    Keeping,
    Limit,
    Limits,
    Pruning,
    Rehearse,
    WrittenSearch,
    WrittenSweep,
)


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
    storage: str | None
    """Of checkpoints: an absolute path or a URL; None is below `.tabiflow`."""
    checkpoint: Keeping
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
    written = source.validate(WrittenSweep, source.plain)
    fields = {name: getattr(written, name) for name in WrittenSweep.model_fields}
    name = _named_sweep(source, written)
    fields["search"] = tuple(
        Search(
            tuple(
                _placed(source, entry, ("search", index, "datasets", inner))
                for inner, entry in enumerate(each.datasets)
            ),
            read_space(source, each, ("search", index)) if name is None else Space({}),
        )
        for index, each in enumerate(written.search)
    )
    fields["models"] = tuple(
        _placed(source, entry, ("models", index)) for index, entry in enumerate(written.models)
    )
    fields["metrics"] = _metrics(source, written)
    fields["storage"] = _storage(source, written.storage)
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


def _storage(source: Source, written: str | None) -> str | None:
    if written is None or "://" in written:
        return written
    with source.blaming("storage"):
        return str((source.file.parent / Path(written).expanduser()).resolve())


def _metrics(source: Source, written: WrittenSweep) -> tuple[str, ...]:
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


def _named_sweep(source: Source, written: WrittenSweep) -> str | None:
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


def _alone(source: Source, search: WrittenSearch, space: Mapping[str, Any], place: Place) -> None:
    others = [key for key in space if key != WINNERS_OF]
    if others:
        raise source.error(
            f"`{others[0]}` cannot stand beside `{WINNERS_OF}`",
            *(*place, others[0]),
            hint="the winner's configuration is taken; `protocol` may change how it trains",
        )
    if search.samples is not None:
        raise source.error("winners are not sampled: leave `samples` out", *place[:-1], "samples")


def _left_to_the_named(source: Source, written: WrittenSweep) -> None:
    for key, hint in _OF_THE_NAMED.items():
        if key in written.model_fields_set:
            raise source.error(f"a sweep of winners has no `{key}` of its own", key, hint=hint)
    if "fixed_epochs" in written.confirm.model_fields_set:
        told = "a sweep of winners has no `fixed_epochs` of its own"
        raise source.error(told, "confirm", "fixed_epochs")


def _taken(
    source: Source, written: WrittenSweep, name: str, rehearse: bool, readers: tuple[Path, ...]
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
    file = folder / (name if source.is_path(name, *place) else f"{name}.yaml")
    if file.is_file():
        return file
    known = sorted(each.stem for each in folder.glob("*.yaml") if each != source.file)
    raise source.error(
        f"unknown sweep `{name}`: there is no {file}", *place, hint=near(name, known)
    )

"""Ratings of items by people (TabiBERT, appendix A.5): a file -> votes -> agreement. Torch-free.

A file is CSV or JSON Lines. Wide: `item`, perhaps `type`, and a column for each rater. Long:
`item`, perhaps `type`, `rater` and `rating`. An item is known by its type and its name. An empty
rating is one that was not given.
"""

import csv
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tabiflow.errors import UserError
from tabiflow.statistics import fleiss_kappa, majority, wilson

LEVELS = ("adequate", "minor", "changed")
"""The paper's: fully adequate, minor flaws, meaning changed."""
EVERY = "all"
_LONG = frozenset({"rater", "rating"})


@dataclass(frozen=True)
class Ratings:
    levels: tuple[str, ...]
    """From the mildest to the severest."""
    raters: tuple[str, ...]
    votes: Mapping[tuple[str, str], Mapping[str, str]]
    """(type, item) -> rater -> level."""


@dataclass(frozen=True)
class Share:
    """Items of which the majority says so, with Wilson's 95% interval, in per cent."""

    level: str
    items: int
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Border:
    """The levels cut in two: this one and severer against milder."""

    share: Share
    kappa: float
    """Fleiss', of the two sides."""


@dataclass(frozen=True)
class Agreement:
    type: str
    items: int
    tied: int
    """Items without one commonest level; they count for the severest of the commonest."""
    levels: tuple[Share, ...]
    borders: tuple[Border, ...]
    """`this level or a severer one`, for each level but the mildest."""
    kappa: float
    """Fleiss', over all levels; like those of the borders over the items that all raters rated."""
    fully_rated: int


def read(file: Path, levels: Sequence[str] = ()) -> Ratings:
    """`levels` from the mildest to the severest; without them numbers speak for themselves, and
    words must be the paper's. Raises UserError with `file:line`."""
    votes: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    levels = [_level(each) for each in levels]
    for line, key, rater, rating in _given(file):
        if rater in votes[key]:
            raise UserError(f"`{rater}` rates item `{key[1]}` twice", where=f"{file}:{line}")
        if levels and rating not in levels:
            raise UserError(
                f"rating `{rating}` is none of {', '.join(levels)}", where=f"{file}:{line}"
            )
        votes[key][rater] = rating
    if not votes:
        raise UserError("no rating in it", where=str(file))
    every = [each for of_item in votes.values() for each in of_item.values()]
    raters = tuple(dict.fromkeys(rater for of_item in votes.values() for rater in of_item))
    return Ratings(tuple(levels) or _levels(set(every), file), raters, dict(votes))


def agreement(ratings: Ratings) -> tuple[Agreement, ...]:
    """Of all items, then of each type where there are several."""
    types = dict.fromkeys(kind for kind, _ in ratings.votes)
    groups = {EVERY: list(ratings.votes.values())}
    if len(types) > 1:
        groups |= {
            each: [votes for (kind, _), votes in ratings.votes.items() if kind == each]
            for each in types
        }
    return tuple(_agreement(name, votes, ratings) for name, votes in groups.items())


def _agreement(name: str, votes: Sequence[Mapping[str, str]], ratings: Ratings) -> Agreement:
    levels = ratings.levels
    verdicts = [majority(list(each.values()), levels) for each in votes]
    full = [each for each in votes if len(each) == len(ratings.raters)]
    borders = []
    for place, level in enumerate(levels[1:], 1):
        severe = frozenset(levels[place:])
        share = _share(level, sum(each in severe for each in verdicts), len(verdicts))
        borders.append(Border(share, _kappa(full, (frozenset(levels[:place]), severe))))
    return Agreement(
        type=name,
        items=len(votes),
        tied=sum(map(_tied, votes)),
        levels=tuple(_share(each, verdicts.count(each), len(verdicts)) for each in levels),
        borders=tuple(borders),
        kappa=_kappa(full, [frozenset({each}) for each in levels]),
        fully_rated=len(full),
    )


def _share(level: str, hits: int, n: int) -> Share:
    return Share(level, hits, 100 * hits / n, *wilson(hits, n))


def _tied(votes: Mapping[str, str]) -> bool:
    first, *others = Counter(votes.values()).most_common(2)
    return bool(others) and others[0][1] == first[1]


def _kappa(votes: Sequence[Mapping[str, str]], sides: Sequence[frozenset[str]]) -> float:
    if not votes or len(votes[0]) < 2:
        return math.nan
    return fleiss_kappa(
        [[sum(vote in side for vote in each.values()) for side in sides] for each in votes]
    )


def _levels(found: set[str], file: Path) -> tuple[str, ...]:
    if found <= set(LEVELS):
        return LEVELS
    try:
        return tuple(sorted(found, key=float))
    except ValueError:
        raise UserError(
            f"how severe are {', '.join(sorted(found))}?",
            where=str(file),
            hint="name them from the mildest to the severest: --levels good,flawed,bad; every "
            "column but `item` and `type` is a rater's",
        ) from None


def as_json(ratings: Ratings, groups: Sequence[Agreement]) -> dict[str, Any]:
    """For other tools. Unknown is NaN."""
    return {
        "levels": list(ratings.levels),
        "raters": list(ratings.raters),
        "groups": [asdict(each) for each in groups],
    }


def sections(
    groups: Sequence[Agreement],
) -> list[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
    """Title, header and rows of each table, for people."""
    levels = [
        (group.type, str(group.items), str(group.tied), each.level, *_shown(each))
        for group in groups
        for each in group.levels
    ]
    borders = [
        (group.type, f"{each.share.level} or severer", *_shown(each.share), _number(each.kappa))
        for group in groups
        for each in group.borders
    ]
    kappas = [(each.type, str(each.fully_rated), _number(each.kappa)) for each in groups]
    share = ("rated so", "%", "95% interval")
    return [
        ("Majority votes", ("type", "items", "tied", "level", *share), levels),
        ("Cut in two", ("type", "level", *share, "Fleiss' kappa"), borders),
        ("Agreement on the level", ("type", "items of all raters", "Fleiss' kappa"), kappas),
    ]


def _shown(share: Share) -> tuple[str, str, str]:
    interval = f"{_number(share.low)}–{_number(share.high)}"
    return str(share.items), _number(share.share), interval


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


Given = tuple[int, tuple[str, str], str, str]
"""Line, (type, item), rater, rating."""


def _given(file: Path) -> Iterator[Given]:
    for line, record in _records(file):
        if not _text(record.get("item")):
            raise UserError("no `item`", where=f"{file}:{line}", hint="every row names its item")
        key = (_text(record.get("type")), _text(record["item"]))
        if record.keys() >= _LONG:
            pairs = [(_text(record["rater"]), _level(record["rating"]))]
        else:
            raters = [name for name in record if name not in ("item", "type")]
            pairs = [(name, _level(record[name])) for name in raters]
        if not pairs or not all(rater for rater, _ in pairs):
            raise UserError("no rater", where=f"{file}:{line}", hint="a column for each rater")
        yield from ((line, key, rater, rating) for rater, rating in pairs if rating)


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value).strip()


def _level(value: Any) -> str:
    """1.0 and 1 are one level: tables write a column of numbers with gaps as fractions, and the
    gaps as `nan`."""
    text = _text(value)
    try:
        number = float(text)
    except ValueError:
        return text
    return "" if math.isnan(number) else f"{number:.15g}"


def _records(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if file.suffix not in _FORMATS:
        raise UserError("ratings are .csv or .jsonl", where=str(file))
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(file)) from error
    except UnicodeDecodeError as error:
        raise UserError("not UTF-8 text", where=str(file)) from error
    yield from _FORMATS[file.suffix](file, text)


def _csv(file: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(text.splitlines(), strict=True)
    try:
        _refuse_twice(file, [name.strip() for name in reader.fieldnames or ()])
        for record in reader:
            if None in record or None in record.values():
                raise UserError(
                    f"{len(reader.fieldnames or ())} columns are named, not as many given",
                    where=f"{file}:{reader.line_num}",
                )
            yield reader.line_num, {str(name).strip(): value for name, value in record.items()}
    except csv.Error as error:
        raise UserError(f"not CSV: {error}", where=f"{file}:{reader.line_num}") from error


def _refuse_twice(file: Path, names: Sequence[str]) -> None:
    """One rater's column would hide the other's."""
    for name, times in Counter(names).items():
        if times > 1:
            raise UserError(f"{times} columns are called `{name}`", where=f"{file}:1")


def _jsonl(file: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise UserError("not JSON", where=f"{file}:{number}") from error
        if not isinstance(record, dict):
            raise UserError("not a JSON object", where=f"{file}:{number}")
        yield number, record


_FORMATS = {".csv": _csv, ".jsonl": _jsonl}

"""A split's rows as they were given -> canonical rows, every fault with its row.

One function a kind of task. Pure: where rows come from and which split they become is `data`'s.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabiflow.errors import DataError, near
from tabiflow.spec import TaskKind

NO_TEXT, NO_LABEL, NO_ANSWER = "no text", "no label", "no answer"
ANSWER_ELSEWHERE = "answer not at its offset"
LABEL_COLUMN: Mapping[TaskKind, str] = {
    "classification": "label",
    "nli": "label",
    "ner": "tags",
    "pos": "tags",
}
OPTIONAL: Mapping[TaskKind, tuple[str, ...]] = {
    "qa": ("id",),
    "ner": ("lemmas",),
    "pos": ("lemmas",),
}
"""Columns that a file may lack."""
DIAGNOSTIC = frozenset({"lemmas"})
"""Columns that no model sees: they are no part of what a split's fingerprint stands for."""
NO_FEATURES = "_"
_FEATURE = re.compile(r"([^=|]+)=([^=|]+)")


@dataclass(frozen=True)
class Schema:
    """What the labels of a data set are, the same for all its splits."""

    labels: tuple[str, ...] = ()
    """Class names or tags, in the order of their ids; empty where there are none."""
    label_range: tuple[float, float] | None = None
    """Similarity: the smallest and largest gold score."""
    bundles: bool = False
    """Labels are the bundles of features of training; rows may hold others."""


@dataclass(frozen=True)
class Given:
    """Rows as a file or the hub has them, with the task's column names."""

    table: pa.Table
    numbers: np.ndarray
    """The index of each row in the split that was given."""
    where: str
    """The file or hub split, for messages."""
    class_names: tuple[str, ...] = ()
    """What integer labels mean, where the file itself says so."""

    def take(self, rows: np.ndarray) -> "Given":
        return Given(self.table.take(rows), self.numbers[rows], self.where, self.class_names)

    def error(self, message: str, row: int, hint: str | None = None) -> DataError:
        """`row` is a position in this table; people count from 1."""
        number = int(self.numbers[row]) + 1
        return DataError(f"row {number}: {message}", where=self.where, hint=hint)


@dataclass(frozen=True)
class Canonical:
    rows: pa.Table
    excluded: Mapping[str, int] = field(default_factory=dict)
    """Reason -> rows left out."""


def canonical(given: Given, task: TaskKind, schema: Schema, *, training: bool) -> Canonical:
    """Raises DataError for rows that contradict the row of the data set. `training` leaves out
    what cannot be learnt from, too."""
    columns, reasons = _KINDS[task](given, schema, training)
    columns["row"] = pa.array(given.numbers, pa.int64())
    kept = np.array([reason is None for reason in reasons], dtype=bool)
    excluded = Counter(reason for reason in reasons if reason is not None)
    if not kept.any():
        told = f": {', '.join(f'{n} with {reason}' for reason, n in excluded.items())}"
        raise DataError(f"no usable rows{told if excluded else ''}", where=given.where)
    return Canonical(pa.table(columns).filter(pa.array(kept)), dict(excluded))


Reasons = list[str | None]
"""Why each row is left out; None keeps it."""
Columns = dict[str, pa.Array]


def _classified(*texts: str) -> Callable[[Given, Schema, bool], tuple[Columns, Reasons]]:
    def rows(given: Given, schema: Schema, training: bool) -> tuple[Columns, Reasons]:
        columns = {name: _text(given, name) for name in texts}
        labels = _flat(given.table["label"])
        names = label_names(labels, given, schema.labels)
        _refuse_unknown(names, schema.labels, given)
        reasons = _first(_without_text(columns), _nulls(names, NO_LABEL))
        return {**columns, "label": names}, reasons

    return rows


def _tagged(given: Given, schema: Schema, training: bool) -> tuple[Columns, Reasons]:
    tokens, tags = _list(given, "tokens", pa.string()), _list(given, "tags", None)
    _refuse_unequal(tokens, tags, given)
    _refuse_holes(tokens, given, "token")
    names = label_names(tags.flatten(), given, schema.labels, by_position=True)
    parents = pc.list_parent_indices(tags)
    if schema.bundles:
        names = _bundled(names, given, parents)
    else:
        _refuse_unknown(names, schema.labels, given, parents)
    tagged = _nested(tags, names)
    _refuse_holes(tagged, given, "tag")
    without = [None if length else NO_TEXT for length in pc.list_value_length(tokens).to_pylist()]
    columns = {"tokens": tokens, "tags": tagged, **_lemmas(given, tokens)}
    return columns, _first(without, _nulls(tags, NO_LABEL))


def _bundled(names: pa.Array, given: Given, parents: pa.Array) -> pa.Array:
    """Each bundle in the one spelling that `bundle` gives it."""
    coded = names.dictionary_encode()
    spelt = [bundle(name) for name in coded.dictionary.to_pylist()]
    if None in spelt:
        wrong = coded.dictionary[spelt.index(None)].as_py()
        row = parents[pc.index(names, wrong).as_py()].as_py()
        hint = f"write `Case=Nom|Number=Sing`, each name once, or `{NO_FEATURES}` for none"
        raise given.error(f"tag `{wrong}` is no bundle of features", row, hint)
    return pa.array(spelt, pa.string()).take(coded.indices)


def _lemmas(given: Given, tokens: pa.Array) -> Columns:
    """Of each word, null where it has none; no column where the file has none."""
    if "lemmas" not in given.table.column_names:
        return {}
    lemmas = _list(given, "lemmas", pa.string())
    _refuse_unequal(tokens, lemmas, given, "lemmas")
    return {"lemmas": lemmas}


def _similar(given: Given, schema: Schema, training: bool) -> tuple[Columns, Reasons]:
    columns = {name: _text(given, name) for name in ("sentence1", "sentence2")}
    scores = _flat(given.table["score"])
    if not (pa.types.is_floating(scores.type) or pa.types.is_integer(scores.type)):
        raise given.error(f"score {scores[0].as_py()!r} is not a number", 0)
    numbers = scores.cast(pa.float64())
    values = numbers.to_numpy(zero_copy_only=False)
    low, high = schema.label_range or (-math.inf, math.inf)
    for row in np.flatnonzero(~np.isfinite(values)).tolist():
        raise given.error(f"score {scores[row].as_py()} is not a number", row)
    for row in np.flatnonzero((values < low) | (values > high)).tolist():
        raise given.error(f"score {values[row]:g} is outside {low:g} to {high:g}", row)
    return {**columns, "score": numbers}, _without_text(columns)


def _answered(given: Given, schema: Schema, training: bool) -> tuple[Columns, Reasons]:
    columns = {name: _text(given, name) for name in ("context", "question")}
    answers = [
        _answers(each, given, row) for row, each in enumerate(given.table["answers"].to_pylist())
    ]
    reasons = _first(
        _without_text(columns), [None if each["text"] else NO_ANSWER for each in answers]
    )
    elsewhere = _elsewhere(columns["context"].to_pylist(), answers, reasons)
    if 2 * len(elsewhere) > len(answers):
        raise given.error(
            f"the answer is not at its answer_start, as in {len(elsewhere)} of {len(answers)} rows",
            elsewhere[0],
            "answer_start counts characters (code points) from 0",
        )
    if training:
        for row in elsewhere:
            reasons[row] = ANSWER_ELSEWHERE
    kind = pa.struct({"text": pa.list_(pa.string()), "answer_start": pa.list_(pa.int64())})
    return {"id": _ids(given), **columns, "answers": pa.array(answers, kind)}, reasons


def _paired(given: Given, schema: Schema, training: bool) -> tuple[Columns, Reasons]:
    columns = {name: _text(given, name) for name in ("anchor", "positive")}
    return columns, _without_text(columns)


_KINDS: Mapping[TaskKind, Callable[[Given, Schema, bool], tuple[Columns, Reasons]]] = {
    "classification": _classified("text"),
    "nli": _classified("premise", "hypothesis"),
    "ner": _tagged,
    "pos": _tagged,
    "sts": _similar,
    "qa": _answered,
    "retrieval": _paired,
}


def label_names(
    values: pa.Array, given: Given, declared: Sequence[str], *, by_position: bool = False
) -> pa.Array:
    """Labels as strings; null where a row has none. Not yet held against the schema.

    `by_position`: an integer that no schema knows as a name is a place in the declared labels,
    as tagging sets without names of their own mean it.
    """
    if pa.types.is_nested(values.type):
        raise DataError(f"labels are {values.type}, not names or numbers", where=given.where)
    coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    known = given.class_names or (tuple(declared) if by_position else ())
    names = [_label(each, known, declared) for each in coded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(coded.indices)


def refuse_ambiguous(labels: pa.Array, given: Given) -> None:
    """Where no schema says so, -1 beside other labels may be a class or a row without one."""
    names = {f"{label:g}" if isinstance(label, float) else str(label) for label in distinct(labels)}
    if "-1" in names and len(names) > 1:
        raise DataError(
            "label -1 is a class to some and a missing label to others",
            where=given.where,
            hint="declare `labels` of the data set, with -1 or without it",
        )


def _label(value: Any, known: Sequence[str], declared: Sequence[str]) -> str | None:
    if isinstance(value, float):
        if math.isnan(value):
            return None
        value = int(value) if value.is_integer() else value
    if value is None or _no_label(str(value), declared):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and str(value) not in declared and 0 <= value < len(known):
        return known[value]
    return str(value)


def _no_label(name: str, declared: Sequence[str]) -> bool:
    """What data sets write for a missing label, where no schema says that it is one."""
    return (name == "-1" or not name.strip()) and name not in declared


def features(bundle: str) -> dict[str, str] | None:
    """Name -> value of a bundle of features, in Universal Dependencies' spelling.

    None for what is no bundle. Several values of one feature (`Int,Rel`) are one value.
    """
    if bundle == NO_FEATURES:
        return {}
    found = [_FEATURE.fullmatch(part) for part in bundle.split("|")]
    named = {match[1]: match[2] for match in found if match}
    return named if len(named) == len(found) else None


def bundle(text: str) -> str | None:
    """The bundle with its features in Universal Dependencies' order; None for what is none."""
    named = features(text)
    if named is None:
        return None
    ordered = sorted(named.items(), key=lambda each: each[0].lower())
    return "|".join(f"{name}={value}" for name, value in ordered) or NO_FEATURES


def distinct(names: pa.Array) -> set[str]:
    return set(names.unique().drop_null().to_pylist())


def flat_labels(given: Given, task: TaskKind) -> pa.Array:
    """Every label or tag of the rows, one after the other."""
    labels = _flat(given.table[LABEL_COLUMN[task]])
    return _list(given, "tags", None).flatten() if LABEL_COLUMN[task] == "tags" else labels


def _refuse_unknown(
    names: pa.Array, labels: Sequence[str], given: Given, parents: pa.Array | None = None
) -> None:
    unknown = sorted(distinct(names) - set(labels))
    if not unknown:
        return
    place = pc.index(names, unknown[0]).as_py()
    raise given.error(
        f"label `{unknown[0]}` is not in the schema ({_shortened(labels)})",
        place if parents is None else parents[place].as_py(),
        near(unknown[0], labels),
    )


def _shortened(labels: Sequence[str]) -> str:
    shown = ", ".join(labels[:10])
    return shown if len(labels) <= 10 else f"{shown}, ... {len(labels)} in all"


def _refuse_unequal(tokens: pa.Array, others: pa.Array, given: Given, what: str = "tags") -> None:
    lengths = [pc.list_value_length(each) for each in (tokens, others)]
    unequal = pc.fill_null(pc.not_equal(*lengths), False)
    row = pc.index(unequal, True).as_py()
    if row >= 0:
        raise given.error(f"{lengths[0][row]} tokens but {lengths[1][row]} {what}", row)


def _refuse_holes(lists: pa.Array, given: Given, what: str) -> None:
    hole = pc.index(lists.flatten().is_null(), True).as_py()
    if hole >= 0:
        row = pc.list_parent_indices(lists)[hole].as_py()
        raise given.error(f"a {what} is missing", row)


def _flat(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def _text(given: Given, name: str) -> pa.Array:
    column = _flat(given.table[name])
    return _strings(column, given, name)


def _strings(column: pa.Array, given: Given, name: str) -> pa.Array:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
        raise DataError(f"column `{name}` holds {kind}, not text", where=given.where)
    return column.cast(pa.string())


def _list(given: Given, name: str, values: pa.DataType | None) -> pa.Array:
    """As a plain list array; `values` None keeps the type of what is in the lists."""
    column = _flat(given.table[name])
    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(pa.list_(pa.string()))
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise DataError(f"column `{name}` holds {kind}, not lists", where=given.where)
    if values is not None:
        _strings(column.flatten(), given, name)
    return column.cast(pa.list_(values or kind.value_type))


def _nested(lists: pa.Array, values: pa.Array) -> pa.Array:
    """`values`, cut as `lists` are; a missing list becomes an empty one."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _ids(given: Given) -> pa.Array:
    """The file's own where it has them, else the row's index."""
    own = given.table["id"].to_pylist() if "id" in given.table.column_names else given.numbers
    return pa.array([str(each) for each in own], pa.string())


def _answers(value: Any, given: Given, row: int) -> dict[str, list[Any]]:
    """Both released layouts: a struct of lists, and a list of structs."""
    if isinstance(value, list):
        value = {
            key: [each.get(key) for each in value if isinstance(each, dict)]
            for key in ("text", "answer_start")
        }
    if value is None:
        return {"text": [], "answer_start": []}
    texts, starts = (
        (value.get("text"), value.get("answer_start")) if isinstance(value, dict) else (None, None)
    )
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        raise given.error("answers need lists `text` and `answer_start` of one length", row)
    if not all(isinstance(text, str) for text in texts) or not all(
        isinstance(start, int) for start in starts
    ):
        raise given.error("an answer needs a text and a whole number as answer_start", row)
    # Blank is what some sets write for a question without an answer.
    kept = [pair for pair in zip(texts, starts, strict=True) if pair[0].strip()]
    return {"text": [text for text, _ in kept], "answer_start": [start for _, start in kept]}


def _elsewhere(
    contexts: Sequence[str | None], answers: Sequence[Mapping[str, Any]], reasons: Reasons
) -> list[int]:
    """Rows whose first answer, the one that is trained on, does not stand at its offset."""
    found = []
    for row, (context, answer) in enumerate(zip(contexts, answers, strict=True)):
        if context is None or reasons[row] is not None:
            continue
        text, start = answer["text"][0], answer["answer_start"][0]
        if start < 0 or not context.startswith(text, start):
            found.append(row)
    return found


def _without_text(columns: Mapping[str, pa.Array]) -> Reasons:
    return _first(*(_nulls(column, NO_TEXT) for column in columns.values()))


def _nulls(column: pa.Array, reason: str) -> Reasons:
    return [reason if missing else None for missing in column.is_null().to_pylist()]


def _first(*reasons: Iterable[str | None]) -> Reasons:
    """Each row's first reason."""
    return [next((each for each in of_row if each), None) for of_row in zip(*reasons, strict=True)]

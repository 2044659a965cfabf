"""A data set's row -> its canonical splits, with the test split behind its seal.

`load` reads no row of a test split that stands in a file or hub split of its own. One exception:
where the row declares no labels, their *names* are gathered over all splits, so that no trial
meets an unknown class; how often or where a label occurs is not looked at. A test split that is
cut from other rows is neither returned nor kept. `load_for_audit` is for looks that score nothing.
"""

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tabiflow import hub, origin, rows, splits
from tabiflow.casing import turkish_lower
from tabiflow.errors import DataError, SealError, near
from tabiflow.registry.kinds import KINDS
from tabiflow.rows import Schema
from tabiflow.spec import Dataset
from tabiflow.trial import Opening, canonical

__all__ = [
    "Data",
    "Examined",
    "Schema",
    "TestData",
    "check",
    "load",
    "load_for_audit",
    "load_split",
    "load_test",
    "resolve_commit",
    "turkish_lower",
]

IOB2 = re.compile(r"O|[BI]-.+")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Data:
    """Everything that a sweep's trial may see of a data set."""

    train: pa.Table
    validation: pa.Table
    schema: Schema
    fingerprints: Mapping[str, str]
    """Split -> 16 hex digits over its rows."""
    excluded: Mapping[str, int]
    """Reason -> rows of train and validation left out, before any limit."""
    commit: str
    """The hub commit that the rows come from; empty for local files."""
    split_rule: str


@dataclass(frozen=True)
class TestData:
    """The test split, opened."""

    __test__ = False  # nothing for pytest to collect

    rows: pa.Table
    fingerprint: str
    excluded: Mapping[str, int]


@dataclass(frozen=True)
class Examined:
    """All splits of a data set, test too, as far as they can be read."""

    splits: Mapping[str, rows.Canonical]
    whole: Mapping[str, int]
    """Usable rows of each split before any limit."""
    faults: Mapping[str, DataError]
    """Why each of the other splits cannot be read."""
    schema: Schema
    """The declared labels, then those that rows hold beside them. No range."""
    commit: str
    split_rule: str


def load(dataset: Dataset, limit: Mapping[str, int]) -> Data:
    """Train and validation, read once a process; `limit` keeps so many rows of a split.

    Raises DataError for rows that are not what the data set's row says, EnvironmentFault when the
    hub is out of reach.
    """
    return _load(dataset.model_dump_json(), canonical(dict(limit)))


def load_split(
    dataset: Dataset, split: str, limit: Mapping[str, int], opening: Opening | None = None
) -> pa.Table:
    """Any split by name. Raises SealError for `test` without an opening."""
    if split == "test":
        return load_test(dataset, limit, opening).rows
    if split in splits.NAMES:
        table: pa.Table = getattr(load(dataset, limit), split)
        return table
    raise DataError(f"`{dataset.name}` has no split `{split}`", hint=near(split, splits.NAMES))


def load_test(dataset: Dataset, limit: Mapping[str, int], opening: Opening | None) -> TestData:
    """The test split, for the confirming trial whose opening is recorded. Never cached."""
    if opening is None:
        raise SealError(
            f"the test split is sealed: `{dataset.name}` was asked for it without an opening",
            hint="only a confirming trial has one: `tabiflow confirm`",
        )
    found = _limited(_Reading(dataset).split("test"), limit.get("test"))
    return TestData(found.rows, _fingerprint(found.rows), found.excluded)


def load_for_audit(dataset: Dataset, limit: Mapping[str, int]) -> Examined:
    """Every split, test too, for an audit, which scores nothing. Logged, never cached.

    Foreign labels and scores outside the range are read as they stand; of other faults, the split
    that has them is left out. Does not wait for a hub. Raises DataError when there is no split at
    all, EnvironmentFault when the hub is out of reach.
    """
    log.info("audit reads the test split of %s", dataset.name)
    reading = _Lenient(dataset, pauses=())
    whole: dict[str, rows.Canonical] = {}
    faults: dict[str, DataError] = {}
    for name in splits.NAMES:
        try:
            whole[name] = reading.split(name)
        except DataError as error:
            faults[name] = error
    return Examined(
        splits={name: _limited(each, limit.get(name)) for name, each in whole.items()},
        whole={name: each.rows.num_rows for name, each in whole.items()},
        faults=faults,
        schema=reading.schema,
        commit=reading.origin.commit,
        split_rule=reading.cut.rule if whole else "",
    )


def check(dataset: Dataset, where: str | None = None) -> None:
    """Raises DataError when a local data set is not what its row says; takes hub rows on trust.

    Looks at all splits, test too, for whether they can be used, and keeps nothing of them.
    `where` is the line that names the data set; without it the error stands at the file.
    """
    try:
        if dataset.hub is None:
            reading = _Reading(dataset)
            for split in splits.NAMES:
                reading.split(split)
    except DataError as error:
        if where is None:
            raise
        place = f"{error.where}: " if error.where else ""
        message = f"data set `{dataset.name}`: {place}{error.message}"
        raise DataError(message, where=where, hint=error.hint) from error


def resolve_commit(dataset: Dataset) -> str:
    """The commit behind a hub data set's revision, asked anew; empty for local files."""
    return hub.commit(origin.repository(dataset)) if dataset.hub else ""


@lru_cache(maxsize=4)
def _load(dataset_json: str, limit_json: str) -> Data:
    dataset, limit = Dataset.model_validate_json(dataset_json), json.loads(limit_json)
    reading = _Reading(dataset)
    whole = {name: reading.split(name) for name in ("train", "validation")}
    kept = {name: _limited(each, limit.get(name)).rows for name, each in whole.items()}
    return Data(
        **kept,
        schema=_ranged(reading.schema, dataset, [each.rows for each in whole.values()]),
        fingerprints={name: _fingerprint(table) for name, table in kept.items()},
        excluded=dict(sum((Counter(each.excluded) for each in whole.values()), Counter())),
        commit=reading.origin.commit,
        split_rule=reading.cut.rule,
    )


class _Reading:
    """One pass over a data set: its given splits, how they are cut, what their labels are."""

    def __init__(self, dataset: Dataset, pauses: Sequence[float] = hub.PAUSES) -> None:
        self.dataset = dataset
        self.task = dataset.task
        self.columns = _file_columns(dataset)
        self.origin = origin.opened(dataset, pauses)
        self._read: dict[str, rows.Given] = {}

    def split(self, name: str) -> rows.Canonical:
        part = self.cut.parts[name]
        given = self.given(part.source)
        if part.rows is not None:
            given = given.take(part.rows)
        if not len(given.numbers):
            size = self.given(part.source).table.num_rows
            raise DataError(
                f"{size} rows are too few to be cut: none is left for {name} ({self.cut.rule})",
                where=given.where,
            )
        return rows.canonical(given, self.task, self.schema, training=name == "train")

    @cached_property
    def cut(self) -> splits.Cut:
        given = self.origin.splits
        source = splits.to_cut(frozenset(given))
        strata = None
        if source is not None and self.task in splits.STRATIFIED:
            labels = rows.label_names(
                rows.flat_labels(self.given(source), self.task), self.given(source), self.declared
            )
            strata = pc.fill_null(labels, "").to_pylist()
        return splits.cut(frozenset(given), lambda name: given[name].size(), strata)

    @cached_property
    def declared(self) -> tuple[str, ...]:
        return tuple(str(label) for label in self.dataset.labels)

    @cached_property
    def schema(self) -> Schema:
        if self.task not in rows.LABEL_COLUMN:
            return Schema((), self.dataset.label_range)
        bundles = self.dataset.bundles
        labels = self._bundles() if bundles else self.declared or self._found_labels()
        if len(labels) < 2:
            raise DataError(
                f"`{self.dataset.name}` has only the label{'' if labels else 's'} "
                f"{', '.join(labels) or 'that are missing'}; nothing can be learnt",
                where=next(iter(self.origin.splits.values())).where,
            )
        self._refuse_foreign(labels)
        return Schema(labels, bundles=bundles)

    def _refuse_foreign(self, labels: Sequence[str]) -> None:
        """Entities are read from their tags, so a tag must say where one begins."""
        foreign = [label for label in labels if not IOB2.fullmatch(label)]
        if self.task == "ner" and foreign:
            raise DataError(
                f"`{self.dataset.name}`: tag `{foreign[0]}` is not IOB2 (O, B-<type>, I-<type>)",
                where=next(iter(self.origin.splits.values())).where,
                hint="where the tags are numbers, `labels` names them in order",
            )

    def given(self, source: str) -> rows.Given:
        if source not in self._read:
            required = [self.columns[name] for name in KINDS[self.task].columns]
            others = [self.columns[name] for name in rows.OPTIONAL.get(self.task, ())]
            optional = [column for column in others if column not in required]
            self._read[source] = self._given(source, required, optional)
        return self._read[source]

    def _given(self, source: str, required: list[str], optional: list[str]) -> rows.Given:
        split = self.origin.splits[source]
        table = split.read(required, optional)
        if not table.num_rows:
            raise DataError(f"the {source} split is empty", where=split.where)
        label = self.columns.get(rows.LABEL_COLUMN.get(self.task, ""), "")
        # A column that is required under one name is not read under another one, too.
        names = {file: name for name, file in reversed(self.columns.items())}
        return rows.Given(
            table=table.rename_columns([names[column] for column in table.column_names]),
            numbers=np.arange(table.num_rows),
            where=split.where,
            class_names=_class_names(table.schema.metadata, label),
        )

    def _bundles(self) -> tuple[str, ...]:
        """Those of training alone: most others are rare, and no model could learn them."""
        part = self.cut.parts["train"]
        given = self.given(part.source)
        given = given if part.rows is None else given.take(part.rows)
        names = rows.label_names(rows.flat_labels(given, self.task), given, ())
        # What is no bundle stays: the rows' own check says where it stands.
        return tuple(sorted({rows.bundle(name) or name for name in rows.distinct(names)}))

    def _found_labels(self) -> tuple[str, ...]:
        """The names of all splits; of a test split of its own only the label column is read."""
        found: set[str] = set()
        for source in self.origin.splits:
            if source == "test" and source not in self._read:
                given = self._given(source, [self.columns[rows.LABEL_COLUMN[self.task]]], [])
            else:
                given = self.given(source)
            if given.class_names:
                return given.class_names
            labels = rows.flat_labels(given, self.task)
            if self.task == "classification":
                rows.refuse_ambiguous(labels, given)
            found |= rows.distinct(rows.label_names(labels, given, self.declared))
        return tuple(sorted(found))


class _Lenient(_Reading):
    """For an audit: the schema takes whatever labels there are."""

    @cached_property
    def schema(self) -> Schema:
        if self.dataset.bundles:
            return super().schema
        return Schema(tuple(dict.fromkeys((*self.declared, *sorted(self._held())))))

    def _held(self) -> set[str]:
        held: set[str] = set()
        for source in self.origin.splits if self.task in rows.LABEL_COLUMN else ():
            # Whoever reads the split meets its fault.
            with suppress(DataError):
                given = self.given(source)
                labels = rows.flat_labels(given, self.task)
                by_position = rows.LABEL_COLUMN[self.task] == "tags"
                held |= rows.distinct(
                    rows.label_names(labels, given, self.declared, by_position=by_position)
                )
        return held


def _file_columns(dataset: Dataset) -> dict[str, str]:
    """Canonical name -> the file's name, of every column that the kind of task knows."""
    known = (*KINDS[dataset.task].columns, *rows.OPTIONAL.get(dataset.task, ()))
    for name in dataset.columns:
        if name not in known:
            raise DataError(
                f"`columns` of `{dataset.name}`: a data set for {dataset.task} has no `{name}`",
                hint=near(name, known) or f"it has {', '.join(known)}",
            )
    found = {name: dataset.columns.get(name, name) for name in known}
    _refuse_shared(dataset, {name: found[name] for name in KINDS[dataset.task].columns})
    return found


def _refuse_shared(dataset: Dataset, columns: Mapping[str, str]) -> None:
    """One column of a file cannot be two that the task needs."""
    for file in columns.values():
        names = [name for name, column in columns.items() if column == file]
        if len(names) > 1:
            told = " and ".join(f"`{name}`" for name in names)
            raise DataError(
                f"`columns` of `{dataset.name}`: {told} are all read from `{file}`",
                hint="name a column of the file for each",
            )


def _class_names(metadata: Mapping[bytes, bytes] | None, column: str) -> tuple[str, ...]:
    """What `datasets` wrote down about an integer label column, in a file or on the hub."""
    written = json.loads((metadata or {}).get(b"huggingface", b"{}"))
    feature: Any = written.get("info", {}).get("features", {}).get(column, {})
    while isinstance(feature, dict) and "feature" in feature:
        feature = feature["feature"]
    return tuple(feature.get("names") or ()) if isinstance(feature, dict) else ()


def _limited(found: rows.Canonical, keep: int | None) -> rows.Canonical:
    kept = splits.sample(found.rows.num_rows, keep)
    return replace(found, rows=found.rows.take(kept))


def _ranged(schema: Schema, dataset: Dataset, seen: Sequence[pa.Table]) -> Schema:
    """Where no range is declared, predictions are clipped to the scores that a trial may see."""
    if dataset.task != "sts" or schema.label_range is not None:
        return schema
    bounds = [pc.min_max(table["score"]).as_py() for table in seen]
    low, high = min(each["min"] for each in bounds), max(each["max"] for each in bounds)
    return replace(schema, label_range=(low, high))


def _fingerprint(table: pa.Table) -> str:
    """Over what a model is trained and scored with."""
    whole = hashlib.sha256()
    for name in table.column_names:
        if name in rows.DIAGNOSTIC:
            continue
        content = json.dumps([name, table[name].to_pylist()], ensure_ascii=False)
        whole.update(content.encode())
    return whole.hexdigest()[:16]

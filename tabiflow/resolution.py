"""Which commits the hub rows of a plan stand for, asked once each before the first trial.

A row that cannot be resolved, or that is not what earlier trials saw under the same revision, holds
its cells at once. Local rows have their revision already; nothing is downloaded here.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from tabiflow import hub
from tabiflow.errors import CellError, DataError, EnvironmentFault, ModelError
from tabiflow.runners.failures import kind_of, one_line
from tabiflow.spec import Dataset, Model
from tabiflow.trial import Hold, Outcome
from tabiflow.work import Work

Row = Model | Dataset
AnyRow = TypeVar("AnyRow", Model, Dataset)
Key = tuple[str, str]
"""`model` or `data`, and the row's name."""
Resolve = Callable[[Row], str]
"""The commit behind a hub row's revision. Raises CellError, or EnvironmentFault in the end."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Resolution:
    commits: Mapping[Key, str] = field(default_factory=dict)
    """One without an entry is local, or not known: then the worker asks again."""
    holds: tuple[Hold, ...] = ()

    def pinned(self, row: AnyRow) -> AnyRow:
        """The row at the commit that was seen, so that no trial of this run meets another."""
        commit = self.commits.get(_key(row))
        return row.model_copy(update={"revision": commit}) if commit else row

    def facts(self, work: Work) -> dict[str, str]:
        """Tags of the cell's trials, which the next run compares with."""
        tags: dict[str, str] = {}
        for row in (work.cell.model, work.cell.dataset):
            kind, commit = _kind(row), self.commits.get(_key(row))
            tags |= {f"{kind}_revision": row.revision} if row.revision else {}
            tags |= {f"{kind}_commit": commit} if commit else {}
        return tags


def hub_commit(row: Row) -> str:
    assert row.hub is not None, "only hub rows are asked for"
    kind: Literal["model", "dataset"] = "model" if isinstance(row, Model) else "dataset"
    return hub.commit(hub.Repository(kind, row.hub, row.revision or "main"))


def resolve(
    work: Sequence[Work], outcomes: Iterable[Outcome], ask: Resolve = hub_commit
) -> Resolution:
    """Asks for each hub row of the work once and compares with what the ledger saw."""
    seen = _seen(outcomes)
    commits: dict[Key, str] = {}
    broken: dict[Key, CellError] = {}
    for row in _hub_rows(work):
        try:
            commit = ask(row)
            _compare(row, commit, seen.get((*_key(row), row.revision or ""), commit))
            commits[_key(row)] = commit
        except CellError as error:
            broken[_key(row)] = error
        except EnvironmentFault as error:
            log.warning("%s; its trials will try again", error)
    return Resolution(commits, tuple(_holds(work, broken)))


def _compare(row: Row, commit: str, earlier: str) -> None:
    if commit == earlier:
        return
    error = ModelError if isinstance(row, Model) else DataError
    raise error(
        f"{_kind(row)} `{row.name}`: revision `{row.revision}` was commit {earlier} "
        f"and is now {commit}",
        hint=f"pin `revision: {earlier}` in its row, or `revision: {commit}` to start anew",
    )


def _holds(work: Iterable[Work], broken: Mapping[Key, CellError]) -> Iterator[Hold]:
    for each in work:
        rows = (each.cell.model, each.cell.dataset)
        error = next((broken[_key(row)] for row in rows if _key(row) in broken), None)
        if error is not None:
            yield Hold.of(each.example, kind_of(error), one_line(error))


def _hub_rows(work: Iterable[Work]) -> Iterable[Row]:
    rows = [row for each in work for row in (each.cell.model, each.cell.dataset)]
    return {_key(row): row for row in rows if row.hub is not None}.values()


def _seen(outcomes: Iterable[Outcome]) -> dict[tuple[str, str, str], str]:
    """(kind, name, revision) -> the commit that the latest trial saw."""
    seen = {}
    for outcome in sorted(outcomes, key=lambda each: each.started):
        trial = outcome.trial
        rows = {
            "model": (trial.model, trial.model_identity),
            "data": (trial.dataset, trial.dataset_identity),
        }
        for kind, (name, identity) in rows.items():
            commit = outcome.tags.get(f"{kind}_commit")
            if commit:
                seen[kind, name, str(identity.get("revision", ""))] = commit
    return seen


def _kind(row: Row) -> str:
    return "model" if isinstance(row, Model) else "data"


def _key(row: Row) -> Key:
    return _kind(row), row.name

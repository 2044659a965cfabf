"""Writes into a SQL database in bulk: a batch of trials is one transaction.

MLflow's client opens five transactions a trial and reads back what it has just written. Here the
rows go into the same tables, by MLflow's own definitions, checks and engine; a test holds what its
client then reads against what it writes itself.
"""

import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.dbmodels.models import (
    SqlLatestMetric,
    SqlMetric,
    SqlParam,
    SqlRun,
    SqlTag,
)
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.utils.uri import append_to_uri_path
from mlflow.utils.validation import _validate_batch_log_data
from sqlalchemy import Connection, bindparam, insert, select, text, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, IntegrityError

from tabiflow.ledger.records import RUN_STATUS
from tabiflow.ledger.tracking import Tracking
from tabiflow.ledger.writes import NewRun, Writes, left_alone, log

INSERTS = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
"""By dialect: an INSERT that may meet a row that is there already."""
BUSY_MILLISECONDS = 20_000
"""How long SQLite waits for another writer's transaction; MLflow's own waits as long."""
FLOAT_MAX = 1.7976931348623157e308
"""What MLflow keeps for infinity."""
Row = dict[str, Any]


@dataclass
class _Rows:
    """Of many runs, by table."""

    points: list[Row] = field(default_factory=list)
    params: list[Row] = field(default_factory=list)
    tags: list[Row] = field(default_factory=list)
    ends: list[Row] = field(default_factory=list)

    def add(self, run: str, writes: Writes) -> None:
        """Raises MlflowException where MLflow would."""
        metrics = [Metric(each.name, each.value, each.at, each.step) for each in writes.points]
        params = [Param(name, value) for name, value in writes.params.items()]
        tags = [RunTag(name, value) for name, value in writes.tags.items()]
        metrics, params, tags = _validate_batch_log_data(metrics, params, tags)
        self.points += [_point(run, metric) for metric in metrics]
        self.params += [_pair(run, param) for param in params]
        self.tags += [_pair(run, tag) for tag in tags]
        if writes.end is not None:
            status = RUN_STATUS[writes.end.status]
            self.ends.append({"run": run, "status": status, "end_time": writes.end.at})


class Bulk:
    """`Sink` of a SQLite file, or of a PostgreSQL database without a server of MLflow's."""

    def __init__(self, tracking: Tracking, store: SqlAlchemyStore) -> None:
        self._tracking, self._store = tracking, store
        self._insert: Any = INSERTS[store.engine.dialect.name]

    def create(self, experiment: str, new: Sequence[NewRun]) -> list[str]:
        folder = self._store.get_experiment(experiment).artifact_location
        made = {uuid.uuid4().hex: each for each in new}
        rows = _Rows()
        for run, each in made.items():
            rows.add(run, Writes(tags={**each.tags, "mlflow.runName": each.name}))
        with self._transaction() as database:
            runs = [_run(run, experiment, each, folder) for run, each in made.items()]
            _execute(database, insert(SqlRun), runs)
            _execute(database, insert(SqlTag), rows.tags)
        return list(made)

    def write(self, writes: Mapping[str, Writes]) -> None:
        for run, each in writes.items():
            if each.end is not None:
                with left_alone(run):
                    self._tracking.attach(run, each.end)
        rows, odd = _Rows(), {}
        try:
            with self._transaction() as database:
                for run in _active(database, writes):
                    try:
                        rows.add(run, writes[run])
                    except MlflowException:
                        odd[run] = writes[run]
                self._fill(database, rows)
        except (IntegrityError, DataError):
            odd = dict(writes)
        # Which of it is at fault and why, MLflow's client says.
        self._tracking.write(odd)

    def _fill(self, database: Connection, rows: _Rows) -> None:
        added = self._insert(SqlMetric).on_conflict_do_nothing()
        _execute(database, added, rows.points)
        self._replace(database, SqlLatestMetric, _latest(rows.points), _is_later)
        _execute(database, self._insert(SqlParam).on_conflict_do_nothing(), rows.params)
        self._replace(database, SqlTag, rows.tags)
        ended = update(SqlRun).where(SqlRun.run_uuid == bindparam("run"))
        _execute(database, ended, rows.ends)

    def _replace(
        self,
        database: Connection,
        table: Any,
        rows: Sequence[Row],
        when: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        if not rows:
            return
        added = self._insert(table)
        keys = ("run_uuid", "key")
        changes = {name: added.excluded[name] for name in rows[0] if name not in keys}
        where = when(added.excluded, table) if when else None
        merged = added.on_conflict_do_update(index_elements=keys, set_=changes, where=where)
        _execute(database, merged, rows)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._store.engine.begin() as database:
            if database.dialect.name == "sqlite":
                database.execute(text("PRAGMA foreign_keys = ON"))
                database.execute(text(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}"))
            yield database


def _execute(database: Connection, statement: Any, rows: Sequence[Row]) -> None:
    if rows:
        database.execute(statement, rows)


def _active(database: Connection, runs: Iterable[str]) -> list[str]:
    """Without those that were deleted in MLflow's pages."""
    asked = list(runs)
    query = select(SqlRun.run_uuid).where(
        SqlRun.run_uuid.in_(asked), SqlRun.lifecycle_stage == "active"
    )
    found = set(database.scalars(query))
    for run in asked:
        if run not in found:
            log.warning("run %s is left as it is: it was deleted", run)
    return [run for run in asked if run in found]


def _run(run: str, experiment: str, new: NewRun, folder: str) -> Row:
    """As MLflow's own `create_run` fills it."""
    return {
        "run_uuid": run,
        "name": new.name,
        "experiment_id": int(experiment),
        "artifact_uri": append_to_uri_path(folder, run, "artifacts"),
        "source_type": "UNKNOWN",
        "source_name": "",
        "source_version": "",
        "entry_point_name": "",
        "user_id": "unknown",
        "status": "RUNNING",
        "start_time": new.at,
        "lifecycle_stage": "active",
    }


def _point(run: str, metric: Metric) -> Row:
    unknown = math.isnan(metric.value)
    return {
        "run_uuid": run,
        "key": metric.key,
        "value": 0.0 if unknown else min(FLOAT_MAX, max(-FLOAT_MAX, metric.value)),
        "timestamp": metric.timestamp,
        "step": metric.step,
        "is_nan": unknown,
    }


def _pair(run: str, each: Param | RunTag) -> Row:
    return {"run_uuid": run, "key": each.key, "value": each.value}


def _latest(points: Iterable[Row]) -> list[Row]:
    """One of each run and name."""
    latest: dict[tuple[str, str], Row] = {}
    for point in points:
        key = point["run_uuid"], point["key"]
        if key not in latest or _order(point) > _order(latest[key]):
            latest[key] = point
    return list(latest.values())


def _order(point: Row) -> tuple[int, int, float]:
    return point["step"], point["timestamp"], point["value"]


def _is_later(added: Any, table: Any) -> Any:
    """`_order`, in SQL."""
    return tuple_(added.step, added.timestamp, added.value) > tuple_(
        table.step, table.timestamp, table.value
    )

"""Quick reads of an MLflow SQLite file, without MLflow.

MLflow's client takes 3 seconds to import and 5 more for 2,160 runs, which no `tabiflow plan` should
wait for. The tables read here have kept their shape since MLflow 1.0; a test holds these reads
against MLflow's own. Writing is MLflow's alone.
"""

import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from tabiflow.errors import LedgerError
from tabiflow.ledger.records import Run

BUSY_SECONDS = 20.0
"""How long to wait for a writer's transaction; MLflow's own waits as long."""
OURS = """
    SELECT r.run_uuid, e.name, r.start_time, r.end_time
    FROM runs r JOIN experiments e USING (experiment_id) JOIN tags k ON k.run_uuid = r.run_uuid
    WHERE k.key = 'kind' AND k.value = ?
      AND r.lifecycle_stage = 'active' AND e.lifecycle_stage = 'active'
"""
TAGS = """
    SELECT t.run_uuid, t.key, t.value FROM tags t JOIN tags k USING (run_uuid)
    WHERE k.key = 'kind' AND k.value = ?
"""
METRICS = """
    SELECT m.run_uuid, m.key, CASE WHEN m.is_nan THEN NULL ELSE m.value END
    FROM latest_metrics m JOIN tags k USING (run_uuid) WHERE k.key = 'kind' AND k.value = ?
"""
CURVE = """
    SELECT step, CASE WHEN is_nan THEN NULL ELSE value END
    FROM metrics WHERE run_uuid = ? AND key = ? ORDER BY step, timestamp
"""
ARTIFACTS = "SELECT run_uuid, artifact_uri FROM runs WHERE run_uuid = ?"


def check(file: Path) -> None:
    """Raises LedgerError when there is something that is no MLflow database. None yet is fine."""
    if not file.exists():
        return
    if not file.is_file():
        raise LedgerError(
            "is not a file, so it cannot hold the ledger",
            where=str(file),
            hint="move it away, or name another place in MLFLOW_TRACKING_URI",
        )
    if file.stat().st_size:
        with connection(file) as database:
            database.execute("SELECT version_num FROM alembic_version").fetchone()


def runs(file: Path, kind: str) -> list[Run]:
    """Every run of ours of a kind, `trial` or `cell`, over all experiments."""
    if not (file.is_file() and file.stat().st_size):
        return []
    with connection(file) as database:
        rows = database.execute(OURS, (kind,)).fetchall()
        tags = _by_run(database.execute(TAGS, (kind,)))
        metrics = _by_run(database.execute(METRICS, (kind,)))
    return [
        Run(
            run_id=run_id,
            sweep=sweep,
            started=_seconds(started),
            ended=_seconds(ended),
            tags=tags.get(run_id, {}),
            metrics={key: _number(value) for key, value in metrics.get(run_id, {}).items()},
        )
        for run_id, sweep, started, ended in rows
    ]


def curves(file: Path, run_ids: Iterable[str], metric: str) -> dict[str, list[tuple[int, float]]]:
    with connection(file) as database:
        return {
            run_id: [
                (step, _number(value)) for step, value in database.execute(CURVE, (run_id, metric))
            ]
            for run_id in run_ids
        }


def artifacts(file: Path, run_ids: Iterable[str]) -> dict[str, Path]:
    """The folder of each run's artifacts; of a run that keeps them elsewhere, none."""
    with connection(file) as database:
        rows = [database.execute(ARTIFACTS, (run_id,)).fetchone() for run_id in run_ids]
    found = {run_id: urlsplit(address) for run_id, address in filter(None, rows)}
    return {
        run_id: Path(unquote(parts.path))
        for run_id, parts in found.items()
        if parts.scheme in ("", "file") and parts.path.startswith("/")
    }


@contextmanager
def connection(file: Path) -> Iterator[sqlite3.Connection]:
    """Read-only. SQLite's own complaints become LedgerErrors."""
    try:
        address = f"file:{quote(str(file))}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as database:
            yield database
    except sqlite3.Error as error:
        raise LedgerError(
            f"cannot be read as an MLflow database: {error}",
            where=str(file),
            hint="move it away, or name another ledger in MLFLOW_TRACKING_URI",
        ) from error


def _by_run(rows: Iterable[tuple[str, str, Any]]) -> Mapping[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for run_id, key, value in rows:
        found.setdefault(run_id, {})[key] = value
    return found


def _seconds(milliseconds: int | None) -> float:
    return math.nan if milliseconds is None else milliseconds / 1000


def _number(value: float | None) -> float:
    return math.nan if value is None else value

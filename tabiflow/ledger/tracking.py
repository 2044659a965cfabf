"""What tabiflow asks of MLflow's client, in the ledger's words. The only module that imports it.

Every write but `create` may be done twice with the same effect: after an outage it is done again.
"""

import json
import logging
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from mlflow.entities import Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from tabiflow.errors import LedgerError, TabiflowError
from tabiflow.ledger import redacted, sqlite_file
from tabiflow.ledger.records import RUN_STATUS, Run
from tabiflow.trial import Status

log = logging.getLogger(__name__)

PAGE = 1000
REACH_SECONDS = 5.0
PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}
HOPELESS = frozenset(
    {"INVALID_PARAMETER_VALUE", "INVALID_STATE", "RESOURCE_DOES_NOT_EXIST", "PERMISSION_DENIED"}
)
"""MLflow's codes for what will not be better the next time: a run deleted in its pages, say."""


@dataclass(frozen=True)
class Point:
    """A metric's value as MLflow keeps it: the same point logged again changes nothing."""

    name: str
    value: float
    at: int
    step: int


@dataclass
class Writes:
    """What one run gets in one call."""

    points: list[Point] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)


def away(uri: str) -> str | None:
    """Why the server behind an address cannot be reached; None when it can, or there is none.

    In seconds, whatever MLflow's own retries and time-outs are set to.
    """
    parts = urlsplit(uri)
    if parts.hostname is None or sqlite_file(uri) is not None:
        return None
    scheme = parts.scheme.partition("+")[0]
    port = parts.port or PORTS.get(scheme)
    if port is None:
        return None
    try:
        if scheme not in ("http", "https"):
            socket.create_connection((parts.hostname, port), REACH_SECONDS).close()
            return None
        place = f"{scheme}://{parts.hostname}:{port}{parts.path.rstrip('/')}/health"
        urlopen(Request(place), timeout=REACH_SECONDS).close()
    except HTTPError as error:
        return f"it answers {error.code}" if error.code >= 500 else None
    except URLError as error:
        # Whether a certificate is trusted, MLflow is told by settings of its own.
        return None if isinstance(error.reason, ssl.SSLError) else str(error.reason)
    except (OSError, HTTPException) as error:
        return str(error) or type(error).__name__
    return None


def reach(uri: str) -> None:
    """Raises ConnectionError at once, where MLflow would try for a while."""
    reason = away(uri)
    if reason is not None:
        raise ConnectionError(reason)


@contextmanager
def explained(uri: str) -> Iterator[None]:
    """What MLflow says against a ledger becomes one line about it."""
    try:
        yield
    except TabiflowError:
        raise
    except Exception as error:
        raise LedgerError(
            f"MLflow cannot use this ledger: {_first_line(error)}",
            where=redacted(uri),
            hint=_way_out(uri, error),
        ) from error


def _way_out(uri: str, error: Exception) -> str:
    scheme = urlsplit(uri).scheme.partition("+")[0]
    if isinstance(error, OSError) or scheme not in (*PORTS, "sqlite"):
        return "name another place in MLFLOW_TRACKING_URI: sqlite:///<file>, or a server's address"
    if scheme.startswith("http"):
        return "look at the server's log"
    return f"if another version of MLflow made it, `mlflow db upgrade {redacted(uri)}` helps"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return redacted(lines[0]) if lines else type(error).__name__


def hopeless(error: Exception) -> bool:
    """Whether a write would fail the next time, too."""
    if isinstance(error, MlflowException):
        return error.error_code in HOPELESS
    return isinstance(error, PermissionError)  # artifacts of a server that does not proxy them


class Tracking:
    """One sweep's experiment, or the whole store for reading."""

    def __init__(self, uri: str) -> None:
        """Raises LedgerError in seconds when the ledger cannot be used."""
        # It logs what it also raises, traceback and all, and its schema's migrations.
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        reason = away(uri)
        if reason is not None:
            raise LedgerError(
                f"the MLflow server cannot be reached: {redacted(reason)}",
                where=redacted(uri),
                hint="start it, or correct MLFLOW_TRACKING_URI",
            )
        self.uri = uri
        with explained(uri):
            self._client = MlflowClient(uri)
            self._client.search_experiments(max_results=1)

    def runs(self, kind: str, sweep: str | None = None) -> list[Run]:
        """Every run of ours of a kind, `trial` or `cell`."""
        names = self._experiments(sweep)
        return list(self._search(names, f"tags.kind = '{kind}'")) if names else []

    def curve(self, run_id: str, metric: str) -> list[tuple[int, float]]:
        history = self._client.get_metric_history(run_id, metric)
        return sorted((point.step, point.value) for point in history)

    def open_experiment(self, sweep: str, artifacts: str | None) -> str:
        """The sweep's experiment, made when there is none."""
        found = self._client.get_experiment_by_name(sweep)
        if found is None:
            self._create_experiment(sweep, artifacts)
            found = self._client.get_experiment_by_name(sweep)
        if found.lifecycle_stage != "active":
            raise LedgerError(
                f"the experiment `{sweep}` was deleted in MLflow",
                where=redacted(self.uri),
                hint=f"`mlflow experiments restore -x {found.experiment_id}` brings it back, "
                "`mlflow gc` frees the name, or rename the sweep",
            )
        return str(found.experiment_id)

    def _create_experiment(self, sweep: str, artifacts: str | None) -> None:
        try:
            self._client.create_experiment(sweep, artifact_location=artifacts)
        except MlflowException as error:
            # Another driver started at the same time; who goes on, the lease decides.
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def created(self, experiment: str) -> int:
        """Tells apart what came and went under one name and id. Milliseconds since 1970."""
        return int(self._client.get_experiment(experiment).creation_time or 0)

    def read_experiment_tag(self, experiment: str, name: str) -> str:
        return str(self._client.get_experiment(experiment).tags.get(name, ""))

    def write_experiment_tag(self, experiment: str, name: str, value: str) -> None:
        self._client.set_experiment_tag(experiment, name, value)

    def having(self, experiment: str, *statuses: Status) -> list[Run]:
        """The experiment's attempts whose tag says so."""
        queries = [f"tags.kind = 'trial' AND tags.status = '{status}'" for status in statuses]
        return [run for query in queries for run in self._search({experiment: ""}, query)]

    def attempts(self, trial: str) -> list[Run]:
        """Over all experiments."""
        return list(self._search(self._experiments(), f"tags.trial = '{trial}'"))

    def find_attempt(self, experiment: str, trial: str, attempt: int) -> str | None:
        """The attempt's run; copies that a torn answer of the server has left are deleted."""
        query = f"tags.trial = '{trial}' AND tags.attempt = '{attempt}'"
        found = [run.run_id for run in self._search({experiment: ""}, query)]
        for copy in found[1:]:
            self._client.delete_run(copy)
        return found[0] if found else None

    def cells(self, experiment: str) -> dict[str, str]:
        """Parent runs by the cell's name."""
        found = self._search({experiment: ""}, "tags.kind = 'cell'")
        return {run.tags["cell"]: run.run_id for run in found}

    def create(self, experiment: str, name: str, at: int, tags: Mapping[str, str]) -> str:
        run = self._client.create_run(experiment, start_time=at, tags=dict(tags), run_name=name)
        return str(run.info.run_id)

    def write(self, run_id: str, writes: Writes) -> None:
        points = [Metric(each.name, each.value, each.at, each.step) for each in writes.points]
        params = [Param(name, value) for name, value in writes.params.items()]
        tags = [RunTag(name, value) for name, value in writes.tags.items()]
        self._client.log_batch(run_id, metrics=points, params=params, tags=tags)

    def end(self, run_id: str, status: Status, at: int) -> None:
        self._client.set_terminated(run_id, RUN_STATUS[status], at)

    def attach(self, run_id: str, name: str, content: Sequence[Mapping[str, Any]]) -> None:
        self._client.log_text(run_id, json.dumps(content, ensure_ascii=False), name)

    def artifact(self, run_id: str, name: str) -> str | None:
        """Its text; None when the run has none of this name."""
        if name not in {each.path for each in self._client.list_artifacts(run_id)}:
            return None
        with TemporaryDirectory() as folder:
            place = self._client.download_artifacts(run_id, name, folder)
            return Path(place).read_text(encoding="utf-8")

    def _experiments(self, sweep: str | None = None) -> dict[str, str]:
        """Ids and names; one sweep's, or all."""
        found: dict[str, str] = {}
        token = None
        while True:
            page = self._client.search_experiments(max_results=PAGE, page_token=token)
            found |= {str(each.experiment_id): str(each.name) for each in page}
            token = page.token
            if not token:
                break
        return {key: name for key, name in found.items() if sweep in (None, name)}

    def _search(self, experiments: Mapping[str, str], query: str) -> Iterator[Run]:
        """Oldest first, with the experiments' names where they were given."""
        token = None
        while True:
            page = self._client.search_runs(
                list(experiments),
                query,
                run_view_type=ViewType.ACTIVE_ONLY,
                max_results=PAGE,
                order_by=["attributes.start_time ASC"],
                page_token=token,
            )
            for run in page:
                yield _run(run, experiments[str(run.info.experiment_id)])
            token = page.token
            if not token:
                return


def _run(run: Any, sweep: str) -> Run:
    started, ended = run.info.start_time, run.info.end_time
    return Run(
        run_id=str(run.info.run_id),
        sweep=sweep,
        started=started / 1000 if started is not None else float("nan"),
        ended=ended / 1000 if ended is not None else float("nan"),
        tags=dict(run.data.tags),
        metrics=dict(run.data.metrics),
    )

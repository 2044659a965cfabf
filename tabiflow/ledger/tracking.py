"""What tabiflow asks of MLflow's client, in the ledger's words.

Every write but `create` may be done twice with the same effect: after an outage it is done again.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlflow.entities import Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.tracking import MlflowClient

from tabiflow.errors import LedgerError
from tabiflow.ledger import newfile, redacted, sqlite_file
from tabiflow.ledger.reach import explained, must_answer
from tabiflow.ledger.records import PREDICTIONS, RUN_STATUS, Run
from tabiflow.ledger.writes import End, NewRun, Writes, left_alone
from tabiflow.trial import Status

PAGE = 1000
SLOW_SECONDS = 2.0
"""A creation that takes longer was retried inside MLflow and may have left a copy."""
Attempt = tuple[str, int]
"""A trial's id and the attempt's number."""


class Tracking:
    """One sweep's experiment, or the whole store for reading."""

    def __init__(self, uri: str) -> None:
        """Raises LedgerError in seconds when the ledger cannot be used."""
        must_answer(uri)
        self.uri = uri
        file = sqlite_file(uri)
        if file is not None and not file.exists():
            newfile.create(file)
        with explained(uri):
            self._client = MlflowClient(uri)
            self._client.search_experiments(max_results=1)

    @property
    def sql(self) -> SqlAlchemyStore | None:
        """The database, where MLflow itself speaks to one."""
        store = self._client._tracking_client.store
        return store if isinstance(store, SqlAlchemyStore) else None

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
        query = f"tags.trial = '{trial}' AND tags.attempt = '{attempt}'"
        found = [run.run_id for run in self._search({experiment: ""}, query)]
        return found[0] if found else None

    def attempts_between(self, experiment: str, first: int, last: int) -> dict[Attempt, str]:
        """Runs by trial and attempt, of those that started so (milliseconds since 1970).

        Copies that a torn answer of the server has left are deleted.
        """
        span = f"attributes.start_time >= {first} AND attributes.start_time <= {last}"
        found: dict[Attempt, str] = {}
        for run in self._search({experiment: ""}, f"tags.kind = 'trial' AND {span}"):
            key = run.tags.get("trial", ""), int(run.tags.get("attempt", 0))
            if found.setdefault(key, run.run_id) != run.run_id:
                self._client.delete_run(run.run_id)
        return found

    def cells(self, experiment: str) -> dict[str, str]:
        """Parent runs by the cell's name."""
        found = self._search({experiment: ""}, "tags.kind = 'cell'")
        return {run.tags["cell"]: run.run_id for run in found}

    def create(self, experiment: str, new: Sequence[NewRun]) -> list[str]:
        """See `Sink`. The last resort: one run after the other."""
        return [self._create(experiment, each) for each in new]

    def _create(self, experiment: str, new: NewRun) -> str:
        began = time.monotonic()
        run = self._client.create_run(experiment, new.at, dict(new.tags), new.name)
        made = str(run.info.run_id)
        if time.monotonic() - began < SLOW_SECONDS or "trial" not in new.tags:
            return made
        key = new.tags["trial"], int(new.tags["attempt"])
        return self.attempts_between(experiment, new.at, new.at).get(key, made)

    def write(self, writes: Mapping[str, Writes]) -> None:
        """See `Sink`."""
        for run_id, each in writes.items():
            with left_alone(run_id):
                self._write(run_id, each)

    def _write(self, run_id: str, writes: Writes) -> None:
        if writes.end is not None:
            self.attach(run_id, writes.end)
            self._client.set_terminated(run_id, RUN_STATUS[writes.end.status], writes.end.at)
        points = [Metric(each.name, each.value, each.at, each.step) for each in writes.points]
        params = [Param(name, value) for name, value in writes.params.items()]
        tags = [RunTag(name, value) for name, value in writes.tags.items()]
        self._client.log_batch(run_id, metrics=points, params=params, tags=tags)

    def attach(self, run_id: str, end: End) -> None:
        if end.predictions:
            text = json.dumps(end.predictions, ensure_ascii=False)
            self._client.log_text(run_id, text, PREDICTIONS)

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

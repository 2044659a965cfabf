"""The ways into MLflow and out of it say the same as MLflow's own client."""

import json
import math
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from ledgers import SWEEP, copied, history, record, runs, trial
from mlflow.server import app, handlers
from mlflow.tracking import MlflowClient
from werkzeug.serving import make_server

from tabiflow.errors import LedgerError
from tabiflow.ledger import Failure
from tabiflow.ledger.bulk import Bulk
from tabiflow.ledger.posting import Posting
from tabiflow.ledger.rest import Refused, Rest, plain
from tabiflow.ledger.store import Store
from tabiflow.ledger.tracking import Tracking
from tabiflow.ledger.writer import sink
from tabiflow.ledger.writes import End, NewRun, Point, Sink, Writes
from tabiflow.trial import Result, Status


@pytest.fixture
def store(ledger_template: Path, tmp_path: Path) -> Store:
    return copied(ledger_template, tmp_path / "ledger")


@pytest.fixture
def served(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """The same file behind a server of MLflow's, as `mlflow server` sets it up."""
    monkeypatch.setenv("_MLFLOW_SERVER_FILE_STORE", store.uri)
    monkeypatch.setenv("_MLFLOW_SERVER_ARTIFACT_ROOT", str(tmp_path / "artifacts"))
    monkeypatch.setattr(handlers, "_tracking_store", None)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Store.open(f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    thread.join()
    server.server_close()


def _client(store: Store, served: Store) -> Sink:
    return store.tracking


def _bulk(store: Store, served: Store) -> Sink:
    return sink(store.tracking)


def _posting(store: Store, served: Store) -> Sink:
    return sink(served.tracking)


WAYS = [_client, _bulk, _posting]
POINTS = [
    Point("loss", 2.0, 100, 1),
    Point("loss", 1.0, 200, 2),
    Point("loss", 1.5, 150, 2),
    Point("unknown", math.nan, 100, 1),
    Point("endless", math.inf, 100, 1),
    Point("endless", -math.inf, 100, 2),
]


def _written(way: Sink, store: Store) -> str:
    experiment = store.tracking.open_experiment(SWEEP, None)
    new = NewRun("a name", 12345, {"kind": "trial", "trial": "x", "attempt": "1"})
    [run] = way.create(experiment, [new])
    way.write({run: Writes(POINTS[:2], {"status": "running", "long": "ş" * 9000}, {"rate": "1"})})
    last = Writes(POINTS, {"status": "done"}, {"rate": "1"}, End(Status.DONE, 23456))
    way.write({run: last})
    way.write({run: last})
    return run


def _seen(run: str, store: Store) -> str:
    """All that MLflow's client shows of a run, but for what names it."""
    found = MlflowClient(store.uri).get_run(run)
    info = dict(found.info)
    assert info.pop("run_id") == run
    assert info.pop("artifact_uri").endswith(f"/{run}/artifacts")
    curves = {name: history(store, run, name) for name in ("loss", "unknown", "endless")}
    return repr((info, found.data.to_dictionary(), curves))


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_leaves_what_mlflows_client_leaves(
    way: Callable[[Store, Store], Sink], store: Store, served: Store
) -> None:
    wanted = _seen(_written(store.tracking, store), store)
    seen = _seen(_written(way(store, served), store), store)
    assert seen == wanted
    assert "23456" in seen and "FINISHED" in seen and "nan" in seen


def test_a_file_is_written_in_bulk_and_a_server_over_its_api(store: Store, served: Store) -> None:
    assert isinstance(sink(store.tracking), Bulk)
    assert isinstance(sink(served.tracking), Posting)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_was_deleted_stops_no_other(
    way: Callable[[Store, Store], Sink], store: Store, served: Store
) -> None:
    experiment = store.tracking.open_experiment(SWEEP, None)
    into = way(store, served)
    gone, kept = into.create(experiment, [NewRun(name, 1, {}) for name in ("gone", "kept")])
    MlflowClient(store.uri).delete_run(gone)
    into.write({run: Writes(tags={"told": "yes"}) for run in (gone, kept)})
    tags = {run: MlflowClient(store.uri).get_run(run).data.tags for run in (gone, kept)}
    assert "told" not in tags[gone] and tags[kept]["told"] == "yes"


@pytest.mark.parametrize("way", WAYS)
def test_a_value_that_mlflow_refuses_stops_no_other(
    way: Callable[[Store, Store], Sink], store: Store, served: Store
) -> None:
    experiment = store.tracking.open_experiment(SWEEP, None)
    into = way(store, served)
    odd, even = into.create(experiment, [NewRun(name, 1, {}) for name in ("odd", "even")])
    into.write({odd: Writes([Point("no #sign", 1.0, 1, 1)]), even: Writes(params={"a": "b"})})
    assert MlflowClient(store.uri).get_run(even).data.params == {"a": "b"}
    assert MlflowClient(store.uri).get_run(odd).data.metrics == {}


def test_a_server_is_read_as_mlflows_client_reads_it(store: Store, served: Store) -> None:
    with store.recorder(SWEEP) as recorder:
        record(recorder, trial())
        record(recorder, trial(rate=2e-5), ending=Failure("bug", "KeyError: 'x'"))
        record(recorder, trial(rate=3e-5), ending=Result(1, math.nan))
    rest, tracking = Rest(served.uri), Tracking(served.uri)
    for kind in ("trial", "cell"):
        quick = sorted(rest.runs(kind), key=lambda run: run.run_id)
        assert repr(quick) == repr(sorted(tracking.runs(kind), key=lambda run: run.run_id))
    first, *others = (run.run_id for run in tracking.runs("trial"))
    curves = rest.curves([first, *others], "validation_score")
    assert curves[first] == tracking.curve(first, "validation_score") != []


def test_a_sweep_over_a_server_reads_as_one_in_its_file(store: Store, served: Store) -> None:
    with served.recorder(SWEEP) as recorder:
        record(recorder, trial())
        record(recorder, trial(rate=2e-5), ending=Result(1, 50.0, predictions=({"row": 1},)))
    assert repr(served.outcomes()) == repr(store.outcomes())
    assert {run.info.status for run in runs(store)} == {"FINISHED"}
    [run] = [outcome.run_id for outcome in store.outcomes().values() if outcome.score == 50.0]
    assert served.predictions([run]) == {run: [{"row": 1}]}


def test_what_the_server_refuses_is_said_in_its_words(served: Store) -> None:
    with pytest.raises(Refused, match="not found") as caught:
        Rest(served.uri).ask("GET", "runs/get", {"run_id": "0" * 32})
    assert caught.value.error_code == "RESOURCE_DOES_NOT_EXIST"


class Locked(BaseHTTPRequestHandler):
    """A proxy before a server: it wants a password and answers in plain text."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        let_in = self.headers.get("Authorization") in ("Basic YXnFn2U6c8SxcnI=", "Bearer s3cret")
        self.send_response(200 if let_in else 401)
        self.end_headers()
        self.wfile.write(json.dumps({}).encode() if let_in else b"go away")

    def log_message(self, *told: object) -> None: ...


@pytest.fixture
def locked() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Locked) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("before", "settings"),
    [
        ("ay%C5%9Fe:s%C4%B1rr@", {}),
        ("", {"MLFLOW_TRACKING_USERNAME": "ayşe", "MLFLOW_TRACKING_PASSWORD": "sırr"}),
        ("", {"MLFLOW_TRACKING_TOKEN": "s3cret"}),
    ],
)
def test_a_server_is_given_the_credentials_that_mlflow_would_give_it(
    before: str, settings: dict[str, str], locked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert Store.open(f"http://{before}{locked}").outcomes() == {}


def test_a_server_that_does_not_let_us_in_is_said_without_the_password(locked: str) -> None:
    with pytest.raises(LedgerError, match="401") as caught:
        Store.open(f"http://me:s3cr3t@{locked}").outcomes()
    assert "s3cr3t" not in str(caught.value)


class Breaking(Locked):
    """A server whose worker dies over the first request."""

    answers = 0

    def do_POST(self) -> None:
        Breaking.answers += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        if Breaking.answers > 1:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")


def test_a_read_that_is_cut_off_is_tried_again() -> None:
    with HTTPServer(("127.0.0.1", 0), Breaking) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        assert Store.open(f"http://127.0.0.1:{server.server_port}").outcomes() == {}
        server.shutdown()
        thread.join()
    assert Breaking.answers == 2


@pytest.mark.parametrize("setting", ["MLFLOW_TRACKING_AWS_SIGV4", "MLFLOW_TRACKING_AUTH"])
def test_what_only_mlflows_client_can_do_is_left_to_it(
    setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert plain("https://somewhere") and not plain("databricks")
    monkeypatch.setenv(setting, "true")
    assert not plain("https://somewhere")

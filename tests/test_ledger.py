import math
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ledgers import SWEEP, begin, copied, epoch, history, record, runs, trial, trials_of
from mlflow.tracking import MlflowClient

from tabiflow import ledger
from tabiflow.errors import LeaseHeld, LedgerError
from tabiflow.ledger import Failure, Killed, Pruned, records, sqlite
from tabiflow.ledger.store import Store
from tabiflow.ledger.tracking import Tracking
from tabiflow.trial import Cell, Hold, Opening, Result, Status

HOLD = Hold.of(trial(), "model", "weights are truncated")


def opening(at: str = "2026-01-01T00:00:00Z", reason: str = "") -> Opening:
    return Opening(trial(split="test").id, "ayşe", at, "abc123", reason)


@pytest.fixture
def store(ledger_template: Path, tmp_path: Path) -> Store:
    return copied(ledger_template, tmp_path / "ledger")


def test_the_ledger_is_a_file_below_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    assert ledger.address() == f"sqlite:///{tmp_path}/.tabiflow/mlflow.db"


def test_the_ledger_is_where_mlflow_is_told_that_it_is(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://somewhere:5000")
    assert ledger.address() == "http://somewhere:5000"
    assert ledger.exists()


def test_a_file_without_content_is_no_ledger(tmp_path):
    (tmp_path / "empty.db").touch()
    assert not ledger.exists(f"sqlite:///{tmp_path}/empty.db")
    assert not ledger.exists(f"sqlite:///{tmp_path}/missing.db")


def test_preparing_imports_mlflow_beside_what_else_is_done_and_writes_nothing(tmp_path):
    """In a process of its own: this one has imported it."""
    code = """if True:
        import sys, threading
        from tabiflow import ledger
        ledger.open_ledger("sqlite:///mlflow.db").prepare()
        (thread,) = set(threading.enumerate()) - {threading.main_thread()}
        thread.join(60)
        print("tabiflow.ledger.recorder" in sys.modules)
        """
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == ("True\n", "", [])


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("https://me:secret@host:5000/x", "https://host:5000/x"),
        ("postgresql+psycopg2://me:se@cret@host/db", "postgresql+psycopg2://host/db"),
        ("sqlite:////home/me/mlflow.db", "sqlite:////home/me/mlflow.db"),
        ("a token hf_planted here", "a token *** here"),
    ],
)
def test_credentials_are_not_shown(told, shown, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    assert ledger.redacted(told) == shown


def test_reading_needs_no_ledger(tmp_path):
    store = Store.open(f"sqlite:///{tmp_path}/new/mlflow.db")
    assert store.outcomes() == {} and store.holds(SWEEP) == () and store.openings() == {}
    assert not (tmp_path / "new").exists()


def _folder(place: Path) -> None:
    place.mkdir()


def _text(place: Path) -> None:
    place.write_text("not a database " * 100)


def _other_database(place: Path) -> None:
    with sqlite3.connect(place) as database:
        database.execute("CREATE TABLE other (x)")
    database.close()


@pytest.mark.parametrize("make", [_folder, _text, _other_database])
def test_what_is_no_ledger_is_said_in_one_line(make, tmp_path):
    place = tmp_path / "mlflow.db"
    make(place)
    assert ledger.exists(f"sqlite:///{place}")
    with pytest.raises(LedgerError, match=r"^[^\n]*mlflow\.db: [^\n]*$"):
        ledger.open_ledger(f"sqlite:///{place}")


def test_a_folder_that_cannot_be_made_is_said_before_anything_is_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LedgerError, match="cannot be written to"):
        ledger.open_ledger(f"sqlite:///{tmp_path}/file/below/mlflow.db")


@pytest.mark.parametrize("uri", ["sqlite://", "sqlite:", "sqlite:///:memory:"])
def test_a_ledger_in_memory_is_refused(uri):
    with pytest.raises(LedgerError, match="in memory") as caught:
        ledger.open_ledger(uri)
    assert "MLFLOW_TRACKING_URI" in str(caught.value)


@pytest.mark.parametrize("uri", ["sqlite:////proc/none/mlflow.db", "files://somewhere"])
def test_a_place_that_takes_no_ledger_is_not_blamed_on_its_version(uri):
    with pytest.raises(LedgerError) as caught, ledger.open_ledger(uri).recorder("a-sweep"):
        pass
    assert "name another place in MLFLOW_TRACKING_URI" in str(caught.value)


def test_a_server_that_is_away_is_said_in_seconds():
    started = time.monotonic()
    with pytest.raises(
        LedgerError, match=r"^http://127\.0\.0\.1:9: the MLflow server cannot be reached"
    ):
        ledger.open_ledger("http://me:secret@127.0.0.1:9")
    assert time.monotonic() - started < 5


def test_a_file_of_another_mlflow_is_said_with_the_way_out(store):
    with sqlite3.connect(ledger.sqlite_file(store.uri)) as database:
        database.execute("UPDATE alembic_version SET version_num = 'bda7b8c39065'")
    database.close()
    with pytest.raises(LedgerError, match="mlflow db upgrade"), store.recorder(SWEEP):
        pass


def test_a_deleted_experiment_is_said_with_the_way_out(store):
    with store.recorder(SWEEP):
        pass
    client = MlflowClient(store.uri)
    client.delete_experiment(client.get_experiment_by_name(SWEEP).experiment_id)
    with pytest.raises(LedgerError, match="mlflow experiments restore"), store.recorder(SWEEP):
        pass


def test_a_finished_trial_comes_back_as_it_was_told(store):
    with store.recorder(SWEEP, {"code_commit": "f00"}) as recorder:
        begin(recorder, trial())
        recorder.epoch(trial().id, 1, epoch(1))
        result = Result(1, 61.5, {"validation_accuracy": 70.0}, facts={"max_length": 128})
        assert recorder.finish(trial().id, 1, result)
    [outcome] = store.outcomes().values()
    assert outcome.trial == trial() and outcome.status is Status.DONE and outcome.sweep == SWEEP
    assert (outcome.score, outcome.epoch, outcome.metric) == (61.5, 1, "entity_f1")
    assert math.isnan(outcome.test) and outcome.n == 0 and outcome.seconds >= 0
    assert outcome.metrics == {"validation_accuracy": 70.0}
    wanted = {"code_commit": "f00", "model_commit": "abc", "device": "cpu", "max_length": "128"}
    assert wanted.items() <= outcome.tags.items()


def test_runs_are_comparable_as_they_stand(store):
    with store.recorder(SWEEP) as recorder:
        record(recorder, trial())
        record(recorder, trial(rate=2e-5))
    [parent] = runs(store, "tags.kind = 'cell'")
    children = runs(store, "tags.kind = 'trial'")
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}
    assert {run.info.run_name for run in children} == {"lr1e-05", "lr2e-05"}
    for run in children:
        assert run.data.params.keys() == {"learning_rate", "weight_decay", "batch_size", "seed"}
        assert [step for step, _ in history(store, run.info.run_id, "validation_loss")] == [1, 2, 3]
        assert {"train_loss", "validation_accuracy"} <= run.data.metrics.keys()
    assert {run.info.status for run in [parent, *children]} == {"FINISHED"}


def test_quick_reads_equal_those_of_mlflow(store):
    with store.recorder(SWEEP) as recorder:
        record(recorder, trial())
        record(recorder, trial(rate=2e-5), ending=Failure("bug", "KeyError: 'x'"))
        record(recorder, trial(rate=3e-5), ending=Result(1, math.nan))
        recorder.hold(HOLD)
    file, tracking = ledger.sqlite_file(store.uri), Tracking(store.uri)
    for kind in ("trial", "cell"):
        quick = sorted(sqlite.runs(file, kind), key=lambda run: run.run_id)
        assert repr(quick) == repr(sorted(tracking.runs(kind), key=lambda run: run.run_id))
    [first, *_] = tracking.runs("trial")
    quick_curve = sqlite.curves(file, [first.run_id], "validation_score")[first.run_id]
    assert quick_curve == tracking.curve(first.run_id, "validation_score")


def test_tags_find_exactly_the_trials_they_name(store):
    failed = trial(rate=2e-5)
    with store.recorder(SWEEP) as recorder:
        record(recorder, trial())
        record(recorder, failed, ending=Failure("oom", "out of memory"))
        record(recorder, trial(model="roberta"))
    assert trials_of(runs(store, "tags.status = 'failed'")) == {failed.id}
    assert trials_of(runs(store, "tags.failure_kind = 'oom'")) == {failed.id}
    assert trials_of(runs(store, "tags.model = 'bert'")) == {trial().id, failed.id}
    assert len(runs(store, "tags.category = 'ner' AND tags.attempt = '1'")) == 3


@pytest.mark.parametrize(
    ("ending", "status", "run_status"),
    [
        (Result(3, 53.0), "done", "FINISHED"),
        (Pruned(2, 52.0), "pruned", "FINISHED"),
        (Failure("data", "no column `label`"), "failed", "FAILED"),
        (Killed("Ctrl-C"), "killed", "KILLED"),
    ],
)
def test_every_ending_has_its_status(ending, status, run_status, store):
    with store.recorder(SWEEP) as recorder:
        record(recorder, trial(), ending=ending)
    [run] = runs(store, f"tags.status = '{status}'")
    assert run.info.status == run_status
    assert store.outcomes()[trial().id].status == status


def test_a_later_attempt_marks_the_failed_one_retried(store):
    with store.recorder(SWEEP) as recorder:
        record(recorder, trial(), ending=Failure("bug", "x"))
    with store.recorder(SWEEP) as recorder:
        record(recorder, trial(), 2)
    tags = [run.data.tags for run in runs(store, "tags.kind = 'trial'")]
    attempts = {each["attempt"]: each["status"] for each in tags}
    assert attempts == {"1": "retried", "2": "done"}
    assert store.outcomes()[trial().id].attempt == 2


def test_a_mended_model_marks_the_broken_ones_trials_retried(store):
    mended = trial(model_identity={"hub": "someone/bert", "revision": "2" * 40})
    with store.recorder(SWEEP) as recorder:
        record(recorder, trial(), ending=Failure("model", "truncated"))
        record(recorder, trial(rate=2e-5), ending=Failure("model", "truncated"))
        record(recorder, mended)
    assert trials_of(runs(store, "tags.status = 'retried'")) == {trial().id}
    assert trials_of(runs(store, "tags.status = 'failed'")) == {trial(rate=2e-5).id}


def test_another_sweeps_attempt_marks_the_same_trial_retried(store):
    with store.recorder("first") as recorder:
        record(recorder, trial(), ending=Killed("power failure"))
    with store.recorder("second") as recorder:
        record(recorder, trial(), 2)
    [run] = runs(store, "tags.kind = 'trial'", sweep="first")
    assert run.data.tags["status"] == "retried"


def test_late_reports_of_a_lost_attempt_are_refused(store):
    with store.recorder(SWEEP) as recorder:
        begin(recorder, trial())
        assert recorder.finish(trial().id, 1, Killed("its node was lost"))
        begin(recorder, trial(), 2)
        assert not recorder.epoch(trial().id, 1, epoch(1))
        assert not recorder.finish(trial().id, 1, Result(1, 99.0))
        record(recorder, trial(), 3)
    outcome = store.outcomes()[trial().id]
    assert (outcome.attempt, outcome.score) == (3, 53.0)


def test_an_epoch_counts_once(store):
    with store.recorder(SWEEP) as recorder:
        begin(recorder, trial())
        assert recorder.epoch(trial().id, 1, epoch(1))
        assert not recorder.epoch(trial().id, 1, epoch(1))
        recorder.finish(trial().id, 1, Result(1, 51.0))
    [run] = store.outcomes().values()
    assert store.curves([run.run_id]) == {run.run_id: [(1, 51.0)]}


def test_a_finished_attempt_counts_wherever_it_is(store):
    with store.recorder("first") as recorder:
        record(recorder, trial())
    with store.recorder("second") as recorder:
        record(recorder, trial(), 2, ending=Failure("bug", "x"))
    outcome = store.outcomes()[trial().id]
    assert (outcome.sweep, outcome.status) == ("first", Status.DONE)


def test_what_still_runs_at_the_end_is_killed(store):
    with pytest.raises(KeyboardInterrupt), store.recorder(SWEEP) as recorder:
        begin(recorder, trial())
        raise KeyboardInterrupt
    outcome = store.outcomes()[trial().id]
    assert outcome.status is Status.KILLED and "KeyboardInterrupt" in outcome.error
    assert {run.info.status for run in runs(store)} == {"FINISHED", "KILLED"}


def test_a_cell_keeps_its_parent_run(store):
    for rate in (1e-5, 2e-5):
        with store.recorder(SWEEP) as recorder:
            record(recorder, trial(rate=rate))
    [parent] = runs(store, "tags.kind = 'cell'")
    assert parent.info.status == "FINISHED"


def test_holds_are_kept_until_they_are_released(store):
    with store.recorder(SWEEP) as recorder:
        recorder.hold(HOLD)
        recorder.release(Cell("another", "cell"))
    assert store.holds(SWEEP) == (HOLD,) and store.holds("another") == ()
    with store.recorder(SWEEP) as recorder:
        recorder.release(HOLD.cell)
    assert store.holds(SWEEP) == ()


def test_an_opening_stands_in_mlflow_before_the_split_is_read(store):
    confirming = trial(split="test")
    with store.recorder(SWEEP) as recorder:
        recorder.cell(confirming.cell, "ner", "entity_f1")
        recorder.open_test(confirming, 1, "seed25", opening())
        [run] = runs(store, "tags.split = 'test'")
        assert run.data.tags["opened_by"] == "ayşe" and run.info.status == "RUNNING"
        result = Result(1, 50.0, {"test_accuracy": 60.0}, test=48.0, n=10)
        recorder.finish(confirming.id, 1, result)
    outcome = store.outcomes()[confirming.id]
    assert (outcome.test, outcome.n, outcome.metrics) == (48.0, 10, {"test_accuracy": 60.0})


def test_a_trial_that_is_tried_again_was_opened_once(store):
    confirming = trial(split="test")
    with store.recorder(SWEEP) as recorder:
        recorder.cell(confirming.cell, "ner", "entity_f1")
        recorder.open_test(confirming, 1, "seed25", opening(reason="the first"))
        recorder.open_test(confirming, 2, "seed25", opening("2026-02-02T00:00:00Z"))
    assert store.openings() == {confirming.id: opening(reason="the first")}
    assert store.outcomes()[confirming.id].tags["opened_at"] == opening().at


def test_predictions_are_kept_beside_the_run(store):
    predictions = ({"row": 1, "prediction": "İstanbul"},)
    result = Result(1, 50.0, test=48.0, n=1, predictions=predictions)
    with store.recorder(SWEEP) as recorder:
        record(recorder, trial(split="test"), ending=result)
    [file] = ledger.sqlite_file(store.uri).parent.glob("artifacts/*/artifacts/predictions.json")
    assert file.read_text(encoding="utf-8") == '[{"row": 1, "prediction": "İstanbul"}]'
    [run] = runs(store, "tags.kind = 'trial'")
    assert store.predictions([run.info.run_id]) == {run.info.run_id: list(predictions)}
    assert Tracking(store.uri).artifact(run.info.run_id, "predictions.json") == file.read_text()


def test_a_run_without_predictions_has_none(store):
    with store.recorder(SWEEP) as recorder:
        record(recorder, trial())
    [run] = runs(store, "tags.kind = 'trial'")
    assert store.predictions([run.info.run_id]) == {}
    assert Tracking(store.uri).artifact(run.info.run_id, "predictions.json") is None


def test_predictions_that_were_cut_short_are_named(store):
    with store.recorder(SWEEP) as recorder:
        record(recorder, trial(), ending=Result(1, 50.0, predictions=({"row": 1},)))
    [file] = ledger.sqlite_file(store.uri).parent.glob("artifacts/*/artifacts/predictions.json")
    file.write_text('[{"row":')
    [run] = runs(store, "tags.kind = 'trial'")
    with pytest.raises(LedgerError, match=f"predictions.json of run {run.info.run_id}"):
        store.predictions([run.info.run_id])


def test_errors_are_recorded_without_credentials(store):
    error = "cannot reach\nhttps://me:secret@hub/x"
    with store.recorder(SWEEP) as recorder:
        record(recorder, trial(), ending=Failure("environment", error))
    assert store.outcomes()[trial().id].error == "cannot reach https://hub/x"


def test_a_trial_of_any_length_comes_back(store):
    long = trial(dataset_identity={"task": "ner", "labels": [f"label-{n}" for n in range(2000)]})
    with store.recorder(SWEEP) as recorder:
        record(recorder, long)
    assert store.outcomes()[long.id].trial == long


def test_a_run_that_is_no_record_of_ours_is_left_out(store, caplog):
    with store.recorder(SWEEP) as recorder:
        record(recorder, trial())
    [run] = runs(store, "tags.kind = 'trial'")
    MlflowClient(store.uri).set_tag(run.info.run_id, "identity", '{"something": "else"}')
    assert store.outcomes() == {}
    assert f"run {run.info.run_id} of {SWEEP} was left out" in caplog.text


def test_a_run_deleted_in_the_pages_does_not_stop_the_sweep(store):
    with store.recorder(SWEEP) as recorder:
        begin(recorder, trial())
        assert recorder.flush()
        [run] = runs(store, "tags.kind = 'trial'")
        MlflowClient(store.uri).delete_run(run.info.run_id)
        recorder.finish(trial().id, 1, Result(1, 50.0))
        record(recorder, trial(rate=2e-5))
    assert store.outcomes().keys() == {trial(rate=2e-5).id}


def test_two_drivers_do_not_run_the_same_sweep(store):
    with store.recorder(SWEEP) as recorder:
        begin(recorder, trial())
        with pytest.raises(LeaseHeld, match=f"`{SWEEP}` is being run by"), store.recorder(SWEEP):
            pass
        with store.recorder("another"):
            pass
        assert recorder.finish(trial().id, 1, Result(1, 50.0))
    assert store.outcomes()[trial().id].status is Status.DONE


def test_metric_names_say_their_split():
    named = records.epoch_metrics(epoch(1))
    assert named.keys() == {
        "validation_score",
        "validation_loss",
        "validation_accuracy",
        "train_loss",
    }

"""The verbs from end to end, rehearsed: what a person types, and what the ledger then holds."""

import math
from pathlib import Path
from typing import Any

import pytest
from studies import dataset, model, searched, written
from terminal import Terminal, opened

from tabiflow.ledger import open_ledger
from tabiflow.registry import resolve
from tabiflow.selection import planned
from tabiflow.spec import Sweep
from tabiflow.trial import Result

RATES = [1e-5, 2e-5, 3e-5]


@pytest.fixture
def terminal(
    tmp_path: Path,
    ledger_template: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    local_ray: None,
) -> Terminal:
    return opened(tmp_path, ledger_template, capsys, monkeypatch)


def study(terminal: Terminal, **changes: Any) -> Path:
    """A rehearsed sweep of one cell and three rates, two epochs each."""
    return written(terminal.folder, **{"runner": "rehearse", "protocol": {"epochs": 2}, **changes})


def test_a_sweep_runs_everything_once_and_again_nothing(terminal: Terminal) -> None:
    file = study(terminal)
    first = terminal.json("sweep", file)
    again = terminal("sweep", file, "--json")
    assert first["counts"]["done"] == 3 and again.code == 0
    assert len(terminal.runs()) == 3


def test_a_wider_space_runs_only_the_new_trials(terminal: Terminal) -> None:
    terminal("sweep", study(terminal))
    wider = study(terminal, search=searched(learning_rate=[*RATES, 5e-5]))
    assert terminal.json("plan", wider)["todo"] == 1
    terminal("sweep", wider)
    assert len(terminal.runs()) == 4


def test_a_narrower_space_runs_nothing_and_selection_forgets_the_rest(terminal: Terminal) -> None:
    terminal("sweep", study(terminal))
    best = terminal.json("select", study(terminal))["winners"][0]["params"]["learning_rate"]
    rest = [rate for rate in RATES if rate != best]
    narrower = study(terminal, search=searched(learning_rate=rest))
    assert terminal("sweep", narrower).code == 0
    assert terminal.json("select", narrower)["winners"][0]["params"]["learning_rate"] in rest
    assert len(terminal.runs()) == 3


def test_failed_trials_run_again_only_when_they_are_resubmitted(terminal: Terminal) -> None:
    file = study(terminal, rehearse={"diverging": 0.5})
    assert terminal("sweep", file).code == 3
    failed = terminal.json("failures", file)["failures"]
    assert 0 < len(failed) < 3 and {each["kind"] for each in failed} == {"diverged"}
    assert terminal("sweep", file).code == 3
    assert {each["attempts"] for each in terminal.json("failures", file)["failures"]} == {1}
    assert terminal("resubmit", file, "--kind", "oom").code == 3
    assert len(terminal.runs()) == 3
    assert terminal("resubmit", file).code == 3
    again = terminal.json("failures", file)["failures"]
    assert [each["trial"] for each in again] == [each["trial"] for each in failed]
    assert {each["attempts"] for each in again} == {2}
    assert len(terminal.runs("tags.status = 'failed'")) == len(failed)


def test_the_counts_of_a_plan_are_disjoint(terminal: Terminal) -> None:
    file = study(terminal, rehearse={"diverging": 0.5})
    terminal("sweep", file)
    wider = study(
        terminal, rehearse={"diverging": 0.5}, search=searched(learning_rate=[*RATES, 5e-5])
    )
    counts = terminal.json("plan", wider)
    parts = [counts[state] for state in ("todo", "known", "failed", "held")]
    assert counts["trials"] == sum(parts) == counts["distinct"] == 4 and min(parts[:3]) > 0
    assert counts["models"] == ["model"] and counts["datasets"] == ["data"]


def test_the_test_split_is_opened_once(terminal: Terminal) -> None:
    file = study(terminal)
    terminal("sweep", file)
    first = terminal.json("confirm", file)["openings"]
    again = terminal("confirm", file, "--json")
    assert again.code == 0 and again.data["openings"] == first
    assert len(terminal.runs("tags.split = 'test'")) == 1
    (opening,) = first
    winner = terminal.json("select", file)["winners"][0]
    assert opening["validation"] == winner["score"] and opening["n"] == 100
    assert opening["opened_at"] and opening["test"] is not None


def test_another_winner_needs_a_reason_to_open_the_test_split_again(terminal: Terminal) -> None:
    rates = [1e-4, 3e-4]  # far above the best rate of any cell
    file = study(terminal, search=searched(learning_rate=rates))
    terminal("sweep", file)
    terminal("confirm", file)
    wider = study(terminal, search=searched(learning_rate=[*rates, 1e-5]))
    terminal("sweep", wider)
    refused = terminal("confirm", wider)
    assert refused.code == 2 and "--reopen" in refused.err
    assert len(terminal.runs("tags.split = 'test'")) == 1
    assert terminal("confirm", wider, "--reopen", "a wider space").code == 0
    openings = terminal.json("report", wider)["openings"]
    assert [each["reason"] for each in openings] == ["", "a wider space"]


def test_an_incomplete_cell_is_not_confirmed_unasked(terminal: Terminal) -> None:
    terminal("sweep", study(terminal))
    wider = study(terminal, search=searched(learning_rate=[*RATES, 5e-5]))
    refused = terminal("confirm", wider)
    assert refused.code == 2 and "incomplete" in refused.err
    assert terminal("confirm", wider, "--incomplete").code == 0
    assert not terminal.json("select", wider)["winners"][0]["complete"]


def test_a_cell_without_a_defined_score_is_left_out_of_confirm_and_named(
    terminal: Terminal,
) -> None:
    rows = [{"datasets": [dataset("flat"), dataset()], "space": {"learning_rate": RATES[:1]}}]
    file = study(terminal, search=rows)
    sweep = Sweep.read(file)
    flat, _ = planned(sweep, resolve(sweep)).trials
    with open_ledger().recorder("study") as recorder:
        recorder.cell(flat.cell, "nli", "macro_f1")
        recorder.start(flat, 1, "flat", {})
        recorder.finish(flat.id, 1, Result(epoch=1, score=math.nan))
    assert terminal("confirm", file, "--incomplete").code == 2
    terminal("sweep", file)
    said = terminal("confirm", file, "--json")
    assert said.code == 3 and [each["dataset"] for each in said.data["openings"]] == ["data"]
    assert said.data["left_out"] == [{"model": "model", "dataset": "flat"}]
    assert "left out: model x flat: no trial has a defined score" in terminal("confirm", file).out
    warned = terminal.json("report", file)["warnings"]
    assert "No winner: of model on flat no trial has a defined validation score." in warned


def test_no_run_of_a_sweep_holds_a_test_metric(terminal: Terminal) -> None:
    file = study(terminal)
    terminal("sweep", file)
    terminal("confirm", file)
    for run in terminal.runs("tags.split = 'validation'"):
        assert not [name for name in run.data.metrics if "test" in name]


def test_runs_can_be_compared_in_mlflow_as_they_stand(terminal: Terminal) -> None:
    file = study(terminal, models=[model(), model("other")], seeds=[25, 7])
    terminal("sweep", file)
    runs = terminal.runs()
    names = {"learning_rate", "weight_decay", "batch_size", "seed"}
    assert all(names <= run.data.params.keys() for run in runs)
    assert len({run.info.run_name for run in runs}) == 6
    assert len(terminal.runs("tags.model = 'other' and tags.dataset = 'data'")) == 6
    assert len({run.data.tags["mlflow.parentRunId"] for run in runs}) == 2
    assert len(terminal.runs("tags.category = 'nli' and tags.attempt = '1'")) == 12


def test_a_sweep_with_a_space_of_ranges_draws_as_many_as_asked(terminal: Terminal) -> None:
    space = {"learning_rate": {"log_uniform": [1e-6, 1e-4]}, "samples": 5}
    file = study(terminal, search=searched(**space))
    assert terminal.json("plan", file)["todo"] == 5
    assert terminal.json("sweep", file)["counts"]["done"] == 5
    terminal("sweep", file)
    assert len(terminal.runs()) == 5


def test_a_rehearsal_is_an_experiment_of_its_own(terminal: Terminal) -> None:
    file = written(terminal.folder, protocol={"epochs": 2})
    assert terminal.json("sweep", file, "--rehearse")["sweep"] == "study-rehearsal"
    assert terminal.json("plan", file)["todo"] == 3


def test_the_report_is_the_same_in_every_form(terminal: Terminal) -> None:
    file = study(
        terminal,
        search=[{"datasets": [dataset(), dataset("two")], "space": {"learning_rate": RATES}}],
    )
    terminal("sweep", file)
    terminal("confirm", file)
    folder = terminal.folder / "report"
    content = terminal.json("report", file, "-o", folder)
    files = {path.name for path in folder.iterdir()}
    assert {f"report.{form}" for form in ("html", "json", "md", "tex")} | {"scores.csv"} <= files
    tests = [each["test"] for each in content["scores"]]
    assert content["average"]["model"] == pytest.approx(sum(tests) / 2)
    text = (folder / "report.md").read_text()
    assert all(f"{score:.2f}" in text for score in tests)


def test_what_is_not_known_is_a_dash_and_null(terminal: Terminal) -> None:
    file = study(terminal)
    assert terminal.json("report", file)["scores"][0]["test"] is None
    assert "–" in terminal("report", file).out
    assert terminal.json("status", file)["cells"][0]["best"] is None


def test_one_trial_is_shown_by_the_beginning_of_its_id(terminal: Terminal) -> None:
    file = study(terminal)
    terminal("sweep", file)
    trial = terminal.json("select", file)["winners"][0]["trial"]
    shown = terminal.json("show", trial[:6])
    assert shown["trial"] == trial and len(shown["curve"]) == 2
    assert terminal("show", "zzz").code == 2


def test_a_verb_that_is_not_there_has_a_near_name(terminal: Terminal) -> None:
    said = terminal("confrim", "x.yaml")
    assert said.code == 2 and "did you mean `confirm`?" in said.err


def test_a_mistake_is_one_line_and_writes_nothing(terminal: Terminal) -> None:
    said = terminal("sweep", study(terminal, modles=["x"]))
    assert said.code == 2 and said.err.count("\n") == 1
    assert "study.yaml:1: unknown key `modles`; did you mean `models`?" in said.err
    assert terminal.runs() == []

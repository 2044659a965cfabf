"""The generative benchmark asked of a small server: complete, resumable, and honest about gaps."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from completions import Fails, Server, running
from terminal import driver

from tabiflow.cli import execute

MODEL = "{name: arithmetic, build: generator, revision: '1', tokenizer: server, dtype: float32}"
TASKS = "[xquad_tr, xcopa_tr, belebele_tr, bilmecebench, ironytr, xnli_tr, wmt-tr-en-prompt]"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger_template: Path) -> Path:
    """A folder with an empty ledger, in which the verbs run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / ".tabiflow").mkdir()
    shutil.copy(ledger_template, tmp_path / ".tabiflow" / "mlflow.db")
    return tmp_path


def sweep(place: Path, tasks: str = TASKS, more: str = "data: example") -> Path:
    file = place / "asked.yaml"
    file.write_text(f"name: asked\nmodels: [{MODEL}]\ntasks: {tasks}\n{more}\n")
    return file


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any]]:
    code = execute(["cetvel", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def figures(content: dict[str, Any]) -> dict[str, Any]:
    return {each["task"]: (each["score"], each["n"], each["figures"]) for each in content["scores"]}


def test_a_server_that_is_slow_or_fails_now_and_then_gets_the_same_scores(
    place: Path, capsys: pytest.CaptureFixture[str], ledger_template: Path
) -> None:
    found = []
    for server in (Server(), Server(delay=0.05), Fails()):
        shutil.copy(ledger_template, place / ".tabiflow" / "mlflow.db")
        with running(server):
            code, content = told(capsys, sweep(place), "--endpoint", server.url)
        assert code == 0
        found.append(figures(content))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 7


def test_asked_again_nothing_is_requested(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = sweep(place, "[xcopa_tr, wmt-tr-en-prompt]")
    with running(Server()) as server:
        _, first = told(capsys, file, "--endpoint", server.url)
        before = server.requests
        code, again = told(capsys, file, "--endpoint", server.url)
        assert execute(["cetvel", str(file), "--endpoint", server.url]) == 0
    assert (code, server.requests) == (0, before)
    assert again == first
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    (score,) = (row for row in rows if row[:2] == ["MCQA", "xcopa_tr"])
    assert score[-2:] == [str(first["scores"][0]["n"]), "0"], "no row left out is a known number"
    assert not list((place / ".tabiflow" / "answers").iterdir())


def test_a_driver_that_is_killed_asks_no_finished_row_twice(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"question": "cause", "choice1": "Bir.", "choice2": "İki.", "label": 1}
    (place / "data" / "xcopa_tr").mkdir(parents=True)
    lines = [json.dumps({**row, "premise": f"Satır {n}."}) for n in range(60)]
    (place / "data" / "xcopa_tr" / "test.jsonl").write_text("\n".join(lines))
    file = sweep(place, "[xcopa_tr]", "data: data")
    with running(Server(delay=0.1)) as server:
        finished = _killed(file, server.url, rows=10)
        code, content = told(capsys, file, "--endpoint", server.url, "--concurrency", "4")
    assert code == 0
    assert content["scores"][0]["n"] == 60
    assert content["scores"][0]["facts"]["rows_kept_from_before"] == str(len(finished))
    twice = [row for row in range(60) if _times(server, f"Satır {row}.") > 1]
    assert not set(twice) & set(finished)
    assert len(twice) <= 4


def _times(server: Server, text: str) -> int:
    """How often something with this text was answered."""
    wanted = ", ".join(map(str, text.encode()))
    return sum(times for key, times in server.asked.items() if wanted in key)


def _killed(file: Path, url: str, rows: int) -> list[int]:
    """The rows that were finished when the driver was killed."""
    command = driver("cetvel", file, "--endpoint", url, "--concurrency", "4")
    environment = {**os.environ, "MLFLOW_TRACKING_URI": ""}
    process = subprocess.Popen(command, cwd=file.parent, env=environment)
    answers = file.parent / ".tabiflow" / "answers"
    deadline = time.monotonic() + 120
    while sum(each.read_text().count("\n") for each in answers.glob("*.jsonl")) < rows:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return [
        json.loads(line)["place"]
        for each in answers.glob("*.jsonl")
        for line in each.read_text().splitlines()
        if line.endswith("}")
    ]


def _questions(folder: Path, rows: int, empty: tuple[int, ...] = ()) -> None:
    folder.mkdir(exist_ok=True)
    made = [
        {
            "question": f"Soru {n}?",
            "choices": [] if n in empty else [f"bir {n}", "iki", "üç", "dört"],
            "answer": "ABCD"[n % 4],
            "subject": ("tarih", "fizik")[n % 2],
        }
        for n in range(rows)
    ]
    lines = "\n".join(json.dumps(each, ensure_ascii=False) for each in made)
    (folder / "test.jsonl").write_text(lines)
    validation = [{**each, "question": f"Başka {each['question']}"} for each in made[:5]]
    lines = "\n".join(json.dumps(each, ensure_ascii=False) for each in validation)
    (folder / "validation.jsonl").write_text(lines)


def test_rows_without_choices_stop_the_run_by_name_unless_they_are_excluded(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _questions(place / "tumlu", 40, empty=(12, 33))
    file = sweep(place, "[{name: tumlu, path: tumlu, choices: letters}]", "")
    with running(Server()) as server:
        assert execute(["cetvel", str(file), "--endpoint", server.url]) == 2
        line = capsys.readouterr().err
        assert "2 of 40 rows" in line and "row 12 (" in line and "row 33 (" in line
        assert server.requests == 0
        _, content = told(capsys, file, "--endpoint", server.url, "--exclude-invalid")
    (score,) = content["scores"]
    assert (score["n"], score["choices"]["released"]) == (38, 40)
    assert [each["index"] for each in content["excluded"]["tumlu"]] == [12, 33]
    assert set(score["choices"]["subjects"]) == {"tarih", "fizik"}


class AlwaysB(Server):
    def token(self, prefix: Any, token: int) -> Any:
        token, _, found = super().token(prefix, token)
        if (
            bytes(each for each in prefix[-8:] if each < 256).decode(errors="ignore")[-6:]
            == "harfi:"
        ):
            found = found - 20
            found[ord(" ")] = -1e-9
        if len(prefix) and prefix[-1] == ord(" "):
            found[ord("B")] = -1e-9
        return token, float(found[token]), found


def test_a_model_that_always_answers_b_is_stable_under_no_rotation(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _questions(place / "tumlu", 8)
    file = sweep(place, "[{name: tumlu, path: tumlu, choices: letters}]", "orders: true")
    with running(AlwaysB()) as server:
        _, content = told(capsys, file, "--endpoint", server.url)
    (orders,) = content["orders"]
    assert (orders["stability"], orders["rows"]) == (0.0, 5)
    assert orders["letters"]["B"] == 20
    assert content["scores"][0]["choices"]["answers"] == {"A": 0, "B": 8, "C": 0, "D": 0}


class ShortMemory(Server):
    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "arithmetic", "max_model_len": 60}]})


def test_rows_that_are_too_long_for_a_model_are_named_and_never_cut(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(ShortMemory()) as server:
        code, content = told(capsys, sweep(place, "[xcopa_tr]"), "--endpoint", server.url)
        assert code == 3
        reason = content["missing"][0]["reason"]
        assert reason.startswith("data: 8 of 8 rows are too long for the model: row 0 (")

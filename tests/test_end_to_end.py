"""Real training through the verbs: a sound cell, a broken model, a rate that diverges, the seal."""

import json
import os
import shutil
from pathlib import Path

import pytest
from terminal import Terminal, opened
from tiny import tiny_model

GOOD, BAD = "çok güzel bir film", "berbat bir ürün"
SWEEP = """\
name: study
models:
  - {name: sound, path: sound}
  - {name: broken, path: broken}
search:
  - datasets: [{name: words, path: words, task: classification}]
    space: {learning_rate: [1e-3, 3e-3, 1e-2, 1e30]}
protocol: {epochs: 3}
"""


def words(folder: Path) -> None:
    folder.mkdir()
    for split, rows in (("train", 48), ("validation", 16), ("test", 20)):
        lines = (
            json.dumps({"text": f"{index} {(GOOD, BAD)[index % 2]} {split}", "label": index % 2})
            for index in range(rows)
        )
        (folder / f"{split}.jsonl").write_text("\n".join(lines))


@pytest.fixture
def terminal(
    tmp_path: Path,
    ledger_template: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    local_ray: None,
) -> Terminal:
    terminal = opened(tmp_path, ledger_template, capsys, monkeypatch)
    monkeypatch.setenv("TABIFLOW_CACHE", str(tmp_path / "cache"))
    words(tmp_path / "words")
    tiny_model(tmp_path / "sound")
    shutil.copytree(tmp_path / "sound", tmp_path / "broken")
    os.truncate(tmp_path / "broken" / "model.safetensors", 1000)
    (tmp_path / "study.yaml").write_text(SWEEP)
    return terminal


def test_a_broken_cell_is_held_mended_and_run_while_the_others_finish(terminal: Terminal) -> None:
    swept = terminal("sweep", "study.yaml", "--json")
    assert swept.code == 3
    counts = swept.data["counts"]
    # Of the sound cell three are done and one has diverged; of the broken one two have failed.
    assert (counts["done"], counts["failed"], counts["held"], counts["todo"]) == (3, 3, 2, 0)
    failures = terminal.json("failures", "study.yaml")["failures"]
    kinds = sorted((each["model"], each["kind"]) for each in failures)
    assert kinds == [("broken", "model"), ("broken", "model"), ("sound", "diverged")]
    runs = len(terminal.runs())
    assert terminal("sweep", "study.yaml").code == 3 and len(terminal.runs()) == runs

    shutil.copy(terminal.folder / "sound" / "model.safetensors", terminal.folder / "broken")
    assert terminal("resubmit", "study.yaml", "--kind", "model").code == 3
    assert len(terminal.runs()) == runs + 4
    status = terminal.json("status", "study.yaml")
    # The mended copy is the sound model, so its fourth rate diverges as well.
    assert (status["counts"]["done"], status["counts"]["failed"]) == (6, 2)
    failed = terminal.runs("tags.status = 'failed'")
    assert {run.data.tags["failure_kind"] for run in failed} == {"diverged"} and len(failed) == 2
    assert not [run for run in terminal.runs() if run.info.status == "RUNNING"]

    refused = terminal("confirm", "study.yaml")
    assert refused.code == 2 and "incomplete" in refused.err
    confirmed = terminal.json("confirm", "study.yaml", "--incomplete")["openings"]
    chosen = {each["model"]: each for each in terminal.json("select", "study.yaml")["winners"]}
    for opening in confirmed:
        assert opening["validation"] == chosen[opening["model"]]["score"]
        assert opening["n"] == 20 and opening["test"] is not None
    swept_runs = terminal.runs("tags.split = 'validation'")
    assert not [name for run in swept_runs for name in run.data.metrics if "test" in name]

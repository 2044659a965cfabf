"""The revision of a local folder is its bytes, whatever the memory of earlier hashes says."""

import os
from pathlib import Path

import pytest

from tabiflow.errors import UserError
from tabiflow.registry import local


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TABIFLOW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "revisions.json"


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as old at once, so that their hashes are remembered."""
    monkeypatch.setattr(local, "_SETTLED", -60.0)


def _folder(folder: Path, **files: str) -> list[Path]:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return [folder / name for name in files]


def _revision(folder: Path, **files: str) -> str:
    return local.revision(folder, _folder(folder, **files))


def test_a_revision_is_16_hex_digits_of_names_and_bytes(tmp_path: Path) -> None:
    first = _revision(tmp_path / "a", config="{}", weights="xyz")

    assert len(first) == 16 and int(first, 16) >= 0
    assert _revision(tmp_path / "b", weights="xyz", config="{}") == first
    assert _revision(tmp_path / "c", config="{}", weights="xyZ") != first
    assert _revision(tmp_path / "d", config="{}", weight="xyz") != first
    assert _revision(tmp_path / "e", config="xyz", weights="{}") != first


def test_a_revision_does_not_hang_on_times_or_on_being_remembered(tmp_path: Path) -> None:
    files = _folder(tmp_path / "a", config="{}")
    first = local.revision(tmp_path / "a", files)
    os.utime(files[0], (1, 1))

    assert local.revision(tmp_path / "a", files) == first
    assert local.revision(tmp_path / "a", files) == first


def test_a_remembered_hash_is_used_while_the_file_is_untouched(tmp_path: Path, cache: Path) -> None:
    files = _folder(tmp_path / "a", config="{}")
    first = local.revision(tmp_path / "a", files)
    remembered = cache.read_text()
    cache.write_text(remembered.replace(remembered.split('"')[3], "0" * 64))

    assert local.revision(tmp_path / "a", files) != first


def test_new_bytes_of_the_same_size_and_time_are_noticed(tmp_path: Path) -> None:
    [file] = files = _folder(tmp_path / "a", config="{1}")
    os.utime(file, (1, 1))
    first = local.revision(tmp_path / "a", files)
    file.write_text("{2}")
    os.utime(file, (1, 1))

    assert local.revision(tmp_path / "a", files) != first


def test_a_file_written_just_now_is_not_remembered(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_SETTLED", 60.0)

    _revision(tmp_path / "a", config="{}")

    assert not cache.exists()


@pytest.mark.parametrize("content", ["", "not json", "null", "[1]", '"text"'])
def test_a_broken_memory_is_forgotten(tmp_path: Path, cache: Path, content: str) -> None:
    first = _revision(tmp_path / "a", config="{}")
    cache.write_text(content)

    assert _revision(tmp_path / "a", config="{}") == first


def test_a_cache_that_cannot_be_written_costs_time_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _revision(tmp_path / "a", config="{}")
    (tmp_path / "file").touch()
    monkeypatch.setenv("TABIFLOW_CACHE", str(tmp_path / "file" / "cache"))

    assert _revision(tmp_path / "a", config="{}") == first


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="absent: cannot be read: No such file"):
        local.revision(tmp_path, [tmp_path / "absent"])


def test_links_to_files_are_followed(tmp_path: Path) -> None:
    first = _revision(tmp_path / "a", config="{}")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "config").symlink_to(tmp_path / "a" / "config")

    assert local.revision(tmp_path / "b", [tmp_path / "b" / "config"]) == first

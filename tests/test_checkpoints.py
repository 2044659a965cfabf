"""Checkpoints in a folder and in a bucket: order, wholeness, and attempts that came too late."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import fsspec
import pytest

from tabiflow.checkpoints import Storage, Version
from tabiflow.errors import EnvironmentFault, Superseded, UserError
from tabiflow.runners.failures import kind_of


@pytest.fixture(params=["folder", "bucket"])
def storage(request, tmp_path) -> Iterator[Storage]:
    """fsspec's memory stands for a bucket: it has no folders of its own and no renaming."""
    local = request.param == "folder"
    yield Storage(str(tmp_path / "şurada burada") if local else "memory://bucket/runs", "study")
    fsspec.filesystem("memory").store.clear()


def write(storage: Storage, version: Version, content: bytes = b"state") -> None:
    storage.write("trial", version, lambda file: file.write(content))


def test_the_newest_attempts_latest_epoch_comes_first(storage):
    for version in (Version(1, 9), Version(2, 3), Version(2, 10)):
        write(storage, version, str(version).encode())
    assert storage.versions("trial") == [Version(2, 10)]
    assert storage.read("trial", Version(2, 10)) == str(Version(2, 10)).encode()


def test_a_lost_attempt_changes_nothing_of_a_later_one(storage):
    write(storage, Version(2, 3))
    with pytest.raises(Superseded, match="attempt 1 was followed by 2") as caught:
        write(storage, Version(1, 9))
    storage.delete("trial", attempt=1)
    assert storage.versions("trial") == [Version(2, 3)]
    assert storage.read("trial", Version(2, 3)) == b"state"
    assert kind_of(caught.value) == "node_lost"


def test_a_trial_that_has_ended_leaves_nothing(storage):
    write(storage, Version(1, 3))
    write(storage, Version(2, 5))
    storage.delete("trial", attempt=2)
    assert storage.versions("trial") == []
    storage.delete("trial", attempt=2)


def test_what_ended_trials_have_left_is_tidied_away(storage):
    storage.write("ended", Version(1, 3), lambda file: file.write(b"late"))
    write(storage, Version(1, 3))
    storage.tidy({"ended", "never written"})
    assert (storage.versions("ended"), len(storage.versions("trial"))) == ([], 1)


def test_sweeps_of_one_storage_do_not_mix(storage):
    write(storage, Version(1, 3))
    other = Storage(storage.address, "other")
    assert other.versions("trial") == []
    other.tidy({"trial"})
    assert storage.versions("trial") == [Version(1, 3)]


def test_a_storage_that_can_be_written_passes_and_keeps_nothing(storage):
    storage.check()
    assert storage.versions("trial") == []


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nothing-knows://bucket", "no installed package can open this storage"),
        ("{folder}/file/below", "storage cannot be written"),
    ],
)
def test_a_storage_that_cannot_be_used_is_refused_in_one_line(address, words, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=words):
        Storage(address.format(folder=tmp_path), "study").check()


def test_no_password_of_an_address_is_shown(tmp_path):
    with pytest.raises(UserError) as caught:
        Storage("nothing-knows://key:planted@bucket/runs?secret_key=planted", "study").check()
    assert "planted" not in str(caught.value) and "bucket/runs" in str(caught.value)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_the_environments_fault_and_the_last_checkpoint_stays(tmp_path):
    storage = Storage(str(tmp_path), "study")
    write(storage, Version(1, 3))
    with files_of_at_most(2**16), pytest.raises(EnvironmentFault, match="File too large"):
        write(storage, Version(1, 4), bytes(2**17))
    assert storage.versions("trial") == [Version(1, 3)]
    assert [
        file.name for file in (tmp_path / "study" / "trial").iterdir() if "1-4" in file.name
    ] == []


def test_a_marker_names_its_trial_and_what_it_marks(tmp_path):
    storage = Storage(str(tmp_path), "study")
    write(storage, Version(2, 3))
    marker = json.loads((tmp_path / "study" / "trial" / "2-3.ckpt.json").read_text())
    assert (marker["trial"], marker["attempt"], marker["epoch"]) == ("trial", 2, 3)
    assert marker["size"] == len(b"state")

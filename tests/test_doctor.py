"""What the doctor says of a machine that is fit, and of one that is not."""

from pathlib import Path

import pytest

from tabiflow import doctor
from tabiflow.doctor import Finding


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TABIFLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for name in ("MLFLOW_TRACKING_URI", "TABIFLOW_DATA", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


def found() -> dict[str, Finding]:
    return {finding.subject: finding for finding in doctor.examine()}


def test_a_machine_without_hub_is_fit_with_a_warning() -> None:
    findings = found()
    assert not [each for each in findings.values() if each.state == "fault"]
    assert findings["hub"].state == "warning" and "local ones can" in findings["hub"].advice
    assert findings["torch"].state == findings["ray"].state == "ok"


def test_a_ledger_that_is_no_database_is_a_fault(tmp_path: Path) -> None:
    file = tmp_path / ".tabiflow" / "mlflow.db"
    file.parent.mkdir()
    file.write_text("this is not a database, only some words that fill a line")
    assert found()["ledger"].state == "fault"


def test_a_cache_that_cannot_be_written_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TABIFLOW_CACHE", str(tmp_path / "file"))
    assert found()["cache"].state == "fault"


@pytest.mark.parametrize(
    ("names", "state"), [((), "warning"), (("xquad_tr",), "ok"), (("mine",), "warning")]
)
def test_local_copies_are_listed_by_their_names(
    names: tuple[str, ...], state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer = tmp_path / "offer"
    offer.mkdir()
    for name in names:
        (offer / name).mkdir()
    monkeypatch.setenv("TABIFLOW_DATA", str(offer))
    assert found()["local data"].state == state


def test_a_folder_of_local_copies_that_is_not_there_is_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TABIFLOW_DATA", "/nowhere/at/all")
    assert found()["local data"].state == "fault"

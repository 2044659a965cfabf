"""Secrets reach nothing that others read, names are no paths, and nobody runs code unasked."""

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from click.testing import CliRunner
from studies import dataset, model, searched, written
from terminal import opened

from tabiflow.cli import machine
from tabiflow.errors import SpecError
from tabiflow.redaction import Redacting, redacted
from tabiflow.runners.failures import one_line
from tabiflow.spec import Sweep

PLANTED = "s3cr3t-planted-value"


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://me:{PLANTED}@host/db",
        f"https://{PLANTED}@host/api is away",
        f"GET /x?token={PLANTED}&y=1",
        f"password={PLANTED} host=db",
        f"Authorization: Bearer {PLANTED}",
    ],
)
def test_a_secret_is_known_by_where_it_stands_in_a_text(text: str) -> None:
    assert PLANTED not in redacted(text)


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "MLFLOW_TRACKING_PASSWORD", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
        *("RAY_AUTH_TOKEN", "my_api_key", "PGPASSWORD", "SENTRY_DSN"),
    ],
)
def test_the_values_of_telling_variables_are_secret(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, PLANTED)
    assert redacted(f"no row {PLANTED} in the file") == "no row *** in the file"


@pytest.mark.parametrize("name", ["HF_TOKEN_PATH", "RAY_AUTH_TOKEN_PATH"])
def test_the_content_of_token_files_is_secret(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(PLANTED + "\n")
    monkeypatch.setenv(name, str(file))
    assert redacted(f"refused: {PLANTED}") == "refused: ***"


def test_a_token_of_the_hub_is_known_by_its_looks() -> None:
    assert redacted("hf_" + "aB3" * 8 + " is not allowed") == "*** is not allowed"


def test_what_is_no_secret_stays() -> None:
    text = "tokens: 12, lr=1e-5, key `text` of sqlite:////home/me/mlflow.db"
    assert redacted(text) == text


def test_what_other_libraries_log_passes_through_the_filter(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HF_TOKEN", PLANTED)
    caplog.handler.addFilter(Redacting())
    try:
        raise ValueError(PLANTED)
    except ValueError:
        logging.getLogger("other").warning("asked with %s", PLANTED, exc_info=True)
    assert PLANTED not in caplog.text and "asked with ***" in caplog.text


def test_the_line_of_a_failure_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", PLANTED)
    assert one_line(OSError(f"401 for {PLANTED}")) == "OSError: 401 for ***"


def test_planted_secrets_reach_neither_ledger_nor_board_nor_report(
    tmp_path: Path,
    ledger_template: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    local_ray: None,
) -> None:
    terminal = opened(tmp_path, ledger_template, capsys, monkeypatch)
    monkeypatch.setenv("HF_TOKEN", PLANTED)
    folder = tmp_path / "data"
    folder.mkdir()
    for split in ("train", "validation", "test"):
        (folder / f"{split}.jsonl").write_text(f'{{"{PLANTED}": "x"}}\n')
    row = {"name": "data", "path": "data", "task": "classification"}
    file = written(
        tmp_path,
        models=[{"name": "tiny", "build": "example-bert"}],
        search=[{"datasets": [row], "space": {"learning_rate": [1e-5]}}],
    )
    said = [terminal("sweep", file), terminal("failures", file), terminal("report", file)]
    assert any("***" in each.out + each.err for each in said)
    kept = [each.read_bytes() for each in (tmp_path / ".tabiflow").rglob("*") if each.is_file()]
    told = [each.out + each.err for each in said]
    assert not any(PLANTED in each for each in told)
    assert not any(PLANTED.encode() in each for each in kept)


def test_a_bug_shows_its_traceback_without_secrets(tmp_path: Path) -> None:
    code = (
        "import click, sys; from tabiflow import cli\n"
        "@cli.verbs.command()\n"
        "def broken(): raise RuntimeError('cannot log in with ' + 's3cr3t-planted-value')\n"
        "sys.argv[1:] = ['broken']; cli.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"MY_TOKEN": PLANTED, "PYTHONPATH": str(Path(__file__).parent.parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "RuntimeError: cannot log in with ***" in done.stderr and PLANTED not in done.stderr


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/passwd", ".hidden", "..", ""])
@pytest.mark.parametrize("key", ["name", "build", "files_of"])
def test_names_are_no_paths(key: str, name: str, tmp_path: Path) -> None:
    row = {**dataset(), "hub": None, "build": "example-nli", key: name}
    search = [{"datasets": [row], "space": {"learning_rate": [1e-5]}}]
    with pytest.raises(SpecError):
        Sweep.read(written(tmp_path, search=search))


@pytest.mark.parametrize("name", ["../x", "a/b/c", "/etc", "./x", "..", "a/..", "a b"])
def test_ids_of_the_hub_are_no_paths(name: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is an id such as `owner/name`"):
        Sweep.read(written(tmp_path, models=[{"name": "m", "hub": name}]))


def test_a_space_outside_is_named_by_a_path_only(tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("learning_rate: [1e-5]\n")
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "search_spaces").mkdir()
    with pytest.raises(SpecError, match="may hold a slash"):
        Sweep.read(
            written(tmp_path / "sweeps", search=[{"datasets": [dataset()], "space": "../secret"}])
        )
    file = written(
        tmp_path / "sweeps", search=[{"datasets": [dataset()], "space": "../secret.yaml"}]
    )
    assert Sweep.read(file).search[0].space.size == 1


def test_another_sweep_outside_is_named_by_a_path_only(tmp_path: Path) -> None:
    search = searched(winners_of="../other")
    with pytest.raises(SpecError, match="may hold a slash"):
        Sweep.read(written(tmp_path, search=search))


def test_code_of_the_hub_needs_a_row_that_asks_for_it(tmp_path: Path) -> None:
    quiet, asking = (
        Sweep.read(written(tmp_path, models=[model(**fields)])).models[0]
        for fields in ({}, {"trust_remote_code": True})
    )
    assert not isinstance(quiet, str) and not isinstance(asking, str)
    assert not quiet.trust_remote_code and "trust_remote_code" not in quiet.identity
    assert asking.identity["trust_remote_code"] is True


def test_a_local_ray_lets_nobody_in_without_its_token(local_ray: None) -> None:
    address = ray.get_runtime_context().gcs_address
    told = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "f" * 64, "HOME": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, "-c", f"import ray; ray.init(address='{address}')"],
        env={**told, "RAY_NUM_REDIS_GET_RETRIES": "1"},  # seconds, one try each
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode and "uthenti" in done.stderr


@pytest.mark.slow
def test_the_pages_of_the_ledger_listen_on_the_loopback_only(
    tmp_path: Path, ledger_template: Path
) -> None:
    (tmp_path / ".tabiflow").mkdir()
    (tmp_path / ".tabiflow" / "mlflow.db").write_bytes(ledger_template.read_bytes())
    port = _free_port()
    command = [sys.executable, "-c", "from tabiflow.cli import main; main()", "ui"]
    with subprocess.Popen([*command, "--port", str(port)], cwd=tmp_path) as pages:
        try:
            _wait_until(lambda: _listening(port))
            assert _listening(port) == {"0100007F"}, "127.0.0.1 in the kernel's spelling"
            assert list(tmp_path.rglob("*.db")) == [tmp_path / ".tabiflow" / "mlflow.db"]
        finally:
            pages.terminate()


def test_the_password_of_a_ledger_is_not_in_the_arguments_of_its_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = f"postgresql://ayse:{PLANTED}@127.0.0.1/ledger"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    begun: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *told: begun.append(told))
    CliRunner().invoke(machine.ui, ["--port", "5001"])
    [(_, arguments, environment)] = begun
    assert "5001" in arguments and not any(PLANTED in each for each in arguments)
    assert environment["MLFLOW_BACKEND_STORE_URI"] == address


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _listening(port: int) -> set[str]:
    """Addresses on which somebody listens at this port."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    places = (fields[1].split(":") for fields in lines if fields[3] == "0A")
    return {address for address, where in places if int(where, 16) == port}


def _wait_until(true: Callable[[], Any], seconds: float = 300.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.2)

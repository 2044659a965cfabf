"""Real servers for tests, on loopback, each ended by its process id: MLflow's and PostgreSQL's."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
START_SECONDS = 120


def free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


@contextmanager
def mlflow_server(
    store: str, folder: Path, port: int, workers: int = 1
) -> Iterator[subprocess.Popen[bytes]]:
    """Its artifacts lie below the folder."""
    options = ["--backend-store-uri", store, "--workers", str(workers), "--port", str(port)]
    options += ["--host", HOST, "--artifacts-destination", str(folder / "artifacts")]
    # Of several workers, uvicorn ends those that have not answered it for five seconds.
    options += ["--uvicorn-opts", "--timeout-worker-healthcheck 120"]
    command = [sys.executable, "-m", "mlflow", "server", *options]
    settings = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with _running(command, port, environment=settings) as process:
        yield process


@contextmanager
def postgresql() -> Iterator[str]:
    """The address of an empty database, in a folder that is gone afterwards.

    PostgreSQL refuses to run as root, so that it runs as `nobody` where the tests do.
    """
    port, other = free_port(), {}
    if os.geteuid() == 0:
        other = {"user": "nobody", "group": "nogroup", "extra_groups": []}
    with tempfile.TemporaryDirectory(prefix="tabiflow-pg-") as folder:
        if other:
            shutil.chown(folder, other["user"], other["group"])
        options = ["-U", "tabiflow", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        made = [_program("initdb"), "-D", f"{folder}/data", *options]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, cwd=folder, **other)
        command = [_program("postgres"), "-D", f"{folder}/data", "-k", folder]
        command += ["-h", HOST, "-p", str(port)]
        with _running(command, port, stop=signal.SIGINT, cwd=folder, **other):
            yield f"postgresql+psycopg://tabiflow@{HOST}:{port}/postgres"


def _program(name: str) -> str:
    """Debian keeps the server's programs out of PATH."""
    kept = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name) or (str(kept[-1]) if kept else None)
    assert found, f"{name} is missing: apt-get install postgresql"
    return found


@contextmanager
def _running(
    command: Sequence[str],
    port: int,
    stop: signal.Signals = signal.SIGKILL,
    environment: Mapping[str, str] | None = None,
    **how: Any,
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
        **how,
    )
    try:
        _wait_for(port, process)
        yield process
    finally:
        if stop is signal.SIGKILL:
            os.killpg(process.pid, stop)
        else:
            process.send_signal(stop)
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(5 * START_SECONDS):
        assert process.poll() is None, f"{process.args} ended with {process.returncode}"
        with socket.socket() as tried:
            if tried.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"{process.args} does not start")

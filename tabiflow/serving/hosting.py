"""A generative model behind an address, for as long as a block runs."""

import logging
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ray import serve
from ray.serve.config import HTTPOptions, ProxyLocation
from ray.serve.schema import ApplicationStatus, LoggingConfig

from tabiflow import cluster
from tabiflow.errors import ModelError, UserError
from tabiflow.interrupts import sigterm_as_ctrl_c
from tabiflow.serving.room import Demand, check, shortage
from tabiflow.serving.start import Start, engine_of, located
from tabiflow.spec import Generator
from tabiflow.spec.generator import EngineName

log = logging.getLogger(__name__)

ENGINES: dict[EngineName, str] = {
    "vllm": "tabiflow.serving.vllm",
    "embedded": "tabiflow.serving.embedded",
}
"""Name -> the module whose `application` makes one for Ray Serve."""
LOOK = 0.2
"""Seconds between two looks at whether the replicas are up."""
NEWS = 10.0
"""Seconds between two lines about what they wait for."""
PATIENCE = 1800.0
"""Seconds after which a start that makes no end is given up."""


@dataclass(frozen=True)
class Served:
    """Where a model answers, and what it took."""

    url: str
    """Up to, and without, `/v1`."""
    model: str
    """The name that requests give."""
    engine: EngineName
    dtype: str
    versions: str
    commit: str
    """Of a hub model: what its revision was; empty otherwise."""
    folder: Path
    """Weights and tokenizer."""
    replicas: int
    """At most."""
    seconds: float
    """From the call to the first answer."""


@contextmanager
def served(
    generator: Generator, *, address: str | None = None, port: int | None = None
) -> Iterator[Served]:
    """Starts the replicas, waits until they answer, and takes them down after the block.
    On the main thread: SIGTERM ends it as Ctrl-C does. Meanwhile what is printed goes to standard
    error.

    Raises UserError for resources that no node has, ModelError for what cannot be loaded.
    """
    began = time.monotonic()
    folder, commit = located(generator)
    # Ray prints what happens to its processes.
    with redirect_stdout(sys.stderr), cluster.joined(address), sigterm_as_ctrl_c():
        start = _start(generator, folder)
        demand = Demand(generator.cpus, start.gpus, generator.tensor_parallel)
        check(demand, generator.scale.min)
        engine = engine_of(generator)
        url, name = _deploy(engine, start, port)
        try:
            _wait(name, demand, generator.scale.min, began)
            seconds = time.monotonic() - began
            log.info("%s answers at %s after %.1f s: %s", generator.name, url, seconds, engine)
            yield Served(
                url=url,
                model=generator.name,
                engine=engine,
                dtype=start.dtype,
                versions=import_module(ENGINES[engine]).versions(),
                commit=commit,
                folder=folder,
                replicas=generator.scale.max,
                seconds=seconds,
            )
        finally:
            _take_down(name)


def _start(generator: Generator, folder: Path) -> Start:
    gpus = generator.gpus
    if gpus is None:
        gpus = 1.0 if cluster.gpus() else 0.0
    dtype = generator.dtype or ("bfloat16" if gpus else "float32")
    return Start(generator, folder, dtype, gpus)


def _deploy(engine: EngineName, start: Start, port: int | None) -> tuple[str, str]:
    """The address of an application that is on its way up, and its name."""
    with _own_logs():
        application = import_module(ENGINES[engine]).application(start)
    options = HTTPOptions(host="127.0.0.1", port=port or _free_port())
    quiet = LoggingConfig(log_level="WARNING", enable_access_log=False)
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    serve.start(proxy_location=ProxyLocation.HeadOnly, http_options=options, logging_config=quiet)
    name = f"tabiflow-{start.generator.name}"
    target = serve.RunTarget(application, name=name, route_prefix=f"/{name}", logging_config=quiet)
    serve.run_many(
        [target],
        wait_for_ingress_deployment_creation=False,
        wait_for_applications_running=False,
    )
    return f"http://{options.host}:{options.port}/{name}", name


@contextmanager
def _own_logs() -> Iterator[None]:
    """Ray's application for language models replaces the root logger's handlers with its own, which
    hide no secrets, and prints its settings."""
    root = logging.getLogger()
    handlers, level, disabled = root.handlers[:], root.level, root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(disabled)
        root.handlers[:] = handlers
        root.setLevel(level)


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
    return port


def _wait(name: str, demand: Demand, replicas: int, began: float) -> None:
    told = time.monotonic()
    while True:
        found = serve.status().applications.get(name)
        if found is not None and found.status is ApplicationStatus.RUNNING:
            return
        if found is not None and found.status is ApplicationStatus.DEPLOY_FAILED:
            raise ModelError(f"the model cannot be served: {_reason(found)}")
        if time.monotonic() - began > PATIENCE:
            raise UserError(f"no replica answers after {PATIENCE:.0f} s: {_reason(found)}")
        if time.monotonic() - told > NEWS:
            told = time.monotonic()
            log.info("waiting for the replicas: %s", shortage(demand, replicas) or "they load")
        time.sleep(LOOK)


def _reason(found: Any) -> str:
    """What the last replica that failed has said: the last line of its traceback."""
    messages = [] if found is None else [each.message for each in found.deployments.values()]
    lines: list[str] = [
        line.strip() for text in messages for line in text.splitlines() if line.strip()
    ]
    errors = [line for line in lines if "Error" in line.partition(":")[0]]
    return (errors or lines or ["Ray Serve does not say why"])[-1]


def _take_down(name: str) -> None:
    serve.delete(name)
    if not serve.status().applications:
        serve.shutdown()

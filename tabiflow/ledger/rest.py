"""MLflow's REST API, spoken plainly: what a server is asked for thousands of times.

MLflow's client takes seconds to import and several times as long over each request. What needs more
than a password, a token or a certificate's authority is left to it: see `plain`.
"""

import configparser
import json
import math
import os
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from tabiflow.ledger.records import Run

API = "api/2.0/mlflow"
AT_ONCE = 4
"""Requests under way at the same time: as many as MLflow's server has workers by default."""
PAGE = 1000
PARTS = "0123456789abcdef"
"""First digits of run ids: searches that the server's workers can share."""
BEYOND = (
    "MLFLOW_TRACKING_AWS_SIGV4",
    "MLFLOW_TRACKING_AUTH",
    "MLFLOW_TRACKING_CLIENT_CERT_PATH",
    "MLFLOW_WORKSPACE",
)
"""Settings that only MLflow's client obeys."""
PAUSES = (0.5, 2.0)
"""Seconds before a read is tried again."""
PASSING = ("500", "502", "503", "504", "TEMPORARILY_UNAVAILABLE", "INTERNAL_ERROR")
"""What may be better the next time."""
CREDENTIALS = Path("~/.mlflow/credentials")
LOGIN = ("mlflow_tracking_username", "mlflow_tracking_password")

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Refused(Exception):
    """What the server answers to a request that it does not take."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.error_code = code
        """One of MLflow's words."""


def plain(uri: str) -> bool:
    """Whether the server can be spoken to without MLflow's client."""
    return uri.startswith(("http://", "https://")) and not any(map(os.environ.get, BEYOND))


class Rest:
    """One server."""

    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri)
        place = parts.netloc.rpartition("@")[2]
        self._base = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
        self._headers = {"Content-Type": "application/json", **_authorization(uri)}
        self._context = _context() if parts.scheme == "https" else None
        self._seconds = float(os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT", "120"))

    def ask(self, method: str, call: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Raises Refused, OSError or HTTPException. Never tries again by itself.

        Each request has a connection of its own: over one that is kept, the end of an answer waits
        40 ms, because the workers of MLflow's server leave Nagle's algorithm on.
        """
        place, body = f"{self._base}/{API}/{call}", None
        if method == "GET":
            place += f"?{urlencode(asked)}"
        else:
            body = json.dumps(asked).encode()
        request = Request(place, body, self._headers, method=method)
        try:
            with urlopen(request, timeout=self._seconds, context=self._context) as answer:
                found: dict[str, Any] = json.loads(answer.read())
        except HTTPError as error:
            raise _refusal(error) from error
        return found

    def runs(self, kind: str, sweep: str | None = None) -> list[Run]:
        """Every run of ours of a kind, `trial` or `cell`."""
        names = {key: name for key, name in self._experiments() if sweep in (None, name)}
        if not names:
            return []
        queries = [f"tags.kind = '{kind}' AND attributes.run_id LIKE '{each}%'" for each in PARTS]
        parts = at_once(lambda query: self._search(names, query), queries)
        return [run for part in parts for run in part]

    def curves(self, runs: Iterable[str], metric: str) -> dict[str, list[tuple[int, float]]]:
        asked = list(runs)
        return dict(zip(asked, at_once(lambda run: self._curve(run, metric), asked), strict=True))

    def _curve(self, run: str, metric: str) -> list[tuple[int, float]]:
        asked = {"run_id": run, "metric_key": metric}
        pages = self._pages("GET", "metrics/get-history", asked)
        points = [point for page in pages for point in page.get("metrics", ())]
        return sorted((int(each.get("step", 0)), float(each["value"])) for each in points)

    def _experiments(self) -> Iterator[tuple[str, str]]:
        for page in self._pages("POST", "experiments/search", {"max_results": PAGE}):
            for each in page.get("experiments", ()):
                yield each["experiment_id"], each["name"]

    def _search(self, names: Mapping[str, str], query: str) -> list[Run]:
        asked = {"experiment_ids": list(names), "filter": query, "max_results": PAGE}
        pages = self._pages("POST", "runs/search", asked)
        return [_run(each, names) for page in pages for each in page.get("runs", ())]

    def _pages(self, method: str, call: str, asked: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        token: Mapping[str, str] = {}
        while True:
            page = self._read(method, call, {**asked, **token})
            yield page
            if not page.get("next_page_token"):
                return
            token = {"page_token": page["next_page_token"]}

    def _read(self, method: str, call: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """A server under load ends workers that do not answer it in time, and their connections."""
        for pause in PAUSES:
            try:
                return self.ask(method, call, asked)
            except (OSError, HTTPException, Refused) as error:
                if isinstance(error, Refused) and error.error_code not in PASSING:
                    raise
                time.sleep(pause)
        return self.ask(method, call, asked)


def at_once(task: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """In order. Raises the first error, when all have ended."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(task, items))


def _run(found: Mapping[str, Any], names: Mapping[str, str]) -> Run:
    info, data = found["info"], found["data"]
    return Run(
        run_id=info["run_id"],
        sweep=names[info["experiment_id"]],
        started=_seconds(info.get("start_time")),
        ended=_seconds(info.get("end_time")),
        tags={each["key"]: each.get("value", "") for each in data.get("tags", ())},
        metrics={each["key"]: float(each.get("value", 0)) for each in data.get("metrics", ())},
    )


def _seconds(milliseconds: int | str | None) -> float:
    return math.nan if milliseconds is None else int(milliseconds) / 1000


def _refusal(error: HTTPError) -> Exception:
    """Of a proxy that speaks no JSON, its status."""
    try:
        told = json.loads(error.read())
        return Refused(str(told["error_code"]), str(told.get("message", "")))
    except (ValueError, KeyError, TypeError):
        return Refused(str(error.code), str(error.reason))


def _authorization(uri: str) -> dict[str, str]:
    """From the address, the environment or `mlflow login`'s file, as MLflow's client takes it."""
    parts = urlsplit(uri)
    name, password = _login()
    if parts.username is not None:
        name, password = unquote(parts.username), unquote(parts.password or "")
    if name and password:
        return {"Authorization": f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"}
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _login() -> tuple[str, str]:
    file = configparser.ConfigParser(interpolation=None)
    file.read(CREDENTIALS.expanduser())
    name, password = (
        os.environ.get(each.upper(), file.get("mlflow", each, fallback="")) for each in LOGIN
    )
    return name, password


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH"))
    if os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in ("true", "1"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context

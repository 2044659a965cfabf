"""Whether an address can be used as a ledger, and what to tell a person when it cannot."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from tabiflow.errors import LedgerError, TabiflowError
from tabiflow.ledger import redacted, sqlite_file

REACH_SECONDS = 5.0
PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}


def away(uri: str) -> str | None:
    """Why the server behind an address cannot be reached; None when it can, or there is none.

    In seconds, whatever MLflow's own retries and time-outs are set to.
    """
    parts = urlsplit(uri)
    if parts.hostname is None or sqlite_file(uri) is not None:
        return None
    scheme = parts.scheme.partition("+")[0]
    port = parts.port or PORTS.get(scheme)
    if port is None:
        return None
    try:
        if scheme not in ("http", "https"):
            socket.create_connection((parts.hostname, port), REACH_SECONDS).close()
            return None
        place = f"{scheme}://{parts.hostname}:{port}{parts.path.rstrip('/')}/health"
        urlopen(Request(place), timeout=REACH_SECONDS).close()
    except HTTPError as error:
        return f"it answers {error.code}" if error.code >= 500 else None
    except URLError as error:
        # Whether a certificate is trusted, MLflow is told by settings of its own.
        return None if isinstance(error.reason, ssl.SSLError) else str(error.reason)
    except (OSError, HTTPException) as error:
        return str(error) or type(error).__name__
    return None


def reach(uri: str) -> None:
    """Raises ConnectionError at once, where MLflow would try for a while."""
    reason = away(uri)
    if reason is not None:
        raise ConnectionError(reason)


def must_answer(uri: str) -> None:
    """Raises LedgerError, for people."""
    reason = away(uri)
    if reason is not None:
        raise LedgerError(
            f"the MLflow server cannot be reached: {redacted(reason)}",
            where=redacted(uri),
            hint="start it, or correct MLFLOW_TRACKING_URI",
        )


@contextmanager
def explained(uri: str) -> Iterator[None]:
    """What MLflow says against a ledger becomes one line about it."""
    try:
        yield
    except TabiflowError:
        raise
    except Exception as error:
        raise LedgerError(
            f"MLflow cannot use this ledger: {one_line(error)}",
            where=redacted(uri),
            hint=_way_out(uri, error),
        ) from error


def _way_out(uri: str, error: Exception) -> str:
    scheme = urlsplit(uri).scheme.partition("+")[0]
    if scheme.startswith("http"):
        return "look at the server's log"
    if isinstance(error, OSError) or scheme not in (*PORTS, "sqlite"):
        return "name another place in MLFLOW_TRACKING_URI: sqlite:///<file>, or a server's address"
    return f"if another version of MLflow made it, `mlflow db upgrade {redacted(uri)}` helps"


def one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return redacted(lines[0]) if lines else type(error).__name__

"""A SQLite ledger that is not there yet: it appears with all its tables or not at all.

MLflow makes them one by one, which takes seconds; whoever read meanwhile would find some.
"""

import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from sqlalchemy.exc import SQLAlchemyError

_one_at_a_time = Lock()


def create(file: Path) -> None:
    """Makes an empty ledger. Where that cannot be done (no hard links, no room), or was done
    meanwhile, MLflow goes on with what it finds and says itself what is wrong."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    with suppress(OSError, MlflowException, SQLAlchemyError):
        content = tables()
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            beside.write_bytes(content)
            os.link(beside, file)
        finally:
            beside.unlink(missing_ok=True)


def tables() -> bytes:
    """A database without runs. Made once a process, beside whatever else takes time."""
    with _one_at_a_time:
        return _made()


@cache
def _made() -> bytes:
    with TemporaryDirectory(prefix="tabiflow-ledger-") as folder:
        file = Path(folder) / "mlflow.db"
        MlflowClient(f"sqlite:///{file}").search_experiments(max_results=1)
        return file.read_bytes()

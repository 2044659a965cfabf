"""What tests of several modules share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """One Ray of two CPUs for all tests: starting it takes longer than most of them."""
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=150 * 1024**2,
        log_to_driver=False,
        logging_level="warning",
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def ledger_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty SQLite ledger to copy: MLflow takes seconds to make its tables."""
    from tabiflow.ledger.tracking import Tracking  # MLflow takes seconds to import, too.

    file = tmp_path_factory.mktemp("ledger") / "mlflow.db"
    Tracking(f"sqlite:///{file}")
    return file

"""What tests of several modules share."""

from collections.abc import Iterator

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

"""What the driver does when Ray takes everything from it at once."""

from pathlib import Path

from ray.exceptions import OutOfMemoryError
from studies import planned
from test_engine import Memory

from tabiflow.driver import Driver
from tabiflow.search import Queue
from tabiflow.spec import Limits
from tabiflow.work import missing


def test_attempts_that_went_down_together_are_due_again_and_keep_no_place(tmp_path: Path) -> None:
    plan, recorder = planned(tmp_path), Memory()
    queue = Queue(missing(plan), {}, Limits(retries=1))
    driver = Driver(queue, recorder)
    recorder.cell(plan.cells[0].cell, "", "")
    out = driver.attempts
    queue.trained(plan.cells[0].cell)
    for number in range(2):
        attempt = queue.next()
        assert attempt is not None
        out[str(number)] = attempt
    driver.lost(OutOfMemoryError("memory has ended"))

    assert out == {} and driver.attempts is out
    assert queue.next() is not None and queue.next() is not None

"""What an attempt occupies, and what it is tried in after it ran out of memory."""

from pathlib import Path
from typing import Any

import pytest
from studies import planned

from tabiflow.assignments import Assignments
from tabiflow.resolution import Resolution
from tabiflow.runners import Job
from tabiflow.search import Alone, Attempt
from tabiflow.work import missing

pytestmark = pytest.mark.usefixtures("local_ray")


def _jobs(folder: Path, **changes: Any) -> tuple[Assignments, Attempt]:
    plan = planned(folder, **changes)
    work = missing(plan)[0]
    jobs = Assignments(plan.sweep, Resolution(), None, has_gpus=False)
    return jobs, Attempt(work.trials[0], 1, work)


@pytest.mark.parametrize(
    ("needs", "alone", "killed", "roomier"),
    [
        ({"gpus": 0.25}, None, False, "gpu"),
        ({"gpus": 0.25}, "gpu", False, None),
        ({"gpus": 1}, None, False, None),
        ({}, None, False, "node"),
        ({}, None, True, "node"),
        ({}, "node", True, None),
        ({"cpus": 2}, None, True, None),
    ],
)
def test_what_ran_out_of_memory_beside_others_is_tried_alone(
    needs: dict[str, float], alone: Alone | None, killed: bool, roomier: str, tmp_path: Path
) -> None:
    jobs, first = _jobs(tmp_path, **needs)
    attempt = Attempt(first.trial, 1, first.work, alone)

    assert jobs.roomier(attempt, killed=killed) == roomier


@pytest.mark.parametrize(
    ("needs", "alone", "occupied"),
    [
        ({"gpus": 0.25}, None, (1, 0.25)),
        ({"gpus": 0.25}, "gpu", (1, 1)),
        ({}, "node", (2, 0)),
    ],
)
def test_an_attempt_alone_occupies_what_others_would_share_and_computes_the_same(
    needs: dict[str, float], alone: Alone, occupied: tuple[float, float], tmp_path: Path
) -> None:
    jobs, first = _jobs(tmp_path, **needs)
    config = jobs.config(Attempt(first.trial, 1, first.work, alone))

    assert (config["cpus"], config["gpus"]) == occupied
    assert Job.from_json(config["job"]).cpus == 1

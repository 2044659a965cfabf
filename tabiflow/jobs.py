"""Verbs as jobs of the Ray cluster that this machine is the head of: they outlive whoever asked.

A job's standard output is kept in a file, for the verb's answer; its standard error is Ray's log of
the job. Knows nothing of what a verb does.
"""

import asyncio
import logging
import shlex
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ray.job_submission import JobDetails, JobStatus, JobSubmissionClient

from tabiflow import ledger
from tabiflow.errors import UserError

SWEEP = "tabiflow-sweep"
VERB = "tabiflow-verb"
"""Metadata of a job."""
PATIENCE = 60.0
"""Seconds that a job server may be away."""


@dataclass(frozen=True)
class Job:
    id: str
    verb: str

    @property
    def answer(self) -> Path:
        """Its standard output."""
        return ledger.home() / "jobs" / self.id


def running(sweep: str) -> Job | None:
    """The job that works on the sweep."""
    for each in _client().list_jobs():
        metadata = each.metadata or {}
        if metadata.get(SWEEP) == sweep and not each.status.is_terminal() and each.submission_id:
            return Job(each.submission_id, metadata.get(VERB, ""))
    return None


def start(sweep: str, arguments: Sequence[str]) -> Job:
    """Runs `tabiflow <arguments>` from this folder. Raises UserError while another verb runs."""
    verb = arguments[0]
    if (before := running(sweep)) is not None:
        if before.verb == verb:
            return before
        raise UserError(
            f"`{before.verb}` of sweep {sweep} runs as job {before.id}",
            hint=f"wait for it, or `ray job stop {before.id}`",
        )
    job = Job(f"{sweep}-{verb}-{datetime.now(UTC):%Y%m%d-%H%M%S}", verb)
    job.answer.parent.mkdir(parents=True, exist_ok=True)
    command = f"cd {shlex.quote(str(Path.cwd()))} && exec tabiflow {shlex.join(arguments)}"
    _client().submit_job(
        entrypoint=f"{command} > {shlex.quote(str(job.answer))}",
        submission_id=job.id,
        metadata={SWEEP: sweep, VERB: verb},
    )
    return job


def follow(id: str, tell: Callable[[str], None]) -> int:
    """Tells what the job says until it ends; its exit code, or 1 where it never had one."""
    asyncio.run(_follow(id, tell))
    details = _ended(id)
    if details.driver_exit_code is not None:
        return int(details.driver_exit_code)
    if details.status is not JobStatus.SUCCEEDED:
        tell(f"job {id}: {details.status}: {details.message or 'no reason given'}")
    return int(details.status is not JobStatus.SUCCEEDED)


async def _follow(id: str, tell: Callable[[str], None]) -> None:
    # Ray tells how the connection ended, which is no word of the job's.
    logging.getLogger("ray.dashboard.modules.job.sdk").setLevel(logging.WARNING)
    lines: AsyncIterator[str] = _client().tail_job_logs(id)
    async for chunk in lines:
        for line in chunk.splitlines():
            tell(line)


def _ended(id: str) -> JobDetails:
    """Ray closes the log a moment before it knows the end."""
    client = _client()
    for _ in range(int(PATIENCE)):
        details = client.get_job_info(id)
        if details.status.is_terminal():
            break
        time.sleep(1.0)
    return details


def _client() -> JobSubmissionClient:
    try:
        return JobSubmissionClient()
    except (ConnectionError, RuntimeError) as error:
        told = str(error).strip().splitlines()[0]
        raise UserError(f"Ray's job server does not answer: {told}", hint="`ray status`") from error

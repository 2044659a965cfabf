import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tabiflow.errors import LeaseHeld
from tabiflow.ledger import lease
from tabiflow.ledger.lease import Holder, Lease

ELSEWHERE = replace(Holder.me(), driver="other", host="another-host", user="ayşe")


class Memory:
    """A tag that nobody else's ledger holds."""

    def __init__(self, holder: Holder | None = None) -> None:
        self.value = "" if holder is None else holder.to_json()

    def read(self) -> str:
        return self.value

    def write(self, value: str) -> None:
        self.value = value


@pytest.fixture(autouse=True)
def _hurried(monkeypatch):
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(lease, "READ_BACK_SECONDS", 0.05)


def _gone() -> Holder:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return replace(ELSEWHERE, host=Holder.me().host, pid=process.pid, born="1")


def test_a_free_sweep_is_taken_and_freed():
    tag = Memory()
    held = Lease("a-sweep", tag, None)
    held.take()
    assert Holder.parse(tag.value) is not None
    held.release()
    assert tag.value == ""


def test_a_live_driver_keeps_its_sweep_and_is_named():
    alive = replace(ELSEWHERE, heartbeat=time.time())
    here = Lease("a-sweep", Memory(alive), None)
    with pytest.raises(
        LeaseHeld, match=r"`a-sweep` is being run by ayşe on another-host \(process"
    ):
        here.take()


def test_a_dead_process_of_this_host_frees_its_sweep_at_once():
    tag = Memory(_gone())
    held = Lease("a-sweep", tag, None)
    held.take()
    assert held.taken_from is not None
    held.release()


def test_a_reused_pid_is_not_taken_for_the_dead_driver():
    assert not replace(Holder.me(), born="1").alive
    assert Holder.me().alive


def test_a_silent_driver_elsewhere_loses_its_sweep():
    silent = replace(ELSEWHERE, heartbeat=time.time() - 2 * lease.EXPIRES_SECONDS)
    held = Lease("a-sweep", Memory(silent), None)
    held.take()
    held.release()


class Beating(Memory):
    """Of a host whose clock is an hour late."""

    def read(self) -> str:
        behind = time.time() - 3600
        return replace(ELSEWHERE, heartbeat=behind).to_json()


def test_a_late_clock_is_not_taken_for_silence():
    with pytest.raises(LeaseHeld):
        Lease("a-sweep", Beating(), None).take()


def test_a_heartbeat_renews_the_lease():
    tag = Memory()
    held = Lease("a-sweep", tag, None)
    held.take()
    first = Holder.parse(tag.value)
    time.sleep(0.3)
    assert Holder.parse(tag.value).heartbeat > first.heartbeat
    held.release()


def test_a_driver_that_was_taken_over_learns_of_it():
    tag = Memory()
    held = Lease("a-sweep", tag, None)
    held.take()
    tag.write(ELSEWHERE.to_json())
    assert held.lost.wait(5)
    held.release()
    assert tag.value == ELSEWHERE.to_json()


def test_an_unreadable_lease_is_nobodys():
    held = Lease("a-sweep", Memory(), None)
    held.take()
    held.release()
    assert Holder.parse("{not json") is None


HOLD_LOCK = """
import fcntl, os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(descriptor, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_beside_a_file_the_operating_system_settles_who_was_first(tmp_path: Path):
    lock = tmp_path / "a-sweep.lock"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(lock)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    with pytest.raises(LeaseHeld, match="another process on this machine"):
        Lease("a-sweep", Memory(), lock).take()
    process.kill()
    process.communicate()
    after = Lease("a-sweep", Memory(), lock)
    after.take()
    after.release()


def test_the_start_of_a_process_that_is_not_there_is_unknown():
    assert lease.born(os.getpid()) and not lease.born(2**22 + 1)

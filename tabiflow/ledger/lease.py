"""Who runs a sweep: one driver at a time, by a lease in the sweep's experiment.

The lease is a tag that its holder renews. On the holder's own host a dead process frees it at once;
elsewhere it runs out when no heartbeat has come for a minute. Beside a SQLite file a lock of the
operating system settles who was first; on a server the last writer is, seen by reading back.
"""

import fcntl
import getpass
import json
import logging
import os
import socket
import threading
import time
import uuid
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from tabiflow.errors import LeaseHeld

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 10.0
EXPIRES_SECONDS = 60.0
READ_BACK_SECONDS = 1.0
"""On a server: how long two drivers that start together have to see each other's lease."""


class Tag(Protocol):
    """Where the lease is kept. Both raise when the ledger is away."""

    def read(self) -> str: ...

    def write(self, value: str) -> None: ...


@dataclass(frozen=True)
class Holder:
    driver: str
    host: str
    pid: int
    born: str
    """The process's start, so that a reused pid is not taken for it."""
    user: str
    since: float
    heartbeat: float

    @classmethod
    def me(cls) -> "Holder":
        now, pid = time.time(), os.getpid()
        host = socket.gethostname()
        return cls(uuid.uuid4().hex[:12], host, pid, born(pid), _user(), now, now)

    @classmethod
    def parse(cls, text: str) -> "Holder | None":
        """None for what nobody holds, or nobody can read."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def alive(self) -> bool:
        if self.host == socket.gethostname():
            return bool(self.born) and self.born == born(self.pid)
        return time.time() - self.heartbeat < EXPIRES_SECONDS

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return f"{self.user} on {self.host} (process {self.pid}, since {since})"


class Lease:
    """Held from `take` to `release`; `lost` once another driver has it."""

    def __init__(self, sweep: str, tag: Tag, lock: Path | None) -> None:
        """`lock` is a file beside a SQLite ledger; None on a server."""
        self.me = Holder.me()
        self.taken_from: Holder | None = None
        """The dead driver before this one, if it left its lease behind."""
        self.lost = threading.Event()
        self._sweep, self._tag, self._lock = sweep, tag, lock
        self._descriptor: int | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)

    def take(self) -> None:
        """Raises LeaseHeld with who has it."""
        self._take_lock()
        try:
            self._take_tag()
        except BaseException:
            self._free_lock()
            raise
        self._thread.start()

    def release(self) -> None:
        """Raises what the ledger raises when it is away: then the lease runs out by itself."""
        self._stop.set()
        self._thread.join(HEARTBEAT_SECONDS)
        try:
            if not self.lost.is_set():
                self._tag.write("")
        finally:
            self._free_lock()

    def _take_tag(self) -> None:
        self._refuse_if_alive(self._holder())
        self._tag.write(self.me.to_json())
        if self._lock is None:
            time.sleep(READ_BACK_SECONDS)
            self._refuse_if_alive(self._holder())

    def _refuse_if_alive(self, holder: Holder | None) -> None:
        if holder is None or holder.driver == self.me.driver:
            return
        if holder.alive or self._still_beating(holder):
            raise _held(self._sweep, str(holder))
        log.info("the lease of %s is taken over from %s", self._sweep, holder)
        self.taken_from = holder

    def _still_beating(self, holder: Holder) -> bool:
        """Clocks of two hosts may differ by more than the lease lasts; a heartbeat tells."""
        if self._lock is not None or holder.host == self.me.host:
            return False
        time.sleep(1.5 * HEARTBEAT_SECONDS)
        now = self._holder()
        return now is not None and now != holder

    def _holder(self) -> Holder | None:
        return Holder.parse(self._tag.read())

    def _beat(self) -> None:
        wait = HEARTBEAT_SECONDS
        while not self._stop.wait(wait):
            try:
                self._renew()
                wait = HEARTBEAT_SECONDS
            except Exception as error:
                # The writer says that the ledger is away; the lease must be renewed soon after.
                log.debug("no heartbeat: %s", error)
                wait = HEARTBEAT_SECONDS / 10

    def _renew(self) -> None:
        holder = self._holder()
        if holder is not None and holder.driver != self.me.driver:
            log.error("%s was taken over by %s", self._sweep, holder)
            self.lost.set()
            self._stop.set()
            return
        self._tag.write(replace(self.me, heartbeat=time.time()).to_json())

    def _take_lock(self) -> None:
        if self._lock is None:
            return
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            # Unlike flock, not passed on to forked children, which may outlive the driver.
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._free_lock()
            holder = self._holder()
            raise _held(self._sweep, str(holder or "another process on this machine")) from error

    def _free_lock(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _held(sweep: str, holder: str) -> LeaseHeld:
    return LeaseHeld(
        f"sweep `{sweep}` is being run by {holder}",
        hint=f"wait, or stop it; one that died elsewhere is given {EXPIRES_SECONDS:.0f} seconds",
    )


def born(pid: int) -> str:
    """When a process of this host started; empty when there is none."""
    try:
        # The 22nd field; the 2nd, a name in brackets, may hold blanks.
        stat = Path(f"/proc/{pid}/stat").read_text()
        fields = stat.rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except OSError:
        return "running" if not Path("/proc/self").exists() and _exists(pid) else ""


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())

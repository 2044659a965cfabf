"""Events on their way from the driver to the writer: logged, queued, applied in order.

The driver's thread only appends; a thread of this module's own brings MLflow up to date, through
outages too.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from tabiflow.ledger.reach import one_line
from tabiflow.ledger.wal import Event, WriteAheadLog

log = logging.getLogger(__name__)

LINGER_SECONDS = 1.0
"""How long events gather, so that a run gets its epochs in few calls."""
BATCH = 2000
BACK_OFF_SECONDS = (1.0, 2.0, 5.0)
"""Between attempts while the ledger is away; the last one repeats."""


class Applies(Protocol):
    def apply(self, events: Sequence[Event], *, again: bool) -> None:
        """`again`: some of it may stand in MLflow already. Raises whatever MLflow raises."""


class Feed:
    """Takes events from any thread."""

    def __init__(self, wal: WriteAheadLog, writer: Applies, stop: threading.Event) -> None:
        self._wal, self._writer, self._stop = wal, writer, stop
        self._changed = threading.Condition()
        self._waiting: deque[Event] = deque()
        self._told = self._applied = 0
        self._urgent = self._closing = False
        self._failing_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def put(self, event: Event) -> None:
        with self._changed:
            self._wal.append(event)
            self._waiting.append(event)
            self._told += 1
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        with self._changed:
            told, self._urgent = self._told, True
            self._changed.notify_all()
            deadline = time.monotonic() + timeout
            while self._applied < told and self._thread.is_alive():
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(min(left, 1.0))
            return self._applied >= told

    @property
    def failing(self) -> bool:
        """Whether MLflow has not taken what it was given last."""
        return self._failing_since is not None

    def close(self, patience: float) -> bool:
        """True when everything was applied; False when nothing could be for `patience` seconds."""
        began = time.monotonic()
        while not (done := self.flush(1.0)) and self._thread.is_alive():
            failing = self._failing_since
            if failing is not None and time.monotonic() - max(failing, began) > patience:
                break
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if done:
            self._thread.join()
            self._wal.close()
        return done

    def _run(self) -> None:
        while batch := self._next():
            if not self._apply(batch):
                return
            with self._changed:
                self._applied += len(batch)
                if not self._waiting:
                    self._wal.clear()
                self._changed.notify_all()

    def _next(self) -> Sequence[Event]:
        """What has gathered; empty when nothing more will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            self._changed.wait_for(lambda: self._urgent or self._closing, LINGER_SECONDS)
            size = min(BATCH, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(size)]
            self._urgent = self._urgent and bool(self._waiting)
            return batch

    def _apply(self, batch: Sequence[Event]) -> bool:
        """Tries until it succeeds; False when the sweep is no longer this driver's."""
        failures = 0
        while not self._stop.is_set():
            try:
                self._writer.apply(batch, again=failures > 0)
            except Exception as error:
                if failures == 0:
                    self._failing_since = time.monotonic()
                    log.warning("MLflow did not take it, nothing is lost: %s", one_line(error))
                self._wal.sync()
                pause = BACK_OFF_SECONDS[min(failures, len(BACK_OFF_SECONDS) - 1)]
                failures += 1
                self._stop.wait(pause)
            else:
                if failures:
                    self._failing_since = None
                    log.warning("MLflow has taken it")
                return True
        return False

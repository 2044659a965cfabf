"""SIGTERM as if it were Ctrl-C, for as long as a block runs on the main thread.

Inside a block that has started Ray: its own handler would end the process on the spot.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        ctrl_c = signal.getsignal(signal.SIGINT)
        # A script's shell starts what it does not wait for with SIGINT ignored.
        (ctrl_c if callable(ctrl_c) else signal.default_int_handler)(signal.SIGINT, frame)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

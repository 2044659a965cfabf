"""SIGTERM ends a block as Ctrl-C does, whoever started the process."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tabiflow.interrupts import sigterm_as_ctrl_c


@pytest.fixture
def restored() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("ctrl_c", [signal.default_int_handler, signal.SIG_IGN, signal.SIG_DFL])
def test_sigterm_interrupts_also_where_ctrl_c_is_ignored(restored: None, ctrl_c: Any) -> None:
    signal.signal(signal.SIGINT, ctrl_c)
    with pytest.raises(KeyboardInterrupt), sigterm_as_ctrl_c():
        signal.raise_signal(signal.SIGTERM)


def test_sigterm_does_what_the_block_made_of_ctrl_c(restored: None) -> None:
    seen: list[int] = []
    with sigterm_as_ctrl_c():
        signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
        signal.raise_signal(signal.SIGTERM)
    assert seen == [signal.SIGINT]

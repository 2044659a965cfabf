"""How many requests may be on their way to a server at the same time.

What a server takes shows only in how soon it answers: a GPU batches a hundred rows, a laptop is
still busy with the first when the last one's time is up, and a request that is given up is
computed all the same.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

FEW = 4
"""Of a server that has not answered yet."""
SOON = 0.25
"""Of the time that an answer has."""


class Slots:
    """A few at first, one more with each answer that comes soon, half when one does not come."""

    def __init__(self, most: int, timeout: float) -> None:
        self._most, self._soon = most, SOON * timeout
        self._now, self._taken = min(FEW, most), 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: self._taken < self._now)
            self._taken += 1
        try:
            yield
        finally:
            async with self._changed:
                self._taken -= 1
                self._changed.notify_all()

    def answered(self, seconds: float) -> None:
        if seconds <= self._soon:
            self._now = min(self._most, self._now + 1)

    def late(self) -> None:
        self._now = max(1, self._now // 2)

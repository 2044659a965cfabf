"""As many requests at a time as the server answers soon."""

import asyncio

from completions import OneAtATime, running

from tabiflow.endpoint import Endpoint, Patience
from tabiflow.endpoint.slots import FEW, Slots


async def _at_a_time(slots: Slots, wanted: int = 50) -> int:
    """How many of so many get in."""
    inside, over = [], asyncio.Event()

    async def one(number: int) -> None:
        async with slots.one():
            inside.append(number)
            await over.wait()

    tasks = [asyncio.create_task(one(number)) for number in range(wanted)]
    for _ in range(5):
        await asyncio.sleep(0)
    found = len(inside)
    over.set()
    await asyncio.gather(*tasks)
    return found


def test_a_few_at_first_and_more_with_each_answer_that_comes_soon() -> None:
    async def told() -> list[int]:
        slots = Slots(20, timeout=100)
        found = [await _at_a_time(slots)]
        for answers in ((1, 25, 26, 99), (1,) * 100):
            for seconds in answers:
                slots.answered(seconds)
            found.append(await _at_a_time(slots))
        return found

    assert asyncio.run(told()) == [FEW, FEW + 2, 20]


def test_half_as_many_when_an_answer_does_not_come_but_never_none() -> None:
    async def told() -> list[int]:
        slots = Slots(20, timeout=100)
        for _ in range(16):
            slots.answered(1)
        found = []
        for late in (1, 10):
            for _ in range(late):
                slots.late()
            found.append(await _at_a_time(slots))
        return found

    assert asyncio.run(told()) == [10, 1]


def test_never_more_than_asked_for() -> None:
    async def told() -> int:
        return await _at_a_time(Slots(2, timeout=100))

    assert asyncio.run(told()) == 2


def test_a_server_with_more_requests_than_it_can_answer_in_time_repeats_none() -> None:
    """All at once, the last answers would come after 64 x 0.02 s."""

    async def ask() -> int:
        patience = Patience(timeout=1.0)
        with running(OneAtATime()) as server:
            async with Endpoint(server.url, concurrency=64, patience=patience) as endpoint:
                await endpoint.models()
                prompts = [[256, 1, number] for number in range(150)]
                await asyncio.gather(*(endpoint.complete(p, max_tokens=1) for p in prompts))
                return endpoint.traffic.retries

    assert asyncio.run(ask()) == 0

import asyncio
from typing import Any

import pytest
from completions import (
    CutsLongPrompts,
    CutsTextWithoutBos,
    DropsTheLast,
    Fails,
    Hangs,
    HasOneBeam,
    IgnoresEcho,
    ListsBeside,
    PutsABosBefore,
    Server,
    TellsItsFavourites,
    WorstBeamFirst,
    ids_of,
    running,
)

from tabiflow.endpoint import Endpoint, Patience
from tabiflow.endpoint.preflight import Abilities, Needs, Refused, preflight
from tabiflow.errors import UserError

NEEDS = Needs(beams=5, dtype="float32")
QUICK = Patience(timeout=5, total=20, pause=0.01)


class Bytes:
    async def ids(self, texts: list[str]) -> list[tuple[int, ...]]:
        return [tuple(ids_of(text)) for text in texts]


def looked_at(server: Server, patience: Patience = QUICK) -> Abilities:
    async def look() -> Abilities:
        async with Endpoint(server.url, patience=patience) as endpoint:
            return await preflight(endpoint, Bytes(), NEEDS)

    with running(server):
        return asyncio.run(look())


def test_a_server_that_keeps_its_promises_passes_and_says_what_else_it_can() -> None:
    found = looked_at(Server())
    assert found == Abilities(
        max_length=4096,
        lists=True,
        named_tokens=True,
        token_ids=True,
        stops=True,
        most_logprobs=20,
    )


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (IgnoresEcho(), "ignores `echo`: 1 log-probability came for a prompt of"),
        (DropsTheLast(), "drops the last token"),
        (TellsItsFavourites(), "echoes log-probabilities of other tokens"),
        (PutsABosBefore(), "it has another rule for BOS"),
        (CutsTextWithoutBos(), "has another rule for BOS, the token before a text: none, ours"),
        (HasOneBeam(), "has no beam search: 1 of 5 texts came"),
        (WorstBeamFirst(), "does not give the best beam first"),
        (CutsLongPrompts(), "cuts prompts that are longer than 4096 tokens"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Server) else "",
)
def test_a_server_that_would_spoil_scores_is_refused_with_the_reason(
    server: Server, reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        looked_at(server)


@pytest.mark.parametrize(
    ("metadata", "length"),
    [
        ({"model_id": "arithmetic", "max_request_context_length": 4096}, 4096),
        ({"max_request_context_length": None}, None),
        ("4096", None),
    ],
)
def test_the_length_is_known_where_ray_serve_tells_it(metadata: Any, length: int | None) -> None:
    assert looked_at(ListsBeside(metadata=metadata)).max_length == length


@pytest.mark.parametrize("server", [Fails(), Hangs()], ids=["fails", "hangs"])
def test_a_server_that_fails_or_hangs_now_and_then_passes(server: Server) -> None:
    found = looked_at(server, Patience(timeout=0.5, total=20, pause=0.01))
    assert found.lists and found.named_tokens
    assert server.requests > 10


def test_nobody_at_an_address_is_said_within_seconds() -> None:
    async def look() -> None:
        async with Endpoint("http://127.0.0.1:9") as endpoint:
            await preflight(endpoint, Bytes(), NEEDS)

    with pytest.raises(UserError, match=r"no server: .*connection lost"):
        asyncio.run(look())


def test_a_model_that_the_server_has_not_is_named_with_those_that_it_has() -> None:
    async def look(url: str) -> None:
        async with Endpoint(url, "another") as endpoint:
            await preflight(endpoint, Bytes(), NEEDS)

    with running(Server()) as server, pytest.raises(Refused, match="`another`; it has arithmetic"):
        asyncio.run(look(server.url))

"""A server that completes text, as a client sees it: OpenAI's completions over HTTP.

Requests at a time are bounded, and what may pass (time-outs, 429, 5xx, a lost connection) is tried
again. Whether a server does what the protocol says is found out by `preflight`; every answer's
shape is checked here even so.
"""

import asyncio
import json
import logging
import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp

from tabiflow.endpoint.slots import Slots
from tabiflow.errors import EnvironmentFault, ModelError, UserError

log = logging.getLogger(__name__)

Ids = Sequence[int]
BUSY = frozenset({408, 425, 429})
"""Answers that, like all from 500 on, ask to try again."""
LONGEST_PAUSE = 20.0


class Rejected(ModelError):
    """The server refuses a request that would be refused again."""


class Misanswered(ModelError):
    """An answer has not the shape that the request asks for."""


@dataclass(frozen=True)
class Patience:
    """When a request is given up."""

    timeout: float = 300.0
    """Seconds for one try."""
    total: float = 900.0
    """Seconds after the first failure in a row; a replica takes minutes to start."""
    pause: float = 0.5
    """Seconds before the second try; doubled before each further one."""


FIRST = Patience(total=2.0, pause=0.2)
"""For a server that nobody has heard of yet."""


@dataclass
class Traffic:
    """What was asked so far."""

    requests: int = 0
    retries: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    """Of retries."""


@dataclass(frozen=True)
class Choice:
    """One text of an answer."""

    text: str
    tokens: tuple[str, ...]
    """As the server names them; empty without log-probabilities."""
    logprobs: tuple[float | None, ...]
    top: tuple[Mapping[str, float], ...]
    ids: tuple[int, ...] | None
    """Of the tokens written; None from a server that does not tell."""


@dataclass(frozen=True)
class Answer:
    choices: tuple[Choice, ...]
    prompt_tokens: int | None
    """Of all prompts together; None from a server that does not count."""


class Endpoint:
    """An open connection to one server. Give `url` up to, and without, `/v1`."""

    def __init__(
        self,
        url: str,
        model: str = "",
        *,
        concurrency: int = 16,
        patience: Patience | None = None,
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1").removesuffix("/v1/completions")
        self.model = model
        self.traffic = Traffic()
        self._patience = patience or Patience()
        self._slots = Slots(concurrency, self._patience.timeout)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=self._patience.timeout)
        connector = aiohttp.TCPConnector(limit=0)
        session = aiohttp.ClientSession(timeout=timeout, connector=connector)
        self._session = await self._stack.enter_async_context(session)
        return self

    async def __aexit__(self, *about: object) -> None:
        await self._stack.aclose()

    async def models(self) -> list[dict[str, Any]]:
        """What `/v1/models` lists. Raises UserError where nobody answers: the first thing asked."""
        try:
            found = await self._persistent("GET", "/v1/models", None, FIRST)
        except EnvironmentFault as error:
            raise UserError(f"no server: {error.message}") from error
        rows = found.get("data")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise Misanswered(f"{self.url}/v1/models lists no models")
        return rows

    async def tokenize(self, text: str) -> tuple[int, ...] | None:
        """The server's own ids of a text; None from a server that has no such page."""
        body = {"model": self.model, "prompt": text}
        try:
            found = await self._asked("POST", "/tokenize", body)
        except Rejected:
            return None
        ids = found.get("tokens")
        if not isinstance(ids, list) or not all(isinstance(id, int) for id in ids):
            return None
        return tuple(ids)

    async def complete(self, prompt: str | Ids | Sequence[Ids], **wishes: Any) -> Answer:
        """The choices in their order: for several prompts, all of the first come first."""
        body = {"model": self.model, "prompt": prompt, "temperature": 0, **wishes}
        return _answer(await self._asked("POST", "/v1/completions", body))

    async def _asked(self, method: str, path: str, body: Any) -> dict[str, Any]:
        async with self._slots.one():
            return await self._persistent(method, path, body, self._patience)

    async def _persistent(
        self, method: str, path: str, body: Any, patience: Patience
    ) -> dict[str, Any]:
        clock = asyncio.get_running_loop().time
        failing: float | None = None
        pause = patience.pause
        while True:
            self.traffic.requests += 1
            began = clock()
            try:
                found = await self._once(method, path, body)
                self._slots.answered(clock() - began)
                return found
            except _Again as again:
                if again.late:
                    self._slots.late()
                failing = clock() if failing is None else failing
                if clock() - failing > patience.total:
                    told = f"{self.url} keeps failing: {again.cause}"
                    raise EnvironmentFault(told) from again
                self._note(again.cause)
                # Spread, so that all requests that failed together do not come back together.
                await asyncio.sleep(max(pause, again.after) * random.uniform(0.5, 1.5))
                pause = min(2 * pause, LONGEST_PAUSE)

    def _note(self, cause: str) -> None:
        self.traffic.retries += 1
        times = self.traffic.causes.get(cause, 0)
        self.traffic.causes[cause] = times + 1
        if not times:
            log.warning("%s: %s; tried again", self.url, cause)

    async def _once(self, method: str, path: str, body: Any) -> dict[str, Any]:
        """Raises _Again for what may pass."""
        try:
            async with self._session.request(method, self.url + path, json=body) as response:
                text = await response.text()
                if response.status >= 500 or response.status in BUSY:
                    after = _seconds(response.headers.get("Retry-After", ""))
                    raise _Again(f"answers {response.status}", after)
                if response.status != 200:
                    told = _message(text)
                    raise Rejected(f"{self.url}{path} answers {response.status}: {told}")
                found = json.loads(text)
        except TimeoutError as error:
            raise _Again(f"no answer within {self._patience.timeout:g} s", late=True) from error
        except aiohttp.InvalidURL as error:
            raise Rejected(f"{self.url} is no address") from error
        except aiohttp.ClientError as error:
            raise _Again(f"connection lost ({type(error).__name__})") from error
        except ValueError as error:
            raise Misanswered(f"{self.url}{path} answers with no JSON") from error
        if not isinstance(found, dict):
            raise Misanswered(f"{self.url}{path} answers with no JSON object")
        return found


class _Again(Exception):
    def __init__(self, cause: str, after: float = 0.0, *, late: bool = False) -> None:
        super().__init__(cause)
        self.cause, self.after, self.late = cause, after, late


def _seconds(text: str) -> float:
    """A server may also name a date, which is not waited for."""
    return float(text) if text.isdecimal() else 0.0


def _message(text: str) -> str:
    """What a refusal says, in whichever of the usual places."""
    try:
        found = json.loads(text)
    except ValueError:
        return text.strip()[:300]
    error = found.get("error", found) if isinstance(found, dict) else found
    told = error.get("message", error) if isinstance(error, dict) else error
    return str(told)[:300]


def _answer(found: Mapping[str, Any]) -> Answer:
    choices = found.get("choices")
    if not isinstance(choices, list) or not all(isinstance(each, dict) for each in choices):
        raise Misanswered("a completion without choices")
    ordered = sorted(choices, key=lambda each: int(each.get("index") or 0))
    usage = found.get("usage")
    read = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return Answer(tuple(map(_choice, ordered)), read if isinstance(read, int) else None)


def _choice(found: Mapping[str, Any]) -> Choice:
    text = found.get("text")
    if not isinstance(text, str):
        raise Misanswered("a choice without text")
    told = found.get("logprobs") or {}
    ids = found.get("token_ids")
    return Choice(
        text=text,
        tokens=tuple(map(str, told.get("tokens") or ())),
        logprobs=tuple(told.get("token_logprobs") or ()),
        top=tuple(each or {} for each in told.get("top_logprobs") or ()),
        ids=tuple(ids) if isinstance(ids, list) else None,
    )

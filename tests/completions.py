"""A small completions server whose model is arithmetic, and its misbehaving relatives."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from aiohttp import web

BOS = 256
VOCABULARY = 257
END = 255
LONGEST = 4096


def ids_of(text: str) -> list[int]:
    """Bytes are tokens, behind one of their own."""
    return [BOS, *text.encode()]


def logprobs(prefix: Sequence[int]) -> np.ndarray:
    """Of the next token: made up from the last three, the same every time."""
    return _logprobs(tuple(prefix[-3:])).copy()


@cache
def _logprobs(last: tuple[int, ...]) -> np.ndarray:
    logits = 3 * np.random.default_rng([1 + each for each in last]).standard_normal(VOCABULARY)
    logits[BOS] = -50.0
    found: np.ndarray = logits - np.log(np.exp(logits).sum())
    return found


@dataclass
class Server:
    """Behaves. Each relative overrides what it gets wrong."""

    asked: Counter[str] = field(default_factory=Counter)
    """Times that each body was answered well."""
    requests: int = 0
    delay: float = 0.0
    url: str = ""

    def told(self, ids: list[int], echo: bool, written: list[int]) -> list[Any]:
        """(token, log-probability, likeliest) of all that an answer tells."""
        told = []
        if echo:
            told += [(ids[0], None, {})]
            told += [self.token(ids[:at], ids[at]) for at in range(1, len(ids))]
        whole = list(ids)
        for each in written:
            told.append(self.token(whole, each))
            whole.append(each)
        return told

    def token(self, prefix: Sequence[int], token: int) -> tuple[int, float, np.ndarray]:
        found = logprobs(prefix)
        return token, float(found[token]), found

    def ids(self, prompt: Any) -> list[int]:
        return ids_of(prompt) if isinstance(prompt, str) else list(prompt)

    def write(self, ids: list[int], tokens: int) -> list[int]:
        whole = list(ids)
        for _ in range(tokens):
            whole.append(int(logprobs(whole).argmax()))
        return whole[len(ids) :]

    def beams(self, ids: list[int], tokens: int, width: int) -> list[list[int]]:
        kept: list[tuple[float, list[int]]] = [(0.0, [])]
        for _ in range(tokens):
            grown = []
            for total, written in kept:
                found = logprobs([*ids, *written])
                best = np.argsort(-found)[:width]
                grown += [(total + float(found[each]), [*written, int(each)]) for each in best]
            kept = sorted(grown, key=lambda each: -each[0])[:width]
        return [written for _, written in kept]

    # HTTP

    async def models(self, request: web.Request) -> web.Response:
        row = {"id": "arithmetic", "max_model_len": LONGEST}
        return web.json_response({"data": [row]})

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response({"tokens": ids_of(body["prompt"])})

    async def completions(self, request: web.Request) -> web.Response:
        self.requests += 1
        body = await request.json()
        await asyncio.sleep(self.delay)
        prompt = body["prompt"]
        several = prompt if isinstance(prompt, list) and isinstance(prompt[0], list) else [prompt]
        read = [self.ids(each) for each in several]
        if any(len(each) + body.get("max_tokens", 16) > LONGEST for each in read):
            return web.json_response({"error": {"message": "too long"}}, status=400)
        choices = [choice for ids in read for choice in self.choices(body, ids)]
        for index, choice in enumerate(choices):
            choice["index"] = index
        self.asked[str((prompt, body.get("echo"), body.get("logprob_token_ids")))] += 1
        usage = {"prompt_tokens": sum(map(len, read))}
        return web.json_response({"choices": choices, "usage": usage})

    def choices(self, body: dict[str, Any], ids: list[int]) -> list[dict[str, Any]]:
        tokens = body.get("max_tokens", 16)
        if body.get("use_beam_search"):
            return [self.choice(body, ids, each) for each in self.beams(ids, tokens, body["n"])]
        return [self.choice(body, ids, self.write(ids, tokens))]

    def choice(self, body: dict[str, Any], ids: list[int], written: list[int]) -> dict[str, Any]:
        text = bytes(each for each in written if each < BOS).decode("latin-1")
        for stop in body.get("stop") or ():
            text = text.partition(stop)[0]
        choice: dict[str, Any] = {"text": text}
        if body.get("return_token_ids"):
            choice["token_ids"] = written
        if body.get("logprobs") is not None:
            told = self.told(ids, bool(body.get("echo")), written)
            choice["logprobs"] = {
                "tokens": [f"token_id:{token}" for token, _, _ in told],
                "token_logprobs": [logprob for _, logprob, _ in told],
                "top_logprobs": [_top(body, found) for _, _, found in told],
            }
        return choice

    def application(self) -> web.Application:
        application = web.Application(client_max_size=1 << 24)
        application.router.add_get("/v1/models", self.models)
        application.router.add_post("/tokenize", self.tokenize)
        application.router.add_post("/v1/completions", self.completions)
        return application


def _top(body: dict[str, Any], found: Any) -> dict[str, float]:
    if not len(found):
        return {}
    wanted = [*np.argsort(-found)[: body["logprobs"]], *(body.get("logprob_token_ids") or ())]
    return {f"token_id:{int(each)}": float(found[each]) for each in wanted}


class IgnoresEcho(Server):
    def told(self, ids: list[int], echo: bool, written: list[int]) -> list[Any]:
        return super().told(ids, False, written)


class DropsTheLast(Server):
    """Leaves out the token that is generated behind an echo, as llama.cpp's server has done."""

    def told(self, ids: list[int], echo: bool, written: list[int]) -> list[Any]:
        found = super().told(ids, echo, written)
        return found[:-1] if echo else found


class TellsItsFavourites(Server):
    """Of each place of an echo the likeliest token's, whatever stands there."""

    def token(self, prefix: Sequence[int], token: int) -> tuple[int, float, np.ndarray]:
        found = logprobs(prefix)
        return token, float(found.max()), found


class PutsABosBefore(Server):
    """Also before token ids, which have one already."""

    def ids(self, prompt: Any) -> list[int]:
        return [BOS, *super().ids(prompt)]


class CutsTextWithoutBos(Server):
    """Token ids are taken as they are; text gets no BOS."""

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response({"tokens": ids_of(body["prompt"])[1:]})


@dataclass
class ListsBeside(Server):
    """As Ray Serve's own application lists a model; what it says stands in `metadata`."""

    metadata: Any = None

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "arithmetic", "metadata": self.metadata}]})


@dataclass
class OneAtATime(Server):
    """Each answer takes its time after the one before, also those that nobody waits for by then."""

    seconds: float = 0.02
    free: float = 0.0

    async def completions(self, request: web.Request) -> web.Response:
        now = asyncio.get_running_loop().time()
        self.free = max(now, self.free) + self.seconds
        await asyncio.sleep(self.free - now)
        return await super().completions(request)


class HasOneBeam(Server):
    def choices(self, body: dict[str, Any], ids: list[int]) -> list[dict[str, Any]]:
        return super().choices({**body, "use_beam_search": False}, ids)


class WorstBeamFirst(Server):
    def beams(self, ids: list[int], tokens: int, width: int) -> list[list[int]]:
        return super().beams(ids, tokens, width)[::-1]


class CutsLongPrompts(Server):
    def ids(self, prompt: Any) -> list[int]:
        return super().ids(prompt)[-(LONGEST - 64) :]


class Fails(Server):
    """Every tenth request."""

    async def completions(self, request: web.Request) -> web.Response:
        if self.requests % 10 == 9:
            self.requests += 1
            return web.json_response({"error": "out of luck"}, status=500)
        return await super().completions(request)


class Hangs(Server):
    """Every fourth request, for longer than anybody waits."""

    async def completions(self, request: web.Request) -> web.Response:
        if self.requests % 4 == 3:
            self.requests += 1
            await asyncio.sleep(1.5)
            return web.json_response({}, status=500)
        return await super().completions(request)


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """On a thread of its own, so that a driver in another process or in this one can ask it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> web.AppRunner:
        runner = web.AppRunner(server.application())
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()

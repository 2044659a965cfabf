"""The embedded engine: a transformers model behind Ray Serve that answers as vLLM's server does.

For machines that vLLM does not run on, and for the example. It knows the part of the completions
protocol that the benchmark asks for; like vLLM it ignores fields that it does not know.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tabiflow.serving.completions import Completer, Token, Wish, Written
from tabiflow.serving.start import Start

MOST_LOGPROBS = 20
GATHERED = 64
"""Prompts that requests at the same time may put into one batch."""


class Completion(BaseModel):
    """The body of a request."""

    model: str = ""
    prompt: str | list[str] | list[int] | list[list[int]]
    max_tokens: int = Field(16, ge=0)
    temperature: float | None = None
    n: int = Field(1, ge=1, le=16)
    use_beam_search: bool = False
    length_penalty: float = 1.0
    stop: str | list[str] | None = None
    echo: bool = False
    logprobs: int | None = Field(None, ge=0)
    logprob_token_ids: list[int] | None = None
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def wish(self) -> Wish:
        return Wish(
            max_tokens=self.max_tokens,
            beams=self.n if self.use_beam_search else 1,
            stop=self.stops,
            length_penalty=self.length_penalty,
            top=self.logprobs,
            also=tuple(self.logprob_token_ids or ()),
        )


class Refused(Exception):
    """The request is at fault."""


@dataclass(frozen=True)
class Asked:
    """One prompt on its way into a batch."""

    kind: Literal["score", "write"]
    ids: tuple[int, ...]
    wish: Wish


class Completions:
    """One replica."""

    def __init__(
        self, folder: str, name: str, dtype: str | None, max_length: int | None, code: bool
    ) -> None:
        self._name = name
        self._completer = Completer(Path(folder), dtype, code=code)
        self._limit = min(max_length or self._completer.limit, self._completer.limit)

    async def __call__(self, request: Request) -> Response:
        path = request.url.path.removeprefix(request.scope.get("root_path", ""))
        try:
            match request.method, path:
                case "GET", "/health":
                    return Response()
                case "GET", "/v1/models":
                    return JSONResponse(self._models())
                case "POST", "/tokenize":
                    return JSONResponse(self._tokenized(await request.json()))
                case "POST", "/v1/completions":
                    body = Completion.model_validate(await request.json())
                    return JSONResponse(await self._complete(body))
        except (ValidationError, ValueError, Refused) as error:
            # A body that is no JSON is a ValueError, too.
            return _error(400, "BadRequestError", str(error))
        return _error(404, "NotFoundError", f"there is no {path}")

    def _models(self) -> dict[str, Any]:
        row = {"id": self._name, "object": "model", "owned_by": "tabiflow"}
        return {"object": "list", "data": [row | {"max_model_len": self._limit}]}

    def _tokenized(self, body: Mapping[str, Any]) -> dict[str, Any]:
        special = bool(body.get("add_special_tokens", True))
        ids = self._completer.encode(str(body.get("prompt", "")), special=special)
        return {"tokens": ids, "count": len(ids), "max_model_len": self._limit}

    async def _complete(self, body: Completion) -> dict[str, Any]:
        prompts = self._prompts(body)
        self._check(body, prompts)
        answers = await asyncio.gather(*(self._answers(body, ids) for ids in prompts))
        choices = [choice for answer in answers for choice in answer]
        for index, choice in enumerate(choices):
            choice["index"] = index
        read = sum(map(len, prompts))
        wrote = sum(each.pop("_written") for each in choices)
        return {
            "object": "text_completion",
            "created": int(time.time()),
            "model": self._name,
            "choices": choices,
            "usage": {
                "prompt_tokens": read,
                "completion_tokens": wrote,
                "total_tokens": read + wrote,
            },
        }

    def _prompts(self, body: Completion) -> list[list[int]]:
        prompt = body.prompt
        if isinstance(prompt, str):
            return [self._completer.encode(prompt)]
        several = [each for each in prompt if not isinstance(each, int)]
        if not several:
            return [[each for each in prompt if isinstance(each, int)]]
        return [self._completer.encode(e) if isinstance(e, str) else e for e in several]

    def _check(self, body: Completion, prompts: Sequence[Sequence[int]]) -> None:
        if body.temperature:
            raise Refused("temperature: this engine writes the likeliest text only")
        if body.n > 1 and not body.use_beam_search:
            raise Refused("n: more than one text needs use_beam_search")
        if (body.logprobs or 0) > MOST_LOGPROBS:
            raise Refused(f"logprobs: at most {MOST_LOGPROBS}")
        for ids in prompts:
            if not ids:
                raise Refused("prompt: it is empty")
            if len(ids) + body.max_tokens > self._limit:
                raise Refused(
                    f"prompt: {len(ids)} tokens and {body.max_tokens} to write are more than the "
                    f"model's {self._limit}"
                )

    async def _answers(self, body: Completion, ids: Sequence[int]) -> list[dict[str, Any]]:
        """One choice, or with beams as many as there are."""
        wish, read = body.wish, ()
        if body.echo and body.logprobs is not None:
            asked = Asked("score", tuple(ids), Wish(0, top=body.logprobs))
            read = await self._batched(asked)
        written: tuple[Written, ...] = (Written("", (), "length"),)
        if body.max_tokens:
            written = await self._batched(Asked("write", tuple(ids), wish))
        return [self._choice(body, ids, read, each) for each in written]

    def _choice(
        self, body: Completion, ids: Sequence[int], read: Sequence[Token], written: Written
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "text": (self._completer.decode(ids) if body.echo else "") + written.text,
            "finish_reason": written.finish,
            "logprobs": None,
            "_written": len(written.ids),
        }
        if body.logprobs is not None:
            choice["logprobs"] = self._logprobs(body, [*read, *written.tokens])
        if body.return_token_ids:
            choice |= {"token_ids": list(written.ids), "prompt_token_ids": list(ids)}
        return choice

    def _logprobs(self, body: Completion, tokens: Sequence[Token]) -> dict[str, Any]:
        def name(id: int) -> str:
            return f"token_id:{id}" if body.return_tokens_as_token_ids else self._text(id)

        return {
            "tokens": [name(each.id) for each in tokens],
            "token_logprobs": [each.logprob for each in tokens],
            "top_logprobs": [
                {name(id): logprob for id, logprob in each.top} if each.top else None
                for each in tokens
            ],
        }

    def _text(self, id: int) -> str:
        text: str = self._completer.tokenizer.decode([id])
        return text

    @serve.batch(  # type: ignore[untyped-decorator]
        max_batch_size=GATHERED, batch_wait_timeout_s=0.005, max_concurrent_batches=1
    )
    async def _batched(self, asked: list[Asked]) -> list[Any]:
        return await asyncio.to_thread(self._compute, asked)

    def _compute(self, asked: Sequence[Asked]) -> list[Any]:
        """Those that wish alike go through the model together."""
        groups: dict[tuple[str, Wish], list[int]] = {}
        for place, each in enumerate(asked):
            groups.setdefault((each.kind, each.wish), []).append(place)
        found: dict[int, Any] = {}
        for (kind, wish), places in groups.items():
            prompts = [asked[place].ids for place in places]
            if kind == "score":
                made: Sequence[Any] = self._completer.score(prompts, wish.top or 0)
            else:
                made = self._completer.write(prompts, wish)
            found |= dict(zip(places, made, strict=True))
        return [found[place] for place in range(len(asked))]


def _error(status: int, kind: str, message: str) -> Response:
    content = {"error": {"message": message, "type": kind, "code": status}}
    return JSONResponse(content, status_code=status)


def versions() -> str:
    return f"transformers {version('transformers')}, torch {version('torch')}"


def application(start: Start) -> serve.Application:
    """`tensor_parallel` and `arguments` are vLLM's."""
    row = start.generator
    deployed: Any = serve.deployment(Completions)
    deployed = deployed.options(
        name="embedded",
        ray_actor_options={"num_cpus": row.cpus, "num_gpus": start.gpus},
        max_ongoing_requests=row.concurrency,
        health_check_timeout_s=120,
        **start.scaling,
    )
    application: serve.Application = deployed.bind(
        str(start.folder), row.name, start.dtype, row.max_length, row.trust_remote_code
    )
    return application

"""Items -> requests -> replies, as many at a time as the server takes."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tabiflow.endpoint import Endpoint, Misanswered
from tabiflow.endpoint.preflight import Abilities, named_logprobs, named_tokens
from tabiflow.endpoint.vocabulary import Vocabulary
from tabiflow.evaluation.store import Reply, Store
from tabiflow.generative.prompts import Excluded, Item, too_long
from tabiflow.generative.scoring import single_tokens
from tabiflow.spec import Generation


@dataclass(frozen=True)
class Request:
    """One item in a server's tokens."""

    place: int
    item: Item
    prompt: tuple[int, ...]
    following: tuple[tuple[int, ...], ...] = ()
    """One an option, behind the prompt; empty where the answer is written."""

    @property
    def length(self) -> int:
        return len(self.prompt) + max((len(each) for each in self.following), default=0)


async def requests(items: Sequence[Item], vocabulary: Vocabulary) -> list[Request]:
    prompts = await vocabulary.ids([item.prompt for item in items])
    whole = iter(
        await vocabulary.ids([item.prompt + each for item in items for each in item.continuations])
    )
    return [
        _request(place, item, prompt, [next(whole) for _ in item.continuations])
        for place, (item, prompt) in enumerate(zip(items, prompts, strict=True))
    ]


def _request(
    place: int, item: Item, prompt: tuple[int, ...], whole: Sequence[tuple[int, ...]]
) -> Request:
    """A tokenizer may join the prompt's end with what follows: then that token is scored, too."""
    common = min((_common(prompt, each) for each in whole), default=len(prompt))
    return Request(place, item, prompt[:common], tuple(each[common:] for each in whole))


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(first), len(second)))


def over_long(made: Sequence[Request], limit: int | None, written: int) -> tuple[Excluded, ...]:
    """Items that a server of this limit could only answer cut short; `written` are the tokens of
    an answer that is generated."""
    if limit is None:
        return ()
    lengths = [each.length + (1 if each.following else written) for each in made]
    return tuple(
        Excluded(
            made[place].item.index,
            made[place].item.content,
            f"it takes {lengths[place]} tokens, the model has {limit}",
        )
        for place in too_long(lengths, limit)
    )


@dataclass(frozen=True)
class Asker:
    """How one server is asked the items of one task."""

    endpoint: Endpoint
    abilities: Abilities
    generation: Generation
    letters: bool
    """Options are letters, scored as the next token where each is one token."""

    async def ask(self, request: Request) -> Reply:
        if not request.following:
            text = await self._written(request)
            return Reply(request.place, request.item.hash, text=text)
        sums = await self._named(request) if self.letters else None
        if sums is None:
            sums = await self._likelihoods(request)
        counts = tuple(len(each) for each in request.following)
        return Reply(request.place, request.item.hash, sums, counts)

    async def _written(self, request: Request) -> str:
        wanted = self.generation
        wishes = {"max_tokens": wanted.max_tokens}
        if wanted.beams > 1:
            beams = {"use_beam_search": True, "n": wanted.beams}
            answer = await self.endpoint.complete(request.prompt, **wishes, **beams)
        else:
            stop = {"stop": list(wanted.stop)} if self.abilities.stops and wanted.stop else {}
            answer = await self.endpoint.complete(request.prompt, **wishes, **stop)
        if not answer.choices:
            raise Misanswered("a completion without choices")
        return answer.choices[0].text

    async def _named(self, request: Request) -> tuple[float, ...] | None:
        """All letters in one request; None where that cannot be."""
        ids = single_tokens(request.following)
        if ids is None or not self.abilities.named_tokens:
            return None
        answer = await named_tokens(self.endpoint, request.prompt, ids)
        return named_logprobs(answer.choices[0], ids)

    async def _likelihoods(self, request: Request) -> tuple[float, ...]:
        whole = [[*request.prompt, *each] for each in request.following]
        wishes = {"max_tokens": 1, "echo": True, "logprobs": 1}
        if self.abilities.lists:
            choices = (await self.endpoint.complete(whole, **wishes)).choices
        else:
            answers = [await self.endpoint.complete(each, **wishes) for each in whole]
            choices = tuple(each.choices[0] for each in answers)
        if len(choices) != len(whole):
            raise Misanswered(f"{len(choices)} answers to {len(whole)} prompts")
        start = len(request.prompt)
        return tuple(
            _sum(choice.logprobs, start, ids) for choice, ids in zip(choices, whole, strict=True)
        )


def _sum(logprobs: Sequence[float | None], start: int, ids: Sequence[int]) -> float:
    if len(logprobs) != len(ids) + 1:
        raise Misanswered(f"{len(logprobs)} log-probabilities of {len(ids) + 1} tokens")
    told = logprobs[start : len(ids)]
    if any(each is None for each in told):
        raise Misanswered("a log-probability is missing")
    return sum(each for each in told if each is not None)


async def ask_all(
    asker: Asker,
    made: Sequence[Request],
    store: Store,
    concurrency: int,
    heard: Callable[[int], None],
) -> None:
    """Asks what the store has no reply to. `heard` is told how many replies there are by now."""
    waiting = iter([each for each in made if not _known(store, each)])

    async def work(requests: Iterator[Request]) -> None:
        for request in requests:
            store.add(await asker.ask(request))
            heard(len(store.replies))

    # The iterator is shared: each worker takes the next request when it is free.
    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(work(waiting))


def _known(store: Store, request: Request) -> bool:
    reply = store.replies.get(request.place)
    return reply is not None and reply.item == request.item.hash

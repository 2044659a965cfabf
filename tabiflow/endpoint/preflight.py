"""What a server really does, found out before a row is scored.

A server that ignores `echo`, or forgets a token, does not fail: every option gets the same score
and the first one always wins. So each promise of the protocol that scores rest on is probed with
requests whose answers are known from other requests, and a server that breaks one is refused with
the reason. What merely differs is noted, and the client does it itself.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tabiflow.endpoint import Answer, Choice, Endpoint, Misanswered, Rejected
from tabiflow.endpoint.vocabulary import Vocabulary
from tabiflow.errors import UserError

PROBE = "Ağacın altında uyuyan çocuğu İzmirli üç kişi gördü: 12 Eylül 1923, saat 10.30."
"""Turkish letters, capitals, digits and signs: what tokenizers disagree about."""
STEPS = 3
"""Tokens whose log-probabilities are taken one by one and compared with those of an echo."""
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.3, "float16": 0.1}
"""Nats by which the two may differ: they come from batches of different shapes."""
ALSO = 5
"""Likeliest tokens looked at in each step."""


class Refused(UserError):
    """The server does not do what scores rest on."""


@dataclass
class Abilities:
    """What the server does, of what it need not do."""

    max_length: int | None = None
    """Tokens of prompt and answer; None where it does not say."""
    lists: bool = False
    """Several prompts in one request."""
    named_tokens: bool = False
    """Log-probabilities of tokens that the client names: all letters in one request."""
    token_ids: bool = False
    """Tokens by their ids."""
    stops: bool = False
    most_logprobs: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Needs:
    """What the tasks ask for."""

    likelihoods: bool = True
    beams: int = 1
    """1 where no task needs more."""
    dtype: str = "bfloat16"
    """Of the server's weights, as far as it is known."""


async def preflight(endpoint: Endpoint, vocabulary: Vocabulary, needs: Needs) -> Abilities:
    """Raises Refused with the first reason; chooses the endpoint's model where none is named."""
    found = Abilities()
    try:
        await _model(endpoint, found)
        ids = (await vocabulary.ids([PROBE]))[0]
        found.token_ids = await _tells_ids(endpoint, ids)
        if needs.likelihoods:
            await _echo(endpoint, ids)
        await _same_tokens(endpoint, ids, found)
        if needs.likelihoods:
            await _sums(endpoint, ids, found, TOLERANCE[needs.dtype])
            await _lists(endpoint, ids, found)
            await _named(endpoint, ids, found)
            await _most_logprobs(endpoint, ids, found)
        if needs.beams > 1:
            await _beams(endpoint, ids, needs.beams)
        await _stops(endpoint, ids, found)
        await _never_cuts(endpoint, ids, found)
    except (Rejected, Misanswered) as error:
        raise Refused(error.message, hint="the benchmark cannot be asked there") from error
    return found


def _refuse(endpoint: Endpoint, reason: str) -> Refused:
    return Refused(f"{endpoint.url} {reason}")


async def _model(endpoint: Endpoint, found: Abilities) -> None:
    rows = {str(row.get("id")): row for row in await endpoint.models()}
    if not endpoint.model and len(rows) == 1:
        endpoint.model = next(iter(rows))
    if endpoint.model not in rows:
        named = f"has no model `{endpoint.model}`" if endpoint.model else "has several models"
        raise _refuse(endpoint, f"{named}; it has {', '.join(sorted(rows)) or 'none'}")
    found.max_length = _length(rows[endpoint.model])


def _length(row: Mapping[str, Any]) -> int | None:
    """As vLLM's own server says it, or Ray Serve's; None where neither does."""
    beside = row.get("metadata")
    told = beside.get("max_request_context_length") if isinstance(beside, dict) else None
    longest = row.get("max_model_len", told)
    return longest if isinstance(longest, int) else None


async def _tells_ids(endpoint: Endpoint, ids: Sequence[int]) -> bool:
    answer = await endpoint.complete(ids, max_tokens=1, return_token_ids=True)
    return bool(answer.choices and answer.choices[0].ids)


async def _echo(endpoint: Endpoint, ids: Sequence[int]) -> None:
    """One log-probability a token of the prompt, none for the first, and one of a token more."""
    choice = _only(await endpoint.complete(ids, max_tokens=1, echo=True, logprobs=1))
    told, sent = len(choice.logprobs), len(ids)
    if told == sent + 1:
        if choice.logprobs[0] is not None:
            raise _refuse(endpoint, "puts a token of its own before a prompt and does not tell it")
        if any(each is None for each in choice.logprobs[1:]):
            raise _refuse(endpoint, "leaves log-probabilities of an echo out")
        return
    if told == 0:
        raise _refuse(endpoint, "gives no log-probabilities")
    if told == 1:
        raise _refuse(
            endpoint, f"ignores `echo`: 1 log-probability came for a prompt of {sent} tokens"
        )
    if told == sent:
        raise _refuse(
            endpoint,
            f"drops the last token: {sent} log-probabilities came for a prompt of {sent} tokens and"
            " the one that is generated behind it",
        )
    raise _refuse(
        endpoint,
        f"sees {told - 1} tokens in a prompt of {sent}: it has another rule for BOS, or puts "
        "tokens of its own before a prompt",
    )


async def _same_tokens(endpoint: Endpoint, ids: Sequence[int], found: Abilities) -> None:
    """Of a text that the server cuts itself: the ids, or as many."""
    theirs = await endpoint.tokenize(PROBE)
    if theirs is not None:
        if tuple(ids) != theirs:
            raise _refuse(endpoint, _difference(ids, theirs))
        return
    counted = (await endpoint.complete(PROBE, max_tokens=1)).prompt_tokens
    if counted is None:
        found.notes.append("the server counts no tokens: its tokenizer was not compared with ours")
    elif counted != len(ids):
        raise _refuse(endpoint, _counts(len(ids), counted))


def _difference(ours: Sequence[int], theirs: Sequence[int]) -> str:
    if len(ours) != len(theirs) and (
        list(ours[len(ours) - len(theirs) :]) == list(theirs)
        or list(theirs[len(theirs) - len(ours) :]) == list(ours)
    ):
        return _counts(len(ours), len(theirs))
    at = next(
        (n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
        min(len(ours), len(theirs)),
    )
    return f"has another tokenizer: token {at} of a text is not ours"


def _counts(ours: int, theirs: int) -> str:
    if abs(ours - theirs) == 1:
        more = "one that ours does not put there" if theirs > ours else "none, ours puts one there"
        return f"has another rule for BOS, the token before a text: {more}"
    return f"has another tokenizer: it sees {theirs} tokens in a text, ours {ours}"


async def _sums(endpoint: Endpoint, ids: Sequence[int], found: Abilities, tolerance: float) -> None:
    """Step by step, then all at once. The token taken is the second likeliest: a server that
    echoes its favourites instead of the prompt would agree about the likeliest."""
    if not found.token_ids:
        found.notes.append("the server does not tell token ids: its sums were not checked")
        return
    sent, expected = list(ids), []
    for _ in range(STEPS):
        choice = _only(
            await endpoint.complete(
                sent, max_tokens=1, logprobs=ALSO, return_tokens_as_token_ids=True
            )
        )
        likeliest = _ids_of(choice.top[0]) if choice.top else {}
        if len(likeliest) < 2:
            found.notes.append("the server tells no likeliest tokens: its sums were not checked")
            return
        token = sorted(likeliest, key=lambda each: (-likeliest[each], each))[1]
        sent.append(token)
        expected.append(likeliest[token])
    choice = _only(await endpoint.complete(sent, max_tokens=1, echo=True, logprobs=1))
    told = choice.logprobs[len(ids) : len(sent)]
    for place, (said, known) in enumerate(zip(told, expected, strict=True)):
        if said is None or not math.isclose(said, known, abs_tol=tolerance):
            raise _refuse(
                endpoint,
                f"echoes log-probabilities of other tokens: {said} for a token that has "
                f"{known:.4f} when it is generated (place {place + 1} of {STEPS})",
            )


def _ids_of(top: Mapping[str, float]) -> dict[int, float]:
    named = {name.removeprefix("token_id:"): logprob for name, logprob in top.items()}
    return {int(name): logprob for name, logprob in named.items() if name.isdecimal()}


async def _lists(endpoint: Endpoint, ids: Sequence[int], found: Abilities) -> None:
    """Two prompts of which the second is the first with a token more."""
    asked = [list(ids[:-1]), list(ids)]
    try:
        answer = await endpoint.complete(asked, max_tokens=1, echo=True, logprobs=1)
        lengths = [len(choice.logprobs) for choice in answer.choices]
    except (Rejected, Misanswered):
        lengths = []
    found.lists = lengths == [len(each) + 1 for each in asked]
    if not found.lists:
        found.notes.append("one prompt a request: the server takes no lists")


async def _named(endpoint: Endpoint, ids: Sequence[int], found: Abilities) -> None:
    """Tokens that are unlikely to be among the likeliest."""
    wanted = sorted(set(ids))[:4]
    try:
        choice = _only(await named_tokens(endpoint, ids, wanted))
    except (Rejected, Misanswered):
        return
    told = _ids_of(choice.top[0]) if choice.top else {}
    found.named_tokens = set(wanted) <= told.keys()


async def named_tokens(endpoint: Endpoint, ids: Sequence[int], wanted: Sequence[int]) -> Answer:
    """The next token's log-probabilities, those of the wanted ones among them."""
    return await endpoint.complete(
        ids,
        max_tokens=1,
        logprobs=1,
        logprob_token_ids=list(wanted),
        return_tokens_as_token_ids=True,
    )


def named_logprobs(choice: Choice, wanted: Sequence[int]) -> tuple[float, ...]:
    """Raises Misanswered where one is missing."""
    told = _ids_of(choice.top[0]) if choice.top else {}
    if not set(wanted) <= told.keys():
        raise Misanswered("log-probabilities of named tokens are missing")
    return tuple(told[each] for each in wanted)


async def _most_logprobs(endpoint: Endpoint, ids: Sequence[int], found: Abilities) -> None:
    for wanted in (20, 10, 5, 1):
        try:
            choice = _only(await endpoint.complete(ids, max_tokens=1, logprobs=wanted))
        except Rejected:
            continue
        found.most_logprobs = min(wanted, len(choice.top[0]) if choice.top else 0)
        return


async def _beams(endpoint: Endpoint, ids: Sequence[int], beams: int) -> None:
    wishes = {"use_beam_search": True, "n": beams, "max_tokens": STEPS}
    choices = (await endpoint.complete(ids, return_token_ids=True, **wishes)).choices
    if len(choices) != beams:
        raise _refuse(endpoint, f"has no beam search: {len(choices)} of {beams} texts came")
    if len({each.ids or each.text for each in choices}) == 1:
        raise _refuse(endpoint, f"has no beam search: all {beams} texts are the same")
    written = [each.ids for each in choices if each.ids and len(each.ids) == STEPS]
    sums = [await _sum(endpoint, ids, each) for each in written]
    if any(later > before + 0.01 for before, later in pairwise(sums)):
        raise _refuse(endpoint, "does not give the best beam first")


async def _sum(endpoint: Endpoint, ids: Sequence[int], written: Sequence[int]) -> float:
    whole = [*ids, *written]
    choice = _only(await endpoint.complete(whole, max_tokens=1, echo=True, logprobs=1))
    return sum(each or 0.0 for each in choice.logprobs[len(ids) : len(whole)])


async def _stops(endpoint: Endpoint, ids: Sequence[int], found: Abilities) -> None:
    """Asks again with a part of the answer as the stop."""
    text = _only(await endpoint.complete(ids, max_tokens=8)).text
    stop = text[len(text) // 2 :][:2]
    if not stop:
        found.notes.append("the server wrote nothing: whether it honours stops is not known")
        return
    stopped = _only(await endpoint.complete(ids, max_tokens=8, stop=[stop])).text
    found.stops = stop not in stopped and len(stopped) < len(text)
    if not found.stops:
        found.notes.append("the server does not honour stops: answers are cut here")


async def _never_cuts(endpoint: Endpoint, ids: Sequence[int], found: Abilities) -> None:
    """A prompt that is too long must be refused, not shortened."""
    if found.max_length is None:
        found.notes.append("the server does not say how long a prompt may be")
        return
    times = found.max_length // len(ids) + 1
    try:
        answer = await endpoint.complete([*ids] * times, max_tokens=1)
    except Rejected:
        return
    told = answer.prompt_tokens
    if told is None or told < times * len(ids):
        raise _refuse(endpoint, f"cuts prompts that are longer than {found.max_length} tokens")


def _only(answer: Answer) -> Choice:
    if len(answer.choices) != 1:
        raise Misanswered(f"{len(answer.choices)} texts came where one was asked for")
    return answer.choices[0]

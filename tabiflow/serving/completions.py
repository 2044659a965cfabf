"""Completions with a transformers model: log-probabilities of given tokens, greedy and beam search.

The embedded engine's arithmetic, without a server. Batches are padded; what a row gets does not
depend on its batch beyond the last bits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    StoppingCriteria,
    StoppingCriteriaList,
)

AT_ONCE = 2048
"""Tokens of one forward pass, padding included: their logits over the vocabulary lie in memory."""
LOWEST = -9999.0
"""Stands for minus infinity, which JSON cannot say; vLLM's own stand-in."""


@dataclass(frozen=True)
class Token:
    id: int
    logprob: float | None
    """None for a prompt's first token, which nothing precedes."""
    top: tuple[tuple[int, float], ...] = ()
    """The likeliest tokens in its place, the best first."""


@dataclass(frozen=True)
class Wish:
    """What is wanted of a generation; rows that wish alike share a batch."""

    max_tokens: int
    beams: int = 1
    stop: tuple[str, ...] = ()
    """Greedy search ends with one of them; beam search ignores them, as vLLM's does."""
    length_penalty: float = 1.0
    top: int | None = None
    """Likeliest tokens told for each token; None tells no log-probabilities at all."""
    also: tuple[int, ...] = ()
    """Tokens whose log-probabilities are told beside the likeliest."""


@dataclass(frozen=True)
class Written:
    text: str
    ids: tuple[int, ...]
    finish: str
    tokens: tuple[Token, ...] = field(default=())


class Completer:
    """One model in memory."""

    def __init__(self, folder: Path, dtype: str | None, *, code: bool = False) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.dtype = dtype or ("bfloat16" if self.device.type == "cuda" else "float32")
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, self.dtype), trust_remote_code=code
        )
        self._model: Any = model.eval().to(self.device)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=code)
        self._pad = self.tokenizer.pad_token_id or 0
        self._end = _ends(self._model, self.tokenizer)

    @property
    def limit(self) -> int:
        """Tokens of prompt and answer that the model was made for."""
        return int(getattr(self._model.config, "max_position_embeddings", 0) or 1 << 30)

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=special)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    @torch.inference_mode()
    def score(self, prompts: Sequence[Sequence[int]], top: int) -> list[tuple[Token, ...]]:
        """The log-probability of each token of each prompt after those before it."""
        found: dict[int, tuple[Token, ...]] = {}
        for places in _batches([len(each) for each in prompts]):
            logits = self._logits([prompts[place] for place in places])
            for row, place in enumerate(places):
                ids = prompts[place]
                found[place] = self._tokens(ids, logits[row, : len(ids) - 1], top, first=True)
        return [found[place] for place in range(len(prompts))]

    def _logits(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        longest = max(map(len, prompts))
        ids = torch.full((len(prompts), longest), self._pad)
        mask = torch.zeros_like(ids)
        for row, each in enumerate(prompts):
            ids[row, : len(each)] = torch.tensor(each)
            mask[row, : len(each)] = 1
        found: torch.Tensor = self._model(
            input_ids=ids.to(self.device), attention_mask=mask.to(self.device), use_cache=False
        ).logits
        return found

    @staticmethod
    def _tokens(
        ids: Sequence[int],
        logits: torch.Tensor,
        top: int,
        *,
        first: bool = False,
        also: Sequence[int] = (),
    ) -> tuple[Token, ...]:
        """`first`: the logits are those of the tokens behind the first."""
        logprobs = logits.float().log_softmax(-1)
        told = list(ids[1:] if first else ids)
        own = logprobs.gather(1, torch.tensor(told, device=logits.device)[:, None])[:, 0].tolist()
        best = logprobs.topk(top, dim=-1) if top else None
        beside = logprobs[:, list(also)].tolist() if also else None
        tokens = [Token(ids[0], None)] if first else []
        for place, id in enumerate(told):
            likeliest: list[tuple[int, float]] = []
            if best is not None:
                values = best.values[place].tolist()
                likeliest += zip(best.indices[place].tolist(), map(_told, values), strict=True)
            if beside is not None:
                likeliest += zip(also, map(_told, beside[place]), strict=True)
            tokens.append(Token(id, _told(own[place]), tuple(likeliest)))
        return tuple(tokens)

    @torch.inference_mode()
    def write(self, prompts: Sequence[Sequence[int]], wish: Wish) -> list[tuple[Written, ...]]:
        """One text a prompt; with beams as many as there are, the best first."""
        found: dict[int, tuple[Written, ...]] = {}
        lengths = [len(each) + wish.max_tokens for each in prompts]
        for places in _batches(lengths, AT_ONCE // wish.beams):
            written = self._batch([prompts[place] for place in places], wish)
            found |= dict(zip(places, written, strict=True))
        return [found[place] for place in range(len(prompts))]

    def _batch(self, prompts: Sequence[Sequence[int]], wish: Wish) -> list[tuple[Written, ...]]:
        longest = max(map(len, prompts))
        ids = torch.full((len(prompts), longest), self._pad)
        mask = torch.zeros_like(ids)
        for row, each in enumerate(prompts):
            ids[row, longest - len(each) :] = torch.tensor(each)
            mask[row, longest - len(each) :] = 1
        stopping = StoppingCriteriaList()
        if wish.stop and wish.beams == 1:
            stopping.append(_Stops(wish.stop, self, longest))
        telling = wish.top is not None and wish.beams == 1
        output = self._model.generate(
            input_ids=ids.to(self.device),
            attention_mask=mask.to(self.device),
            max_new_tokens=wish.max_tokens,
            do_sample=False,
            temperature=None,
            top_p=None,
            top_k=None,
            num_beams=wish.beams,
            num_return_sequences=wish.beams,
            length_penalty=wish.length_penalty,
            pad_token_id=self._pad,
            stopping_criteria=stopping,
            return_dict_in_generate=True,
            output_logits=telling,
        )
        rows = output.sequences[:, longest:].tolist()
        logits = torch.stack(output.logits, dim=1) if telling else None
        written = [
            self._written(row, wish, None if logits is None else logits[place])
            for place, row in enumerate(rows)
        ]
        step = wish.beams
        return [tuple(written[at : at + step]) for at in range(0, len(written), step)]

    def _written(self, row: Sequence[int], wish: Wish, logits: torch.Tensor | None) -> Written:
        ids = self._until_end(row)
        tokens: tuple[Token, ...] = ()
        if logits is not None and ids:
            tokens = self._tokens(ids, logits[: len(ids)], wish.top or 0, also=wish.also)
        ended = len(ids) < wish.max_tokens or ids[-1] in self._end
        text = self.decode([each for each in ids if each not in self._end])
        if wish.beams == 1:
            at = min((text.find(stop) for stop in wish.stop if stop in text), default=-1)
            text, ended = (text[:at], True) if at >= 0 else (text, ended)
        return Written(text, tuple(ids), "stop" if ended else "length", tokens)

    def _until_end(self, row: Sequence[int]) -> list[int]:
        """Without the padding behind an end; the end itself stays."""
        for place, id in enumerate(row):
            if id in self._end:
                return list(row[: place + 1])
        return list(row)


class _Stops(StoppingCriteria):  # type: ignore[misc]
    """Ends each row with the first stop in its text."""

    def __init__(self, stops: Sequence[str], completer: Completer, start: int) -> None:
        self._stops, self._completer, self._start = stops, completer, start

    def __call__(
        self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **settings: Any
    ) -> torch.BoolTensor:
        texts = (self._completer.decode(row) for row in input_ids[:, self._start :].tolist())
        ended = [any(stop in text for stop in self._stops) for text in texts]
        found: torch.BoolTensor = torch.tensor(ended, device=input_ids.device)  # type: ignore[assignment]
        return found


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end a text: a model may have several."""
    told = model.generation_config.eos_token_id
    ids = told if isinstance(told, list) else [told]
    return frozenset(id for id in (*ids, tokenizer.eos_token_id) if id is not None)


def _batches(lengths: Sequence[int], at_once: int = AT_ONCE) -> Iterator[list[int]]:
    """Places, the longest first, so that rows of a batch are about as long."""
    batch: list[int] = []
    longest = 0
    for place in sorted(range(len(lengths)), key=lambda each: -lengths[each]):
        longest = longest or lengths[place]
        if batch and (len(batch) + 1) * longest > at_once:
            yield batch
            batch, longest = [], lengths[place]
        batch.append(place)
    if batch:
        yield batch


def _told(logprob: float) -> float:
    return max(logprob, LOWEST)

"""Text -> the token ids that a server is sent: by a tokenizer of the client's, or the server's own.

Requests hold ids, so that what is scored never depends on how a server cuts text.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from tabiflow.endpoint import Endpoint
from tabiflow.errors import ModelError, UserError


class Vocabulary(Protocol):
    async def ids(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """With what the tokenizer puts in front of a text, and nothing behind it."""


class Local:
    """A tokenizer in a folder."""

    def __init__(self, folder: Path, *, code: bool = False) -> None:
        """Raises ModelError where there is none."""
        # Seconds of imports, which a server's own tokenizer does without.
        from transformers import AutoTokenizer

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=code)
        except (OSError, ValueError) as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ModelError(f"no tokenizer can be loaded: {first}", where=str(folder)) from error
        self._front = _front(self._tokenizer)

    async def ids(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        if not texts:
            return []
        found = self._tokenizer(list(texts), add_special_tokens=False).input_ids
        return [(*self._front, *ids) for ids in found]


def _front(tokenizer: Any) -> tuple[int, ...]:
    """What the tokenizer puts before every text: BOS, or nothing."""
    plain = tokenizer("a", add_special_tokens=False).input_ids
    whole = tokenizer("a").input_ids
    starts = (at for at in range(len(whole)) if whole[at : at + len(plain)] == plain)
    return tuple(whole[: next(starts, 0)])


class Remote:
    """The server's own tokenizer, asked text by text."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def ids(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        return [await self._of(text) for text in texts]

    async def _of(self, text: str) -> tuple[int, ...]:
        ids = await self._endpoint.tokenize(text)
        if ids is None:
            raise UserError(
                f"{self._endpoint.url} has no /tokenize",
                hint="name the model's folder or hub id in the sweep: its tokenizer is needed",
            )
        return ids

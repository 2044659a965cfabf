"""Text -> token ids: the tokenizer of a model's row, told how to treat text and how much of it.

What a sequence means is for the tasks; how token ids are kept, `arrays` knows.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from tabiflow import hub
from tabiflow.arrays import Encoded, Ragged, cached, max_length, pad
from tabiflow.casing import turkish_lower
from tabiflow.errors import ModelError
from tabiflow.registry import UNPINNED
from tabiflow.spec import Model
from tabiflow.trial import canonical

__all__ = ["Encoded", "Ragged", "TextEncoder", "cached", "max_length", "pad", "text_encoder"]

_UNLIMITED = 1_000_000
OFFSET_POSITIONS = frozenset(
    {
        "camembert",
        "data2vec-text",
        "ibert",
        "longformer",
        "luke",
        "mpnet",
        "roberta",
        "roberta-prelayernorm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xmod",
    }
)
"""Model types that count positions from behind the padding id, so that they have fewer to give."""


class TextEncoder:
    """A model's tokenizer, told by its row how to treat text. A process keeps its own: see
    `text_encoder`."""

    source: str
    """The folder that `from_pretrained` is to be given; of a hub model its local copy."""
    commit: str
    """The hub commit that the copy is of; empty for a folder."""
    tokenizer: PreTrainedTokenizerBase
    limit: int
    """Most tokens that the model takes, special ones included."""
    fingerprint: str
    """16 hex digits, equal for models that turn every text into the same ids."""
    has_type_ids: bool
    """Whether the tokenizer tells the two texts of a pair apart."""

    def __init__(
        self, model: Model, *, weights: bool = True, pauses: Sequence[float] = hub.PAUSES
    ) -> None:
        """Raises ModelError for what cannot be loaded, EnvironmentFault when the hub is away.

        Without `weights`, the copy of a hub model is only good for its tokenizer.
        """
        folder, self.commit = _located(model, weights, pauses)
        self.source = str(folder)
        self.tokenizer = _tokenizer(model, self.source)
        self.limit = _limit(model, self.source, self.tokenizer)
        self.has_type_ids = "token_type_ids" in self.tokenizer.model_input_names
        self._lowercase = model.lowercase
        self.fingerprint = _fingerprint(model, self.tokenizer)

    def prepare(self, text: str) -> str:
        """The text as the tokenizer must see it; every character keeps its offset."""
        return turkish_lower(text) if self._lowercase == "turkish" else text


@lru_cache(maxsize=16)
def text_encoder(model: Model) -> TextEncoder:
    """One a model and process: workers are warm."""
    return TextEncoder(model)


def _located(model: Model, weights: bool, pauses: Sequence[float]) -> tuple[Path, str]:
    """The model's folder and its hub commit."""
    if model.path is not None:
        return model.path, ""
    if model.build is not None:
        # Imported here: only the example needs what builds models.
        from tabiflow.example.models import built_model

        return built_model(model.build), ""
    repository = hub.Repository("model", model.hub or "", model.revision or UNPINNED)
    commit = hub.commit(repository, pauses)
    code = model.trust_remote_code
    folder = hub.model_folder(repository, commit, code=code, weights=weights, pauses=pauses)
    return folder, commit


def _tokenizer(model: Model, source: str) -> PreTrainedTokenizerBase:
    # Not given otherwise: the tokenizer's own configuration may say True.
    options = {"add_prefix_space": True} if model.add_prefix_space else {}
    with _explained(model, "tokenizer", source):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            source, trust_remote_code=model.trust_remote_code, **options
        )
    # A folder without a vocabulary gives a tokenizer of special tokens, not an error.
    if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
        raise ModelError(f"model `{model.name}`: no tokenizer in its folder", where=source)
    if not tokenizer.is_fast:
        raise ModelError(f"model `{model.name}`: its tokenizer has no offsets", where=source)
    if model.add_prefix_space:
        _prefix_space(model, tokenizer.backend_tokenizer)
    return tokenizer


def _prefix_space(model: Model, backend: Tokenizer) -> None:
    # transformers 5 takes the option of that name for every tokenizer and heeds it for few.
    state = json.loads(backend.to_str())
    steps: Any = state["pre_tokenizer"] or {}
    byte_level = [
        step for step in steps.get("pretokenizers", [steps]) if step.get("type") == "ByteLevel"
    ]
    if not byte_level:
        raise ModelError(
            f"model `{model.name}`: add_prefix_space is for byte-level tokenizers, which it has not"
        )
    for step in byte_level:
        step["add_prefix_space"] = True
    backend.pre_tokenizer = Tokenizer.from_str(json.dumps(state)).pre_tokenizer


def _limit(model: Model, source: str, tokenizer: PreTrainedTokenizerBase) -> int:
    with _explained(model, "configuration", source):
        config = AutoConfig.from_pretrained(source, trust_remote_code=model.trust_remote_code)
    positions = getattr(config, "max_position_embeddings", None)
    if positions and config.model_type in OFFSET_POSITIONS:
        positions -= (config.pad_token_id or 0) + 1
    # A tokenizer that knows no limit says 10^30.
    known = [model.context, positions, min(tokenizer.model_max_length, _UNLIMITED)]
    limit = min(each for each in known if each)
    if limit == _UNLIMITED:
        raise ModelError(f"model `{model.name}` tells no context limit", hint="set its `context`")
    return int(limit)


@contextmanager
def _explained(model: Model, what: str, source: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the tokenizers library raises no narrower type
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(": ")
        raise ModelError(
            f"model `{model.name}`: its {what} cannot be loaded: {reason}", where=source
        ) from error


def _fingerprint(model: Model, tokenizer: PreTrainedTokenizerBase) -> str:
    whole = [
        tokenizer.backend_tokenizer.to_str(),
        tokenizer.model_input_names,
        model.lowercase,
        model.add_prefix_space,
    ]
    return hashlib.sha256(canonical(whole).encode()).hexdigest()[:16]

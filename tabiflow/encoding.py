"""Text -> token ids: the tokenizer of a model's row, and encoded splits kept on disk.

Knows lengths and padding; what a sequence means is for the tasks.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from tabiflow import hub
from tabiflow.casing import turkish_lower
from tabiflow.errors import EnvironmentFault, ModelError
from tabiflow.registry import UNPINNED
from tabiflow.registry.local import cache_folder
from tabiflow.spec import Model
from tabiflow.trial import canonical

_UNLIMITED = 1_000_000
_OFFSET_POSITIONS = frozenset(
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


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different lengths in one array."""

    values: np.ndarray
    offsets: np.ndarray
    """[rows + 1]: row i is `values[offsets[i]:offsets[i + 1]]`."""

    @classmethod
    def of(
        cls, rows: Iterable[Sequence[int] | np.ndarray], dtype: type[np.generic] = np.int32
    ) -> "Ragged":
        arrays = [np.asarray(row, dtype=dtype) for row in rows]
        offsets = np.zeros(len(arrays) + 1, dtype=np.int64)
        np.cumsum([len(array) for array in arrays], out=offsets[1:])
        values = np.concatenate(arrays) if arrays else np.zeros(0, dtype=dtype)
        return cls(values, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def row(self, index: int) -> np.ndarray:
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def take(self, rows: np.ndarray) -> "Ragged":
        """The given rows, in the given order."""
        lengths = self.lengths[rows]
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        shift = np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths)
        return Ragged(self.values[np.arange(offsets[-1]) + shift], offsets)


Encoded = Mapping[str, Ragged | np.ndarray]
"""A split as arrays by name: ragged ones for token ids, plain ones with one entry a row."""


def pad(ragged: Ragged, rows: np.ndarray, pad_value: int) -> np.ndarray:
    """[rows, longest of these rows], filled up on the right."""
    taken = ragged.take(rows)
    lengths = taken.lengths
    longest = int(lengths.max(initial=0))
    padded = np.full((len(rows), longest), pad_value, dtype=taken.values.dtype)
    padded[np.arange(longest) < lengths[:, None]] = taken.values
    return padded


def max_length(lengths: np.ndarray, limit: int) -> int:
    """The 95th percentile of token counts (linear between ranks, numpy's default), rounded up to
    a multiple of 8 and capped by the model's limit."""
    return min(limit, 8 * int(np.ceil(np.percentile(lengths, 95) / 8)))


def cached(key: str, build: Callable[[], Encoded]) -> Encoded:
    """What `build` returns, memory-mapped from disk; built when no process has built it yet.

    `key` must name everything that the result depends on. Raises EnvironmentFault when the disk
    does not take it.
    """
    folder = cache_folder() / "encoded" / hashlib.sha256(key.encode()).hexdigest()[:32]
    encoded = None if folder.is_dir() else build()
    try:
        if encoded is not None:
            _store(folder, encoded)
        return _mapped(folder)
    except OSError as error:
        raise EnvironmentFault(
            f"encoded rows cannot be kept: {error.strerror or error}", where=str(folder)
        ) from error


def _store(folder: Path, encoded: Encoded) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="draft-") as draft:
        finished = Path(draft) / "finished"
        finished.mkdir()
        for name, array in encoded.items():
            _save(finished, name, array)
        _publish(finished, folder)


def _save(folder: Path, name: str, array: Ragged | np.ndarray) -> None:
    if isinstance(array, Ragged):
        parts = {f"{name}.values": array.values, f"{name}.offsets": array.offsets}
    else:
        parts = {name: array}
    for file, part in parts.items():
        np.save(folder / f"{file}.npy", part, allow_pickle=False)


def _publish(finished: Path, folder: Path) -> None:
    """Another process may have been faster; its arrays are the same."""
    try:
        finished.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def _mapped(folder: Path) -> Encoded:
    arrays = {file.stem: np.load(file, mmap_mode="r") for file in sorted(folder.glob("*.npy"))}
    ragged = {
        name.removesuffix(".offsets"): Ragged(arrays[name.replace(".offsets", ".values")], offsets)
        for name, offsets in arrays.items()
        if name.endswith(".offsets")
    }
    return {**ragged, **{name: array for name, array in arrays.items() if "." not in name}}


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

    def __init__(self, model: Model) -> None:
        """Raises ModelError for what cannot be loaded, EnvironmentFault when the hub is away."""
        folder, self.commit = _located(model)
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


def _located(model: Model) -> tuple[Path, str]:
    """The model's folder and its hub commit."""
    if model.path is not None:
        return model.path, ""
    if model.build is not None:
        # Imported here: only the example needs what builds models.
        from tabiflow.example.models import built_model

        return built_model(model.build), ""
    repository = hub.Repository("model", model.hub or "", model.revision or UNPINNED)
    commit = hub.commit(repository)
    return hub.model_folder(repository, commit, code=model.trust_remote_code), commit


def _tokenizer(model: Model, source: str) -> PreTrainedTokenizerBase:
    # Given only where asked for: some tokenizers take no such option.
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
    return tokenizer


def _limit(model: Model, source: str, tokenizer: PreTrainedTokenizerBase) -> int:
    with _explained(model, "configuration", source):
        config = AutoConfig.from_pretrained(source, trust_remote_code=model.trust_remote_code)
    positions = getattr(config, "max_position_embeddings", None)
    if positions and config.model_type in _OFFSET_POSITIONS:
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

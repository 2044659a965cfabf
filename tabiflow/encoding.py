"""Text -> token ids: the tokenizer of a model's row, and encoded splits kept on disk.

Knows lengths and padding; what a sequence means is for the tasks.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from tabiflow.casing import turkish_lower
from tabiflow.errors import EnvironmentFault
from tabiflow.registry.local import cache_folder
from tabiflow.spec import Model


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
    try:
        if not folder.is_dir():
            _store(folder, build())
        return _mapped(folder)
    except OSError as error:
        raise EnvironmentFault(f"encoded data: {error.strerror}", where=str(folder)) from error


def _store(folder: Path, encoded: Encoded) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="draft-") as draft:
        for name, array in encoded.items():
            _save(Path(draft), name, array)
        finished = Path(draft) / "finished"
        finished.mkdir()
        for file in Path(draft).glob("*.npy"):
            file.rename(finished / file.name)
        _publish(finished, folder)


def _save(folder: Path, name: str, array: Ragged | np.ndarray) -> None:
    if isinstance(array, Ragged):
        np.save(folder / f"{name}.values.npy", array.values)
        np.save(folder / f"{name}.offsets.npy", array.offsets)
    else:
        np.save(folder / f"{name}.npy", array)


def _publish(finished: Path, folder: Path) -> None:
    """Another process may have been faster; its arrays are the same."""
    try:
        os.rename(finished, folder)
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
    """A model's tokenizer, told by its row how to treat text. Load through `text_encoder`."""

    source: str
    """What `from_pretrained` is to be given: a folder, or a hub id."""
    commit: str
    """The hub commit to load; empty for a folder."""
    tokenizer: PreTrainedTokenizerBase
    limit: int
    """Most tokens that the model takes, special ones included."""
    fingerprint: str
    """Equal for models that turn every text into the same ids."""
    has_type_ids: bool

    def __init__(self, model: Model) -> None:
        self.source, self.commit = str(model.path), ""
        options = {"trust_remote_code": model.trust_remote_code}
        self.tokenizer = AutoTokenizer.from_pretrained(
            self.source, add_prefix_space=model.add_prefix_space, **options
        )
        config = AutoConfig.from_pretrained(self.source, **options)
        self.limit = model.context or config.max_position_embeddings
        self.lowercase = model.lowercase
        # Tokenizers may offer type ids to models that have no embedding for a second segment.
        segments = getattr(config, "type_vocab_size", 0)
        self.has_type_ids = segments > 1 and "token_type_ids" in self.tokenizer.model_input_names
        whole = f"{self.tokenizer.backend_tokenizer.to_str()}|{model.lowercase}"
        self.fingerprint = hashlib.sha256(whole.encode()).hexdigest()[:16]

    def prepare(self, text: str) -> str:
        """The text as the tokenizer must see it; every character keeps its offset."""
        return turkish_lower(text) if self.lowercase == "turkish" else text


@lru_cache(maxsize=32)
def text_encoder(model: Model) -> TextEncoder:
    """One tokenizer a model and process: workers are warm."""
    return TextEncoder(model)

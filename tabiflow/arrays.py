"""Encoded splits as arrays: rows of different lengths, padding, copies on disk to be shared.

Knows no tokenizer: `encoding` has it.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tabiflow.errors import EnvironmentFault
from tabiflow.registry.local import cache_folder

PARTS = "parts.json"
"""Names the files of an encoded split: one that is missing must not pass for none."""


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

    `key` must name everything that the result depends on. What a crash or a cleaner of caches has
    left incomplete is built again. Raises EnvironmentFault when the disk does not take it.
    """
    folder = cache_folder() / "encoded" / hashlib.sha256(key.encode()).hexdigest()[:32]
    known = _known(folder)
    if known is not None:
        return known
    encoded = build()
    try:
        _store(folder, encoded)
        return _mapped(folder)
    except OSError as error:
        raise EnvironmentFault(
            f"encoded rows cannot be kept: {error.strerror or error}", where=str(folder)
        ) from error


def _known(folder: Path) -> Encoded | None:
    try:
        return _mapped(folder)
    except (OSError, ValueError, KeyError, EOFError):
        return None


def _store(folder: Path, encoded: Encoded) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="draft-") as draft:
        finished = Path(draft) / "finished"
        finished.mkdir()
        for name, array in encoded.items():
            _save(finished, name, array)
        names = sorted(file.name for file in finished.iterdir())
        (finished / PARTS).write_text(json.dumps(names))
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
    with suppress(OSError):
        finished.rename(folder)
        return
    if _known(folder) is None:
        shutil.rmtree(folder, ignore_errors=True)
        finished.rename(folder)


def _mapped(folder: Path) -> Encoded:
    names = json.loads((folder / PARTS).read_text())
    arrays = {Path(name).stem: np.load(folder / name, mmap_mode="r") for name in names}
    ragged = {
        name.removesuffix(".offsets"): Ragged(arrays[name.replace(".offsets", ".values")], offsets)
        for name, offsets in arrays.items()
        if name.endswith(".offsets")
    }
    return {**ragged, **{name: array for name, array in arrays.items() if "." not in name}}

"""What tasks over token sequences share: tokenising, padding, loading a pretrained encoder.

Knows no targets and no metrics.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from transformers.utils import logging as transformers_logging

from tabiflow import protocol
from tabiflow.data import Data, Schema
from tabiflow.encoding import Encoded, Ragged, TextEncoder, max_length, pad
from tabiflow.errors import ModelError
from tabiflow.tasks.base import Scores

MODEL_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
IGNORED = -100
"""The target that torch's cross-entropy leaves out."""
_CHUNK = 1000


class Sequences:
    """A task whose rows are independent sequences: the parts of the protocol that do not differ."""

    separable = True

    def rows(self, encoded: Encoded) -> int:
        return len(encoded["input_ids"])

    def batches(self, encoded: Encoded, order: np.ndarray, batch_size: int) -> Sequence[np.ndarray]:
        return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]

    def cost(self, encoded: Encoded) -> np.ndarray:
        return ragged(encoded, "input_ids").lengths

    def weight(self, encoded: Encoded, rows: np.ndarray) -> float:
        return float(len(rows))

    def diagnose(
        self, scores: Scores, encoded: Encoded, rows: pa.Table, data: Data
    ) -> Mapping[str, float]:
        return {}


class Texts(Sequences, ABC):
    """A task with one target a row, which is one text or a pair read as one sequence."""

    def __init__(self, *columns: str) -> None:
        self.columns = columns

    @abstractmethod
    def targets(self, rows: pa.Table, schema: Schema) -> dict[str, np.ndarray]:
        """What the loss and the score compare with, one entry a row."""

    def lengths(
        self, train: pa.Table, text: TextEncoder, settings: protocol.Protocol
    ) -> Mapping[str, int]:
        return {"text": sequence_length(text, settings, *self._texts(train, text))}

    def encode(
        self,
        rows: pa.Table,
        text: TextEncoder,
        schema: Schema,
        lengths: Mapping[str, int],
        settings: protocol.Protocol,
        *,
        training: bool,
    ) -> Encoded:
        return {
            **tokenise(text, lengths["text"], *self._texts(rows, text)),
            "pad_id": pad_id(text),
            **self.targets(rows, schema),
        }

    def _texts(self, rows: pa.Table, text: TextEncoder) -> list[list[str]]:
        return [prepared(rows, column, text) for column in self.columns]


def prepared(rows: pa.Table, column: str, text: TextEncoder) -> list[str]:
    return [text.prepare(value) for value in rows[column].to_pylist()]


def fixed_length(text: TextEncoder, settings: protocol.Protocol) -> int | None:
    """The sweep's `max_length` within the model's limit; None where the sweep leaves it open."""
    if settings.max_length is None:
        return None
    return min(settings.max_length, text.limit)


def sequence_length(text: TextEncoder, settings: protocol.Protocol, *columns: Sequence[str]) -> int:
    """The sweep's `max_length`, or else the 95th percentile of these (pairs of) texts."""
    fixed = fixed_length(text, settings)
    if fixed is not None:
        return fixed
    counts = [len(ids) for chunk in _tokenised(text, columns) for ids in chunk["input_ids"]]
    return max_length(np.array(counts), text.limit)


def tokenise(text: TextEncoder, length: int, *columns: Sequence[str]) -> dict[str, Ragged]:
    """One sequence a row of texts, or of pairs of texts, cut at `length` (pairs: longest first)."""
    chunks = list(_tokenised(text, columns, truncation=True, max_length=length))
    return {
        name: Ragged.of([ids for chunk in chunks for ids in chunk[name]], np.int32)
        for name in input_names(text)
    }


def input_names(text: TextEncoder) -> tuple[str, ...]:
    return ("input_ids", "token_type_ids") if text.has_type_ids else ("input_ids",)


def _tokenised(
    text: TextEncoder, columns: Sequence[Sequence[str]], **cutting: Any
) -> Iterator[Mapping[str, Any]]:
    """Chunks keep the tokenizer's own objects, many times larger than the ids, short-lived."""
    for start in range(0, len(columns[0]), _CHUNK):
        yield text.tokenizer(
            *(list(column[start : start + _CHUNK]) for column in columns),
            return_attention_mask=False,
            return_token_type_ids=text.has_type_ids,
            verbose=False,
            **cutting,
        )


def pad_id(text: TextEncoder) -> np.ndarray:
    """[1]; 0 where the tokenizer has no padding: the attention mask hides it."""
    return np.array([text.tokenizer.pad_token_id or 0], dtype=np.int32)


def ragged(encoded: Encoded, name: str) -> Ragged:
    array = encoded[name]
    assert isinstance(array, Ragged), name
    return array


def flat(encoded: Encoded, name: str) -> np.ndarray:
    array = encoded[name]
    assert isinstance(array, np.ndarray), name
    return array


def model_inputs(encoded: Encoded, rows: np.ndarray, prefix: str = "") -> dict[str, torch.Tensor]:
    """`input_ids`, `attention_mask` and, where the tokenizer makes them, `token_type_ids`."""
    ids = ragged(encoded, f"{prefix}input_ids")
    padded = pad(ids, rows, int(flat(encoded, "pad_id")[0]))
    mask = np.arange(padded.shape[1]) < ids.lengths[rows][:, None]
    batch = {"input_ids": long(padded), "attention_mask": long(mask)}
    if (name := f"{prefix}token_type_ids") in encoded:
        batch["token_type_ids"] = long(pad(ragged(encoded, name), rows, 0))
    return batch


def long(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.int64))


def run(model: torch.nn.Module, batch: Mapping[str, torch.Tensor]) -> Any:
    """The model's own output object for the inputs in `batch`."""
    return model(**{name: batch[name] for name in MODEL_INPUTS if name in batch})


def pack(texts: Sequence[str]) -> Ragged:
    """Texts as UTF-8, so that scoring needs nothing but the encoded split."""
    return Ragged.of([np.frombuffer(text.encode(), dtype=np.uint8) for text in texts], np.uint8)


def unpack(texts: Ragged, index: int) -> str:
    return texts.row(index).tobytes().decode()


def pretrained(auto: Any, source: str, loading: Mapping[str, Any], **head: Any) -> torch.nn.Module:
    """The encoder in `source` below a head that may be new.

    Raises ModelError when weights of the encoder itself are missing or of another shape: such a
    model would train from noise without a word. What `from_pretrained` raises goes through.
    """
    with _quiet():
        model, report = auto.from_pretrained(
            source, output_loading_info=True, ignore_mismatched_sizes=True, **loading, **head
        )
    encoder = f"{model.base_model_prefix}."
    lost = {*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])}
    whole = model.base_model is model
    broken = sorted(
        key for key in lost if (whole or key.startswith(encoder)) and "pooler" not in key
    )
    if broken:
        raise ModelError(
            f"its weights lack {len(broken)} of the encoder's, `{broken[0]}` first", where=source
        )
    loaded: torch.nn.Module = model
    return loaded


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's report on new heads and its progress bar: we check what is missing."""
    level = transformers_logging.get_verbosity()
    bar = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity(logging.ERROR)
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bar:
            transformers_logging.enable_progress_bar()

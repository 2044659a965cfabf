"""Texts and what answers them: in-batch negatives over mean-pooled embeddings, NDCG@10.

The same corpus everywhere: a split's unique positives, with all positives of a query relevant.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.nn import functional
from transformers import AutoModel

from tabiflow import protocol
from tabiflow.data import Data, Schema
from tabiflow.encoding import Encoded, TextEncoder
from tabiflow.tasks import sequences
from tabiflow.tasks.base import Scores
from tabiflow.tasks.metrics import headline, ranking_scores, ranks

COLUMNS = ("anchor", "positive")


class Retrieval:
    separable = False

    def lengths(
        self, train: pa.Table, text: TextEncoder, settings: protocol.Protocol
    ) -> Mapping[str, int]:
        return {
            column: sequences.sequence_length(
                text, settings, sequences.prepared(train, column, text)
            )
            for column in COLUMNS
        }

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
        known: dict[str, int] = {}
        encoded: dict[str, Any] = {"pad_id": sequences.pad_id(text)}
        for column in COLUMNS:
            encoded[f"{column}_id"] = _numbered(rows[column].to_pylist(), known)
            texts = sequences.prepared(rows, column, text)
            for name, array in sequences.tokenise(text, lengths[column], texts).items():
                encoded[f"{column}_{name}"] = array
        return encoded

    def model(self, source: str, schema: Schema, loading: Mapping[str, Any]) -> torch.nn.Module:
        return sequences.pretrained(AutoModel, source, loading)

    def rows(self, encoded: Encoded) -> int:
        return len(encoded["anchor_id"])

    def batches(self, encoded: Encoded, order: np.ndarray, batch_size: int) -> Sequence[np.ndarray]:
        """No text twice in a batch: it would be a negative of its own pair. A row that does not
        fit goes to the first later batch that takes it, so more than the last may be short."""
        anchors, positives = (
            sequences.flat(encoded, f"{column}_id")[order].tolist() for column in COLUMNS
        )
        pairs = ({anchor, positive} for anchor, positive in zip(anchors, positives, strict=True))
        batches = _filled(zip(order.tolist(), pairs, strict=True), batch_size)
        return [np.array(batch.rows, dtype=order.dtype) for batch in batches]

    def cost(self, encoded: Encoded) -> np.ndarray:
        anchors, positives = (
            sequences.ragged(encoded, f"{column}_input_ids").lengths for column in COLUMNS
        )
        tokens: np.ndarray = anchors + positives
        return tokens

    def collate(self, encoded: Encoded, rows: np.ndarray) -> dict[str, torch.Tensor]:
        return {
            f"{column}_{name}": tensor
            for column in COLUMNS
            for name, tensor in sequences.model_inputs(encoded, rows, f"{column}_").items()
        }

    def weight(self, encoded: Encoded, rows: np.ndarray) -> float:
        return float(len(rows))

    def forward(
        self, model: torch.nn.Module, batch: Mapping[str, torch.Tensor], settings: protocol.Protocol
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The outputs are [rows, 2 x width]: the anchor's embedding beside the positive's."""
        outputs = torch.cat([_embedded(model, batch, column) for column in COLUMNS], dim=1)
        return self.loss(outputs, batch, settings), outputs

    def loss(
        self,
        outputs: torch.Tensor,
        batch: Mapping[str, torch.Tensor],
        settings: protocol.Protocol,
    ) -> torch.Tensor:
        """sentence-transformers' MultipleNegativesRankingLoss, summed instead of averaged."""
        with torch.autocast(outputs.device.type, enabled=False):
            anchors, positives = (
                functional.normalize(half, dim=1) for half in outputs.float().chunk(2, dim=1)
            )
            similar = settings.scale * anchors @ positives.T
            own = torch.arange(len(similar), device=similar.device)
            return functional.cross_entropy(similar, own, reduction="sum")

    def decode(
        self, outputs: torch.Tensor, encoded: Encoded, rows: np.ndarray
    ) -> Sequence[np.ndarray]:
        """The anchor's and the positive's vector [2, width]."""
        return list(outputs.float().cpu().numpy().reshape(len(rows), 2, -1))

    def score(self, decoded: Sequence[np.ndarray], encoded: Encoded, schema: Schema) -> Scores:
        """One prediction a query: the ranks of its relevant documents, best first."""
        vectors = _unit(np.stack(decoded))
        queries, query = _unique(vectors[:, 0], sequences.flat(encoded, "anchor_id"))
        corpus, document = _unique(vectors[:, 1], sequences.flat(encoded, "positive_id"))
        query, document = np.unique(np.stack([query, document]), axis=1)
        found = ranks(queries, corpus, query, document)
        if not np.isfinite(vectors).all():
            return Scores(*headline(dict.fromkeys(ranking_scores(found), np.nan), "ndcg_at_10"))
        bounds = np.searchsorted(found.query, np.arange(1, len(queries)))
        lists = [np.sort(part).tolist() for part in np.split(found.rank, bounds)]
        relevant = [len(each) for each in lists]
        return Scores(*headline(ranking_scores(found), "ndcg_at_10"), lists, relevant)

    def diagnose(
        self, scores: Scores, encoded: Encoded, rows: pa.Table, data: Data
    ) -> Mapping[str, float]:
        return {}


def _numbered(texts: Iterable[str], known: dict[str, int]) -> np.ndarray:
    """Equal texts have equal numbers, in the order of their first appearance."""
    return np.array([known.setdefault(text, len(known)) for text in texts], dtype=np.int64)


@dataclass
class _Batch:
    rows: list[int] = field(default_factory=list)
    texts: set[int] = field(default_factory=set)

    def takes(self, pair: set[int], size: int) -> bool:
        return len(self.rows) < size and not self.texts & pair


def _filled(rows: Iterable[tuple[int, set[int]]], size: int) -> list[_Batch]:
    batches: list[_Batch] = []
    # No need to look at batches before these: they are full, or hold the text already.
    unfilled, after = 0, defaultdict[int, int](int)
    for row, pair in rows:
        place = max(unfilled, *(after[text] for text in pair))
        while place < len(batches) and not batches[place].takes(pair, size):
            place += 1
        if place == len(batches):
            batches.append(_Batch())
        batches[place].rows.append(row)
        batches[place].texts |= pair
        after.update({text: place + 1 for text in pair if after[text] == place})
        while unfilled < len(batches) and len(batches[unfilled].rows) == size:
            unfilled += 1
    return batches


def _embedded(
    model: torch.nn.Module, batch: Mapping[str, torch.Tensor], column: str
) -> torch.Tensor:
    """The mean over a text's tokens, in fp32."""
    inputs = {
        name: batch[f"{column}_{name}"]
        for name in sequences.MODEL_INPUTS
        if f"{column}_{name}" in batch
    }
    hidden: torch.Tensor = sequences.run(model, inputs).last_hidden_state.float()
    mask = inputs["attention_mask"].unsqueeze(-1).float()
    return (hidden * mask).sum(dim=1) / mask.sum(dim=1)


def _unit(vectors: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: np.ndarray = vectors / np.maximum(norms, 1e-12)
    return unit


def _unique(vectors: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of the distinct texts, and each row's position among them."""
    _, first, position = np.unique(ids, return_index=True, return_inverse=True)
    return vectors[first], position

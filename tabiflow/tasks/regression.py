"""Similarity of two sentences: squared error on the raw scores, Pearson correlation."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.nn import functional
from transformers import AutoModelForSequenceClassification

from tabiflow import protocol
from tabiflow.data import Schema
from tabiflow.encoding import Encoded
from tabiflow.tasks import sequences
from tabiflow.tasks.base import Scores
from tabiflow.tasks.metrics import pearson, spearman


class Regression(sequences.Texts):
    def targets(self, rows: pa.Table, schema: Schema) -> dict[str, np.ndarray]:
        return {"score": np.array(rows["score"].to_pylist(), dtype=np.float64)}

    def model(self, source: str, schema: Schema, loading: Mapping[str, Any]) -> torch.nn.Module:
        return sequences.pretrained(
            AutoModelForSequenceClassification, source, loading, num_labels=1
        )

    def collate(self, encoded: Encoded, rows: np.ndarray) -> dict[str, torch.Tensor]:
        scores = torch.from_numpy(sequences.flat(encoded, "score")[rows]).float()
        return {**sequences.model_inputs(encoded, rows), "score": scores}

    def forward(
        self, model: torch.nn.Module, batch: Mapping[str, torch.Tensor], settings: protocol.Protocol
    ) -> tuple[torch.Tensor, torch.Tensor]:
        outputs: torch.Tensor = sequences.run(model, batch).logits.squeeze(-1)
        return self.loss(outputs, batch, settings), outputs

    def loss(
        self,
        outputs: torch.Tensor,
        batch: Mapping[str, torch.Tensor],
        settings: protocol.Protocol,
    ) -> torch.Tensor:
        return functional.mse_loss(outputs.float(), batch["score"], reduction="sum")

    def decode(self, outputs: torch.Tensor, encoded: Encoded, rows: np.ndarray) -> Sequence[float]:
        return outputs.float().tolist()

    def score(self, decoded: Sequence[float], encoded: Encoded, schema: Schema) -> Scores:
        gold, predicted = sequences.flat(encoded, "score"), np.asarray(decoded, dtype=np.float64)
        if schema.label_range is not None:
            predicted = predicted.clip(*schema.label_range)
        return Scores(
            pearson(gold, predicted),
            {"spearman": spearman(gold, predicted)},
            predictions=predicted.tolist(),
            references=gold.tolist(),
        )

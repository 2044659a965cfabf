"""Classes of a text or of a pair of texts: cross-entropy, macro-F1."""

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
from tabiflow.tasks.labels import positions
from tabiflow.tasks.metrics import accuracy, macro_f1


class Classification(sequences.Texts):
    def targets(self, rows: pa.Table, schema: Schema) -> dict[str, np.ndarray]:
        return {"label": positions(rows["label"].to_pylist(), schema)}

    def model(self, source: str, schema: Schema, loading: Mapping[str, Any]) -> torch.nn.Module:
        return sequences.pretrained(
            AutoModelForSequenceClassification, source, loading, num_labels=len(schema.labels)
        )

    def collate(self, encoded: Encoded, rows: np.ndarray) -> dict[str, torch.Tensor]:
        labels = sequences.flat(encoded, "label")[rows]
        return {**sequences.model_inputs(encoded, rows), "label": sequences.long(labels)}

    def forward(
        self, model: torch.nn.Module, batch: Mapping[str, torch.Tensor], settings: protocol.Protocol
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits: torch.Tensor = sequences.run(model, batch).logits
        return self.loss(logits, batch, settings), logits

    def loss(
        self,
        outputs: torch.Tensor,
        batch: Mapping[str, torch.Tensor],
        settings: protocol.Protocol,
    ) -> torch.Tensor:
        return functional.cross_entropy(outputs.float(), batch["label"], reduction="sum")

    def decode(self, outputs: torch.Tensor, encoded: Encoded, rows: np.ndarray) -> Sequence[int]:
        return outputs.argmax(dim=-1).tolist()

    def score(self, decoded: Sequence[int], encoded: Encoded, schema: Schema) -> Scores:
        gold, predicted = sequences.flat(encoded, "label"), np.asarray(decoded)
        return Scores(
            macro_f1(gold, predicted),
            {"accuracy": accuracy(gold, predicted)},
            predictions=predicted.tolist(),
            references=gold.tolist(),
        )

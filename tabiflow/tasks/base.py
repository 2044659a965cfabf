"""What the training loop may ask of a kind of task, and what a score consists of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import torch

from tabiflow import protocol
from tabiflow.data import Data, Schema
from tabiflow.encoding import Encoded, TextEncoder


@dataclass(frozen=True)
class Scores:
    """What a split's predictions are worth."""

    headline: float
    """The kind's metric (`KINDS`), 0 to 100; NaN where it is undefined."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Secondary metrics by name, the headline not repeated."""
    predictions: Sequence[Any] = ()
    """One an item, in the split's order, as an `evaluate` metric takes them; plain JSON values."""
    references: Sequence[Any] = ()


class Task(Protocol):
    """A kind of task. Stateless: whatever a trial needs is passed in."""

    @property
    def separable(self) -> bool:
        """Whether a batch's loss is a sum over its rows, so that a batch may be computed in parts.

        If not, `loss` over the parts' outputs, put together, is the loss of the batch.
        """

    def lengths(
        self, train: pa.Table, text: TextEncoder, settings: protocol.Protocol
    ) -> Mapping[str, int]:
        """Most tokens of each encoded sequence, from the training split alone."""

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
        """Token ids, targets and what scoring needs. Only `training` may leave rows out, and then
        says how many in `excluded` [1]."""

    def model(self, source: str, schema: Schema, loading: Mapping[str, Any]) -> torch.nn.Module:
        """Encoder and head. `loading` goes to `from_pretrained`: revision, attention, trust.

        A new head is drawn from torch's global generator, so the caller seeds it.
        """

    def rows(self, encoded: Encoded) -> int:
        """Examples that batches are drawn from."""

    def batches(self, encoded: Encoded, order: np.ndarray, batch_size: int) -> Sequence[np.ndarray]:
        """Cuts an epoch's order [rows] into batches; the last may be short, none is dropped."""

    def cost(self, encoded: Encoded) -> np.ndarray:
        """Tokens of each example [rows]: what length-sorting sorts by."""

    def collate(self, encoded: Encoded, rows: np.ndarray) -> dict[str, torch.Tensor]:
        """Padded to the longest of these rows, on the CPU."""

    def weight(self, encoded: Encoded, rows: np.ndarray) -> float:
        """What a batch's summed loss is divided by: rows, labelled words, ... 0 where no row of
        the batch has a target; its loss is 0 then."""

    def forward(
        self, model: torch.nn.Module, batch: Mapping[str, torch.Tensor], settings: protocol.Protocol
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The batch's summed loss (a scalar, with gradient) and the raw outputs [rows, ...]."""

    def loss(
        self,
        outputs: torch.Tensor,
        batch: Mapping[str, torch.Tensor],
        settings: protocol.Protocol,
    ) -> torch.Tensor:
        """The summed loss of outputs alone: what `forward` computes after the model, in fp32."""

    def decode(self, outputs: torch.Tensor, encoded: Encoded, rows: np.ndarray) -> Sequence[Any]:
        """One prediction a row of a batch; small, so that no logits are kept over a split."""

    def score(self, decoded: Sequence[Any], encoded: Encoded, schema: Schema) -> Scores:
        """`decoded` holds every example's prediction, in the order of the encoded split."""

    def diagnose(
        self, scores: Scores, encoded: Encoded, rows: pa.Table, data: Data
    ) -> Mapping[str, float]:
        """Further figures of a scored split, too many for every epoch: where its errors are.

        `rows` is what was encoded, `data` what the model was trained on. Never raises for rows
        that were scored.
        """

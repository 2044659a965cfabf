"""How every trial trains, as a value, with the arithmetic of its schedule and of weight decay.

The defaults are TabiBERT section 5.2 with the gaps filled (README, "Protocol"). Knows no torch.
"""

import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveInt

SHORTEST = 8
"""Tokens below which no text is left beside the special ones."""


class Frozen(BaseModel):
    """A value that forbids unknown keys and never changes. Its numbers are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class WeightDecay(Frozen):
    mode: Literal["decoupled", "adamw"] = "decoupled"
    """What a step multiplies weights by: `decoupled` by 1 - wd * lr_t / lr_max, `adamw` (torch's
    own) by 1 - wd * lr_t."""


class Protocol(Frozen):
    """Everything about training but the model, the data and the hyper-parameters under search."""

    version: PositiveInt = 1
    """Raised when a default below changes its meaning, so that old trials are not taken for new."""
    epochs: PositiveInt = 10
    patience: PositiveInt | None = 2
    """Epochs without a lower `stop_on` before training stops; None trains a fixed number."""
    stop_on: Literal["validation_loss", "train_loss_last_batch"] = "validation_loss"
    """What patience watches. The loss of an epoch's last training batch, drawn anew every epoch,
    is what TabiBench's released code watches."""
    keep: Literal["best", "last"] = "best"
    """Whose weights are scored: the epoch's with the lowest validation loss, or the last one's."""
    warmup: float = Field(0.06, ge=0, lt=1)
    """Share of the planned steps over which the rate rises from 0."""
    floor: float = Field(0.02, ge=0, le=1)
    """The rate's share of its maximum at the last planned step."""
    weight_decay: WeightDecay = WeightDecay()
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.98, ge=0, lt=1)
    epsilon: float = Field(1e-6, gt=0)
    clip: float | None = Field(None, gt=0)
    """Largest gradient norm; None does not clip."""
    precision: Literal["bf16", "fp32"] = "bf16"
    """bf16: autocast in training where the device has it; weights and scoring stay fp32."""
    compile: Literal["default", "cuda_graphs"] | None = None
    """torch.compile of training steps, `cuda_graphs` with CUDA graphs on a GPU; None does not."""
    max_length: int | None = Field(None, ge=SHORTEST)
    """Tokens; None is the rule: the training split's 95th percentile, within the model's limit."""
    doc_stride: PositiveInt | None = None
    """QA: tokens that neighbouring windows share; None cuts the context at max_length."""
    dropout: float | None = Field(None, ge=0, lt=1)
    """Overrides every dropout of the model; None keeps the model's own."""
    scale: float = Field(20.0, gt=0)
    """Retrieval: multiplier of the cosine similarity in the in-batch loss."""

    def changed(self) -> dict[str, Any]:
        """The fields that differ from their defaults: what a trial's identity holds of it."""
        changed = self.model_dump(mode="json", exclude_defaults=True)
        # A raised version is the default from then on, and must still change every id.
        return changed if self.version == 1 else {**changed, "version": self.version}


class Params(Frozen):
    """The hyper-parameters under search. Always all three, always part of a trial's identity."""

    learning_rate: float = Field(gt=0)
    weight_decay: NonNegativeFloat = 0.0
    batch_size: PositiveInt = 16


FP32_LOST = 2.0**-25
"""1 - x is exactly 1 in fp32 for 0 <= x below this: half the distance to the next number."""


def decay_is_lost(params: Params, protocol: Protocol) -> bool:
    """Whether no step's weight decay changes any weight, so that it may as well be 0.

    No step's rate is above `learning_rate`, so the first product bounds them all.
    """
    if protocol.weight_decay.mode == "decoupled":
        return False
    return params.learning_rate * params.weight_decay < FP32_LOST


def planned_steps(rows: int, batch_size: int, epochs: int) -> int:
    """Optimizer steps of a full run; the last batch of an epoch may be short but counts."""
    return math.ceil(rows / batch_size) * epochs


def rate_factor(step: int, planned: int, warmup: float, floor: float) -> float:
    """The learning rate's share of its maximum in step 0, 1, ... of `planned`.

    Linear from 0 over the warm-up's whole steps, then linear to `floor` (TabiBERT section 5.2).
    """
    rising = int(warmup * planned)
    if step < rising:
        return step / rising
    progress = (step - rising) / max(1, planned - rising)
    return 1.0 + min(1.0, progress) * (floor - 1.0)


def torch_weight_decay(weight_decay: float, learning_rate: float, mode: str) -> float:
    """What torch's AdamW must be given, which multiplies it by the current learning rate."""
    return weight_decay / learning_rate if mode == "decoupled" else weight_decay

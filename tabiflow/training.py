"""The one training loop: batches, steps, scoring, early stopping.

Knows a task only by its protocol, so that optimizer, schedule and stopping are the same for every
kind. Does not know where models, rows and reports come from or go to.
"""

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Linear, Module
from torch.nn.utils import clip_grad_norm_
from transformers import PreTrainedModel

from tabiflow.batching import cut, length_batches
from tabiflow.compiling import Compiled
from tabiflow.data import Schema
from tabiflow.device import (
    Room,
    generators,
    random_state,
    set_generators,
    set_random_state,
)
from tabiflow.encoding import Encoded
from tabiflow.errors import DataError, Diverged
from tabiflow.protocol import Params, Protocol, planned_steps, rate_factor, torch_weight_decay
from tabiflow.tasks import Scores, Task
from tabiflow.trial import Epoch
from tabiflow.unpadded import is_unpadded

State = dict[str, Any]
Metrics = Callable[[Scores], Mapping[str, float]]

PASS_FLOPS = {"cpu": 2e8, "cuda": 5e12}
"""Arithmetic that a device could do in the fixed time of one forward and backward pass."""
PASS_TOKENS = 64
"""Tokens whose arithmetic takes as long as reading the weights once more, at any size of model."""
CHECK_EVERY = {"cpu": 1, "cuda": 50}
"""Steps between looks at the loss: each look makes a GPU wait."""


@dataclass(frozen=True)
class Recipe:
    """How to train, whatever the model and the data are."""

    params: Params
    protocol: Protocol
    seed: int
    device: torch.device

    @property
    def bf16(self) -> bool:
        """Whether training steps run under autocast; scoring never does."""
        wanted = self.protocol.precision == "bf16" and self.device.type == "cuda"
        return wanted and torch.cuda.is_bf16_supported(including_emulation=False)

    @property
    def compiled(self) -> str | None:
        """How training steps are compiled, if they are: only a GPU has CUDA graphs."""
        wanted = self.protocol.compile
        return "default" if wanted is not None and self.device.type == "cpu" else wanted

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast("cuda", dtype=torch.bfloat16) if self.bf16 else nullcontext()

    def order(self, rows: int, epoch: int) -> np.ndarray:
        """An epoch's order of the rows, drawn from the seed alone: any epoch can be replayed."""
        generator = torch.Generator().manual_seed(((self.seed << 16) + epoch) % 2**63)
        return torch.randperm(rows, generator=generator).numpy()


@dataclass(frozen=True, eq=False)
class Material:
    """What is trained on and scored."""

    task: Task
    schema: Schema
    train: Encoded
    validation: Encoded
    metrics: Metrics = lambda scores: {}
    """Additional validation metrics by name."""


@dataclass(frozen=True)
class Kept:
    """The epoch whose weights the model holds after training."""

    epoch: Epoch
    trained: int
    """Epochs trained in all."""
    seconds: Mapping[str, float]
    """By phase: `train_seconds`, `validation_seconds`, where compiled also `compile_seconds`."""
    largest_part: int | None
    """Most rows computed at once, where memory set a limit."""


@dataclass(frozen=True)
class Evaluation:
    loss: float
    scores: Scores


@dataclass
class Progress:
    """Sums over an epoch; the loss stays on its device, so that no step waits for it."""

    loss: Tensor
    last: Tensor | float = math.nan
    """Mean loss of the latest batch."""
    weight: float = 0.0
    tokens: int = 0
    padded: int = 0
    started: float = field(default_factory=time.perf_counter)

    @property
    def mean(self) -> float:
        return float(self.loss) / (self.weight or 1.0)

    def metrics(self) -> dict[str, float]:
        return {
            "train_loss": self.mean,
            "train_loss_last_batch": float(self.last),
            "train_seconds": time.perf_counter() - self.started,
            "train_tokens": float(self.tokens),
            "train_padding": self.padded / self.tokens if self.tokens else math.nan,
        }


@dataclass
class Watch:
    """The lowest value so far of what early stopping watches, and its epoch."""

    value: float = math.inf
    epoch: int = 0

    def see(self, report: Epoch, value: float) -> None:
        if value < self.value:
            self.value, self.epoch = value, report.epoch


class Training:
    """One model on one data set, from the first step to the kept epoch's weights."""

    def __init__(self, model: Module, material: Material, recipe: Recipe) -> None:
        self.model, self.material, self.recipe = model, material, recipe
        self.task, self.room = material.task, Room(recipe.device)
        self.rows = self.task.rows(material.train)
        if not self.rows or not self.task.rows(material.validation):
            raise DataError("no rows are left to train on or to validate with")
        self.costs = self.task.cost(material.train)
        spare = PASS_FLOPS[recipe.device.type] / (6 * _arithmetic(model))
        self.unpadded = is_unpadded(model)
        self.price = math.inf if self.unpadded else PASS_TOKENS + spare
        self.optimizer = _optimizer(model, recipe)
        self.epoch, self.step = 0, 0
        self.computed = 0
        """Tokens of the latest batch that went through the model, padding included."""
        self.seconds = {"train_seconds": 0.0, "validation_seconds": 0.0}
        self.compiled: Compiled | None = None
        if recipe.compiled is not None:
            self.compiled = Compiled(model, recipe.compiled)
            self.seconds["compile_seconds"] = 0.0
        self.watched = Watch()
        self.kept: Epoch | None = None
        self.kept_weights: dict[str, Tensor] = {}
        self.random = generators(recipe.device)

    def run(self) -> Generator[Epoch, None, Kept]:
        """Yields each epoch's report. Raises Diverged when a loss is no longer finite."""
        while self.epoch < self.recipe.protocol.epochs and not self._out_of_patience():
            # Whoever takes the report may draw random numbers of their own.
            set_generators(self.recipe.device, self.random)
            report = self._next_epoch()
            self.random = generators(self.recipe.device)
            yield report
        assert self.kept is not None
        self.model.load_state_dict(self.kept_weights)
        largest = None if self.room.unlimited else self.room.largest
        return Kept(self.kept, self.epoch, self.seconds, largest)

    def state(self) -> State:
        """Everything that the rest of the run depends on, to be written down between two epochs:
        the tensors are the run's own. An epoch's order follows from its number."""
        kept_now = self.kept is not None and self.kept.epoch == self.epoch
        return {
            "epoch": self.epoch,
            "step": self.step,
            "seconds": dict(self.seconds),
            "watched": asdict(self.watched),
            "kept": None if self.kept is None else asdict(self.kept),
            "kept_weights": None if kept_now else self.kept_weights,
            "largest": self.room.largest,
            "random": self.random,
            "weights": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state(self, state: State) -> None:
        """Goes on where `state` was taken, bit for bit on the CPU."""
        self.epoch, self.step, self.seconds = state["epoch"], state["step"], dict(state["seconds"])
        self.watched = Watch(**state["watched"])
        self.kept = None if state["kept"] is None else Epoch(**state["kept"])
        self.room.largest, self.random = state["largest"], state["random"]
        self.model.load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["kept_weights"] is None:
            self._keep_weights()
        else:
            self.kept_weights = {name: each.clone() for name, each in state["kept_weights"].items()}

    def evaluate(self, encoded: Encoded) -> Evaluation:
        """Loss and scores of a split, in fp32 whatever the training's precision.

        Raises Diverged when the loss is no number: no metric could say more of such outputs.
        """
        batches = self._scoring_batches(encoded)
        losses, weight = 0.0, 0.0
        decoded: list[Any] = [None] * self.task.rows(encoded)
        self.model.eval()
        with torch.no_grad(), _exact_attention(self.model):
            for rows in batches:
                summed, predictions = self._scored(encoded, rows)
                losses, weight = losses + summed, weight + self.task.weight(encoded, rows)
                for row, prediction in predictions:
                    decoded[row] = prediction
        loss = losses / (weight or 1.0)
        if not math.isfinite(loss):
            raise Diverged(f"loss over a scored split is {loss} after epoch {self.epoch}")
        return Evaluation(loss, self.task.score(decoded, encoded, self.material.schema))

    def _out_of_patience(self) -> bool:
        patience = self.recipe.protocol.patience
        return patience is not None and self.epoch - self.watched.epoch >= patience

    def _next_epoch(self) -> Epoch:
        self.epoch += 1
        trained = self._train_epoch()
        started = time.perf_counter()
        validation = self.evaluate(self.material.validation)
        scores = validation.scores
        secondary = {**scores.metrics, **self.material.metrics(scores)}
        seconds = {"validation_seconds": time.perf_counter() - started}
        named = {f"validation_{name}": value for name, value in secondary.items()}
        metrics = {**trained, **seconds, **named}
        self.seconds = {name: spent + metrics[name] for name, spent in self.seconds.items()}
        report = Epoch(self.epoch, scores.headline, validation.loss, metrics)
        self._judge(report)
        return report

    def _judge(self, report: Epoch) -> None:
        protocol = self.recipe.protocol
        last_batch = protocol.stop_on == "train_loss_last_batch"
        self.watched.see(report, report.metrics[protocol.stop_on] if last_batch else report.loss)
        if protocol.keep == "last" or self.kept is None or report.loss < self.kept.loss:
            self.kept = report
            self._keep_weights()

    def _keep_weights(self) -> None:
        """On the CPU, into the same memory every time."""
        for name, tensor in self.model.state_dict().items():
            if name not in self.kept_weights:
                self.kept_weights[name] = torch.empty_like(tensor, device="cpu")
            self.kept_weights[name].copy_(tensor)

    def _train_epoch(self) -> dict[str, float]:
        order = self.recipe.order(self.rows, self.epoch)
        batches = self.task.batches(self.material.train, order, self.recipe.params.batch_size)
        progress = Progress(torch.zeros((), dtype=torch.float64, device=self.recipe.device))
        self.model.train()
        for index, rows in enumerate(batches, start=1):
            self._train_step(rows, progress)
            last = index == len(batches)
            if last or index % CHECK_EVERY[self.recipe.device.type] == 0:
                _must_be_finite(progress.mean, self.epoch, index)
        metrics = progress.metrics()
        if self.compiled is not None:
            metrics["compile_seconds"] = self.compiled.seconds()
            metrics["train_seconds"] -= metrics["compile_seconds"]
        return metrics

    def _train_step(self, rows: np.ndarray, progress: Progress) -> None:
        recipe, weight = self.recipe, self.task.weight(self.material.train, rows)
        planned = planned_steps(self.rows, recipe.params.batch_size, recipe.protocol.epochs)
        factor = rate_factor(self.step, planned, recipe.protocol.warmup, recipe.protocol.floor)
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.params.learning_rate * factor

        def backward(parts: list[np.ndarray]) -> Tensor:
            self.optimizer.zero_grad()
            if self.task.separable or len(parts) == 1:
                return self._backward(parts, weight or 1.0)
            if self.room.unlimited:
                return self._backward_together(parts, weight or 1.0)
            return self._backward_jointly(parts, weight or 1.0)

        self.computed = 0
        loss = self.room.fit(
            lambda largest: cut(rows, self.costs[rows], self.price, largest), backward
        )
        progress.padded += self.computed
        progress.loss += loss
        progress.last = loss / weight if weight else math.nan
        progress.weight += weight
        progress.tokens += int(self.costs[rows].sum())
        if recipe.protocol.clip is not None:
            clip_grad_norm_(self.model.parameters(), recipe.protocol.clip)
        self.optimizer.step()
        self.step += 1

    def _backward(self, parts: Sequence[np.ndarray], weight: float) -> Tensor:
        """Gradients of the whole batch's mean loss; returns its sum."""
        total = torch.zeros((), dtype=torch.float64, device=self.recipe.device)
        for part in parts:
            loss, _ = self._forward(self.material.train, part)
            torch.autograd.backward(loss / weight)
            total += loss.detach()
        return total

    def _backward_together(self, parts: Sequence[np.ndarray], weight: float) -> Tensor:
        """The same for a loss that sees all rows at once, where all parts' graphs fit."""
        outputs = [self._forward(self.material.train, part)[1] for part in parts]
        loss = self.task.loss(torch.cat(outputs), {}, self.recipe.protocol)
        torch.autograd.backward(loss / weight)
        return loss.detach().double()

    def _backward_jointly(self, parts: Sequence[np.ndarray], weight: float) -> Tensor:
        """The same where they do not (GradCache, arXiv:2101.06983): outputs without a graph, the
        loss's gradients at them, then each part again with the same dropout.
        """
        device, before, outputs = self.recipe.device, [], []
        with torch.no_grad():
            for part in parts:
                before.append(random_state(device))
                # A copy: a CUDA graph's next run writes over what the last one put out.
                outputs.append(self._forward(self.material.train, part)[1].clone())
        whole = torch.cat(outputs).requires_grad_()
        loss = self.task.loss(whole, {}, self.recipe.protocol)
        torch.autograd.backward(loss / weight)
        assert whole.grad is not None
        gradients = torch.split(whole.grad, [len(part) for part in parts])
        for part, random, gradient in zip(parts, before, gradients, strict=True):
            set_random_state(device, random)
            torch.autograd.backward(self._forward(self.material.train, part)[1], gradient)
        return loss.detach().double()

    def _forward(self, encoded: Encoded, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        collated = self.task.collate(encoded, rows)
        # A pair of texts is padded to one length each, which no sum over rows would tell.
        masks = (tensor for name, tensor in collated.items() if name.endswith("attention_mask"))
        self.computed += sum(int(each.sum()) if self.unpadded else each.numel() for each in masks)
        batch = {
            name: tensor.to(self.recipe.device, non_blocking=True)
            for name, tensor in collated.items()
        }
        if not self.model.training:
            return self.task.forward(self.model, batch, self.recipe.protocol)
        model = self.model if self.compiled is None else self.compiled.model
        with self.recipe.autocast():
            return self.task.forward(model, batch, self.recipe.protocol)

    def _scoring_batches(self, encoded: Encoded) -> Sequence[np.ndarray]:
        """In order of length; where a loss depends on its batch, always the same batches."""
        if self.task.separable:
            return length_batches(self.task.cost(encoded))
        order = self.recipe.order(self.task.rows(encoded), epoch=0)
        return self.task.batches(encoded, order, self.recipe.params.batch_size)

    def _scored(self, encoded: Encoded, rows: np.ndarray) -> tuple[float, list[tuple[int, Any]]]:
        """A batch's summed loss, and the prediction of each row."""

        def score(parts: list[np.ndarray]) -> tuple[float, list[tuple[int, Any]]]:
            passes = [self._forward(encoded, part) for part in parts]
            losses = [loss for loss, _ in passes]
            if not self.task.separable and len(parts) > 1:
                whole = torch.cat([outputs for _, outputs in passes])
                losses = [self.task.loss(whole, {}, self.recipe.protocol)]
            predictions = [
                (int(row), prediction)
                for part, (_, outputs) in zip(parts, passes, strict=True)
                for row, prediction in zip(
                    part, self.task.decode(outputs, encoded, part), strict=True
                )
            ]
            return sum(map(float, losses)), predictions

        costs = self.task.cost(encoded)[rows]
        return self.room.fit(lambda largest: cut(rows, costs, self.price, largest), score)


def _optimizer(model: Module, recipe: Recipe) -> torch.optim.AdamW:
    """Decay touches weight matrices, not biases and norms."""
    params, protocol = recipe.params, recipe.protocol
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decay = torch_weight_decay(
        params.weight_decay, params.learning_rate, protocol.weight_decay.mode
    )
    groups = [
        {"params": [each for each in trained if each.ndim >= 2], "weight_decay": decay},
        {"params": [each for each in trained if each.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups,
        lr=params.learning_rate,
        betas=(protocol.beta1, protocol.beta2),
        eps=protocol.epsilon,
        fused=True,
    )


def _arithmetic(model: Module) -> int:
    """Weights that every token is multiplied with; embeddings are only looked up."""
    linear = (module.weight.numel() for module in model.modules() if isinstance(module, Linear))
    return sum(linear) or 1


def _must_be_finite(loss: float, epoch: int, step: int) -> None:
    if not math.isfinite(loss):
        raise Diverged(f"training loss is {loss} in epoch {epoch}, step {step}")


@contextmanager
def attention(model: Module, implementation: str) -> Iterator[None]:
    """Another attention implementation, for a while."""
    parts = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    before = [part.config._attn_implementation for part in parts]
    try:
        for part in parts:
            part.set_attn_implementation(implementation)
        yield
    finally:
        for part, former in zip(parts, before, strict=True):
            part.set_attn_implementation(former)


def _exact_attention(model: Module) -> AbstractContextManager[None]:
    """Flash attention knows no fp32, which is what scores are computed in."""
    parts = (module for module in model.modules() if isinstance(module, PreTrainedModel))
    flash = any(part.config._attn_implementation == "flash_attention_2" for part in parts)
    return attention(model, "sdpa") if flash else nullcontext()

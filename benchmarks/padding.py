"""Tokens computed for a real one, data set by data set, with the batches of the seed's order.

    python benchmarks/padding.py

Counts whole epochs of the four data sets as the training loop cuts them where it pads, without
computing them; then trains on a few rows three times, with batches cut so, with real tokens alone
(as on a CPU) and with every batch padded to max_length, and compares the losses of the whole runs.
Writes `results/padding.md`.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import workload
from torch.nn import functional
from workload import SEED, SLICES, Slice

from tabiflow import data
from tabiflow.batching import cut
from tabiflow.encoding import Encoded, text_encoder
from tabiflow.protocol import Params, Protocol
from tabiflow.registry import resolve
from tabiflow.spec import Dataset, Model, Sweep
from tabiflow.tasks import TASKS
from tabiflow.training import Material, Recipe, Training
from tabiflow.unpadded import unpad

WANTED = 1.6
EVERYTHING = 10**6


@dataclass(frozen=True)
class Measured:
    name: str
    batch_size: int
    max_length: float
    dynamic: float
    """Each batch padded to its longest row."""
    cut: float
    validation: float


@dataclass(frozen=True)
class Apart:
    """The largest relative difference from the losses of max_length, trained and scored."""

    cut: float
    unpadded: float
    computed: float
    """Tokens that the unpadded run has computed for a real one."""


@dataclass(frozen=True)
class Prepared:
    each: Slice
    material: Material
    lengths: dict[str, int]
    model: Path

    def training(
        self,
        batch_size: int,
        material: Material | None = None,
        *,
        unpadded: bool = False,
        **protocol: Any,
    ) -> Training:
        torch.manual_seed(SEED)
        used = material or self.material
        net = used.task.model(str(self.model), used.schema, {"dtype": torch.float32})
        if unpadded and not unpad(net):
            raise SystemExit("the benchmark's encoder cannot be computed without padding")
        told = Protocol(**{"epochs": 2, "patience": None, "precision": "fp32", **protocol})
        how = Params(learning_rate=3e-5, batch_size=batch_size)
        return Training(net, used, Recipe(how, told, SEED, torch.device("cpu")))


class Widened:
    """A task whose batches are all padded to the length of `max_length`."""

    def __init__(self, task: Any, lengths: dict[str, int]) -> None:
        self.task, self.lengths = task, lengths

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def collate(self, encoded: Encoded, rows: np.ndarray) -> dict[str, torch.Tensor]:
        batch = self.task.collate(encoded, rows)
        for name in [name for name in batch if name.endswith("input_ids")]:
            column = name.removesuffix("input_ids")
            width, shape = self.lengths[column.rstrip("_") or "text"], batch[name].shape
            for other, tensor in batch.items():
                if other.startswith(column) and tensor.shape == shape:
                    value = -100 if other == "labels" else 0
                    batch[other] = functional.pad(tensor, (0, width - shape[1]), value=value)
        return batch

    def decode(self, outputs: torch.Tensor, encoded: Encoded, rows: np.ndarray) -> Any:
        if outputs.ndim == 3:  # an output a token
            outputs = outputs[:, : int(self.task.cost(encoded)[rows].max())]
        return self.task.decode(outputs, encoded, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    results = parser.parse_args().results
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="padding-") as folder:
        whole = prepare(Path(folder) / "whole", train=EVERYTHING, validation=EVERYTHING)
        counted = [_counted(each, size) for each in whole for size in (16, 32)]
        few = prepare(Path(folder) / "few", train=48, validation=24)
        apart = {each.each.name: _apart(each) for each in few}
    table = "\n".join(_table(counted, apart))
    results.mkdir(parents=True, exist_ok=True)
    (results / "padding.md").write_text(table + "\n")
    print(table)


def prepare(folder: Path, **rows: int) -> list[Prepared]:
    chosen = [replace(each, **rows) for each in SLICES]
    written = workload.write(folder, chosen, {"learning_rate": [3e-5]})
    file = folder / "sweep.yaml"
    file.write_text(json.dumps(written.sweep()))
    grid = resolve(Sweep.read(file))
    rows_of = {row.name: row for row in grid.datasets}
    return [_encoded(each, grid.models[0], rows_of[each.name]) for each in chosen]


def _encoded(each: Slice, model: Model, row: Dataset) -> Prepared:
    task, text, loaded = TASKS[row.task], text_encoder(model), data.load(row, {})
    protocol = Protocol(max_length=each.max_length)
    lengths = dict(task.lengths(loaded.train, text, protocol))
    train, validation = (
        task.encode(rows, text, loaded.schema, lengths, protocol, training=training)
        for rows, training in ((loaded.train, True), (loaded.validation, False))
    )
    return Prepared(each, Material(task, loaded.schema, train, validation), lengths, model.path)


def _counted(prepared: Prepared, batch_size: int) -> Measured:
    training, task = prepared.training(batch_size), prepared.material.task
    train, validation = prepared.material.train, prepared.material.validation
    batches = task.batches(train, training.recipe.order(training.rows, 1), batch_size)
    parts = [part for rows in batches for part in _cut(training, train, rows)]
    scored = [
        part
        for rows in training._scoring_batches(validation)
        for part in _cut(training, validation, rows)
    ]
    real = float(task.cost(train).sum())
    return Measured(
        prepared.each.name,
        batch_size,
        training.rows * sum(prepared.lengths.values()) / real,
        _computed(task, train, batches) / real,
        _computed(task, train, parts) / real,
        _computed(task, validation, scored) / float(task.cost(validation).sum()),
    )


def _cut(training: Training, encoded: Encoded, rows: np.ndarray) -> list[np.ndarray]:
    return cut(rows, training.task.cost(encoded)[rows], training.price, EVERYTHING)


def _computed(task: Any, encoded: Encoded, parts: Sequence[np.ndarray]) -> int:
    batches = (task.collate(encoded, rows) for rows in parts)
    return sum(
        tensor.numel()
        for batch in batches
        for name, tensor in batch.items()
        if name.endswith("input_ids")
    )


def _apart(prepared: Prepared) -> Apart:
    given = prepared.material
    wide = prepared.training(16, replace(given, task=Widened(given.task, prepared.lengths)))
    wide.price = math.inf
    trained = (wide, prepared.training(16), prepared.training(16, unpadded=True))
    runs = [[*each.run()] for each in trained]
    padded, cut, unpadded = (
        np.array([(each.loss, each.metrics["train_loss"]) for each in run]) for run in runs
    )
    return Apart(
        float(np.max(np.abs(cut - padded) / padded)),
        float(np.max(np.abs(unpadded - padded) / padded)),
        max(each.metrics["train_padding"] for each in runs[-1]),
    )


def _table(counted: Sequence[Measured], apart: dict[str, Apart]) -> Iterator[str]:
    yield "# Tokens computed for a real one"
    yield ""
    yield f"Wanted: at most {WANTED:g}; losses of a whole run within 1e-5 of those of max_length."
    yield "Batches are cut where an encoder pads, as on a GPU; on a CPU most take real ones alone."
    yield ""
    yield (
        "| data set | batch | max_length | longest row | cut | validation | real alone "
        "| losses apart, cut | real alone |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for each in counted:
        losses = apart[each.name]
        figures = (each.max_length, each.dynamic, each.cut, each.validation, losses.computed)
        told = " | ".join(f"{figure:.2f}" for figure in figures)
        row = f"{each.name} | {each.batch_size} | {told} | {losses.cut:.1e} | {losses.unpadded:.1e}"
        yield f"| {row} |"


if __name__ == "__main__":
    main()

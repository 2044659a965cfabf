"""The loop against an independent trainer, closed formulas, and its own whole batches."""

import copy
import io
import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import Trainer, TrainingArguments

from tabiflow.device import generators
from tabiflow.errors import DataError, Diverged
from tabiflow.protocol import Params, Protocol
from tabiflow.tasks import Scores
from tabiflow.training import Kept, Material, Recipe, Training, attention
from tests.samples import material
from tests.tiny import tiny_model

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return {
        "still": tiny_model(root / "still", dropout=0.0),
        "dropout": tiny_model(root / "dropout"),
        "modernbert": tiny_model(root / "modernbert", "modernbert", dropout=0.0),
    }


def recipe(batch_size: int = 8, seed: int = 25, weight_decay: float = 0.0, **protocol) -> Recipe:
    """`decay` stands for the protocol's field `weight_decay`."""
    protocol["weight_decay"] = protocol.pop("decay", {})
    params = Params(learning_rate=1e-3, weight_decay=weight_decay, batch_size=batch_size)
    return Recipe(params, Protocol(**{"epochs": 2, **protocol}), seed, CPU)


def load(folder, given: Material, double: bool = False) -> torch.nn.Module:
    torch.manual_seed(25)
    model = given.task.model(str(folder), given.schema, {"dtype": torch.float32})
    return model.double() if double else model


def finish(training: Training) -> tuple[list, Kept]:
    epochs, run = [], training.run()
    while True:
        try:
            epochs.append(next(run))
        except StopIteration as end:
            return epochs, end.value


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(first: dict, second: dict) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


class Watched:
    """A task that notes the mean loss of each training batch."""

    def __init__(self, task):
        self.task, self.losses = task, []

    def __getattr__(self, name):
        return getattr(self.task, name)

    def forward(self, model, batch, settings):
        loss, outputs = self.task.forward(model, batch, settings)
        if model.training:
            labels = batch.get("labels")
            count = len(outputs) if labels is None else int((labels != -100).sum())
            self.losses.append(float(loss.detach()) / count)
        return loss, outputs


# The oracle: transformers' Trainer, with its own loss, optimizer and schedule.


class Oracle(Trainer):
    def __init__(self, batches: Sequence[np.ndarray], collate, **fields):
        super().__init__(**fields)
        self.batches, self.collate, self.losses = batches, collate, []

    def get_train_dataloader(self):
        return torch.utils.data.DataLoader(
            range(10**6),
            batch_sampler=[each.tolist() for each in self.batches],
            collate_fn=self.collate,
        )

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss = model(**inputs).loss
        self.losses.append(float(loss.detach()))
        return loss


def oracle(model, given: Material, how: Recipe, folder) -> Oracle:
    """One epoch of the same batches. Labels go to the model, which has a loss of its own."""
    rows, params = given.task.rows(given.train), how.params
    batches = given.task.batches(given.train, how.order(rows, 1), params.batch_size)

    def collate(picked):
        batch = given.task.collate(given.train, np.array(picked))
        return {"labels" if name in ("label", "score") else name: batch[name] for name in batch}

    steps = math.ceil(rows / params.batch_size)
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        learning_rate=params.learning_rate,
        weight_decay=params.weight_decay / params.learning_rate,
        adam_beta1=0.9,
        adam_beta2=0.98,
        adam_epsilon=1e-6,
        max_grad_norm=0.0,
        lr_scheduler_type="polynomial",
        lr_scheduler_kwargs={"lr_end": 0.02 * params.learning_rate, "power": 1.0},
        warmup_steps=int(0.06 * steps),
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        logging_strategy="no",
    )
    return Oracle(batches, collate, model=model, args=arguments)


@pytest.mark.parametrize("kind", ["classification", "pos", "sts"])
def test_losses_and_weights_are_those_of_transformers_trainer(kind, folders, tmp_path):
    given = material(kind, folders["still"], rows=150)
    how = recipe(weight_decay=1e-2, epochs=1, precision="fp32")
    ours = load(folders["still"], given)
    theirs = oracle(copy.deepcopy(ours), given, how, tmp_path)
    watched = Watched(given.task)
    training = Training(ours, replace(given, task=watched), how)
    finish(training)
    theirs.train()
    assert len(watched.losses) == 19
    assert watched.losses == pytest.approx(theirs.losses, rel=1e-5)
    for name, tensor in theirs.model.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], tensor, rtol=1e-4, atol=2e-6)


# Closed formulas.


def test_the_rate_of_every_step_follows_the_closed_formula(folders):
    given, rates = material("classification", folders["still"], rows=50), []
    training = Training(load(folders["still"], given), given, recipe(epochs=10, patience=None))
    training.model.register_forward_pre_hook(
        lambda module, _: (
            rates.append(training.optimizer.param_groups[0]["lr"]) if module.training else None
        )
    )
    finish(training)
    planned, rising = 70, 4
    expected = [
        1e-3 * (step / 4 if step < rising else 1 - 0.98 * (step - rising) / (planned - rising))
        for step in range(planned)
    ]
    assert rates == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("mode", ["decoupled", "adamw"])
def test_decay_shrinks_untouched_weights_by_the_product_of_its_steps(mode, folders):
    given = material("classification", folders["still"], rows=40)
    how = recipe(weight_decay=0.05, epochs=4, patience=None, decay={"mode": mode})
    model = load(folders["still"], given)
    # Single texts never look up the second token type, so its gradient is exactly 0.
    untouched = "bert.embeddings.token_type_embeddings.weight"
    before = weights(model)[untouched][1]
    training = Training(model, given, how)
    for _ in training.run():
        after = weights(model)[untouched][1]
    rates = [step if step < 1 else 1 - 0.98 * (step - 1) / 19 for step in range(20)]
    per_step = 0.05 if mode == "decoupled" else 0.05 * 1e-3
    expected = math.prod(1 - per_step * rate for rate in rates)
    torch.testing.assert_close(after, before * expected, rtol=1e-5, atol=0)


def test_decay_leaves_biases_and_norms_alone(folders):
    given = material("classification", folders["still"], rows=8)
    training = Training(load(folders["still"], given), given, recipe(weight_decay=1.0))
    decayed, spared = training.optimizer.param_groups
    assert {parameter.ndim for parameter in decayed["params"]} == {2}
    assert {parameter.ndim for parameter in spared["params"]} == {1}
    assert (decayed["weight_decay"], spared["weight_decay"]) == (1000.0, 0.0)


def test_gradients_are_clipped_where_the_protocol_asks(folders):
    given = material("classification", folders["still"], rows=8)
    model = load(folders["still"], given)
    finish(Training(model, given, recipe(clip=1e-3, epochs=1)))
    norms = [each.grad.norm() for each in model.parameters() if each.grad is not None]
    assert float(torch.stack(norms).norm()) == pytest.approx(1e-3, rel=1e-2)


# Early stopping, on a task whose validation losses are written down.


class Scripted:
    separable = True

    def __init__(self, losses, training=()):
        self.losses, self.training = iter(losses), iter(training)

    def rows(self, encoded):
        return 4

    def cost(self, encoded):
        return np.ones(4)

    def batches(self, encoded, order, batch_size):
        return [order]

    def collate(self, encoded, rows):
        return {}

    def weight(self, encoded, rows):
        return 1.0

    def forward(self, model, batch, settings):
        if not model.training:
            return torch.tensor(next(self.losses)), torch.zeros(4)
        weight = model.weight.sum()
        loss = weight - weight.detach() + next(self.training, 1.0)
        return loss, torch.zeros(4)

    def decode(self, outputs, encoded, rows):
        return outputs.tolist()

    def score(self, decoded, encoded, schema):
        return Scores(50.0)


def scripted(losses, training=(), **protocol) -> Training:
    given = Material(Scripted(losses, training), SimpleNamespace(), {}, {})
    return Training(torch.nn.Linear(1, 1, bias=False), given, recipe(**protocol))


@pytest.mark.parametrize(
    ("losses", "patience", "kept", "trained"),
    [
        ([5.0, 4.0, 3.0, 2.0], 2, 4, 4),
        ([3.0, 4.0, 5.0, 1.0], 2, 1, 3),
        ([3.0, 3.0, 3.0, 1.0], 2, 1, 3),
        ([3.0, 4.0, 2.0, 3.0], 2, 3, 4),
        ([3.0, 4.0, 1.0, 1.0], 1, 1, 2),
        ([3.0, 4.0, 5.0, 1.0], None, 4, 4),
    ],
)
def test_training_stops_after_epochs_without_a_lower_loss(losses, patience, kept, trained):
    training = scripted(losses, epochs=4, patience=patience)
    weight, seen = training.model.weight.detach(), []
    for _ in (run := training.run()):
        seen.append(float(weight))
    assert len(seen) == trained
    assert float(weight) == seen[kept - 1]
    assert training.kept.epoch == kept
    assert run.gi_frame is None


@pytest.mark.parametrize(
    ("switches", "kept", "trained"),
    [
        ({}, 3, 5),
        ({"keep": "last"}, 5, 5),
        ({"stop_on": "train_loss_last_batch"}, 3, 4),
        ({"stop_on": "train_loss_last_batch", "keep": "last"}, 4, 4),
        ({"stop_on": "train_loss_last_batch", "patience": 3}, 3, 6),
        ({"keep": "last", "patience": None}, 6, 6),
    ],
)
def test_switches_allow_the_choices_of_the_released_code(switches, kept, trained):
    validation, last_batches = [6.0, 5.0, 4.0, 5.0, 5.0, 5.0], [3.0, 2.0, 2.0, 9.0, 1.0, 1.0]
    training = scripted(validation, last_batches, **{"epochs": 6, "patience": 2, **switches})
    weight, seen = training.model.weight.detach(), []
    for _ in training.run():
        seen.append(float(weight))
    assert (len(seen), training.kept.epoch) == (trained, kept)
    assert float(weight) == seen[kept - 1] and len(set(seen)) == trained


def test_the_last_batchs_loss_is_that_of_the_last_batch_alone(folders):
    given = material("classification", folders["still"], rows=20)
    watched = Watched(given.task)
    training = Training(load(folders["still"], given), replace(given, task=watched), recipe())
    training.price = math.inf
    epochs, _ = finish(training)
    reported = [each.metrics["train_loss_last_batch"] for each in epochs]
    assert reported == pytest.approx(watched.losses[2::3]) and len(watched.losses) == 6


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_validation_loss_that_is_no_number_is_divergence(loss):
    with pytest.raises(Diverged, match=r"is (nan|inf) after epoch 2"):
        finish(scripted([3.0, loss], epochs=3))


def test_a_training_loss_that_is_no_number_is_divergence(folders):
    given = material("sts", folders["still"])
    model = load(folders["still"], given)
    model.classifier.weight.data[0, 0] = math.nan
    with pytest.raises(Diverged, match="training loss is nan in epoch 1, step 1"):
        finish(Training(model, given, recipe()))


def test_nothing_to_train_on_is_the_datas_fault():
    given = Material(SimpleNamespace(rows=lambda _: 0), SimpleNamespace(), {}, {})
    with pytest.raises(DataError, match="no rows"):
        Training(torch.nn.Linear(1, 1), given, recipe())


# Splitting a batch.


def gradients(folder, given: Material, double: bool, **room) -> dict[str, torch.Tensor]:
    """Of one step over all rows; `room` says how the batch is to be cut, or what fits."""
    model = cramped(load(folder, given, double), room.get("fits", 1000))
    training = Training(model, given, recipe(1000, epochs=1))
    training.price = room.get("price", training.price)
    training.room.largest = room.get("largest", training.room.largest)
    finish(training)
    named = training.model.named_parameters()
    return {name: each.grad for name, each in named if each.grad is not None}


def norm(tensors) -> float:
    return float(torch.cat([each.double().flatten() for each in tensors]).norm())


@pytest.mark.parametrize(("double", "bound"), [(False, 1e-6), (True, 1e-12)], ids=["fp32", "fp64"])
@pytest.mark.parametrize("kind", ["classification", "pos", "sts", "qa", "retrieval"])
def test_a_batch_in_parts_has_the_gradients_of_the_whole(kind, double, bound, folders):
    given = material(kind, folders["still"], rows=20, validation=4)
    whole = gradients(folders["still"], given, double)
    for room in ({"largest": 3}, {"price": 0.0}, {"fits": 3}):
        parts = gradients(folders["still"], given, double, **room)
        assert whole.keys() == parts.keys()
        assert norm(whole[name] - parts[name] for name in whole) < bound * norm(whole.values())


def cramped(model: torch.nn.Module, rows: int) -> torch.nn.Module:
    """Memory for so many rows."""

    def check(module, args, inputs):
        if len(inputs["input_ids"]) > rows:
            raise torch.OutOfMemoryError("out of memory")

    model.register_forward_pre_hook(check, with_kwargs=True)
    return model


@pytest.mark.parametrize("kind", ["classification", "retrieval"])
def test_running_out_of_memory_changes_nothing_but_the_parts(kind, folders):
    given = material(kind, folders["dropout"], rows=20, validation=8)
    short = Training(cramped(load(folders["dropout"], given), 3), given, recipe())
    known = Training(load(folders["dropout"], given), given, recipe())
    known.room.largest = 2
    torch.manual_seed(1)
    short.random = known.random = generators(CPU)
    _, kept = finish(short)
    finish(known)
    assert kept.largest_part == 2
    assert same(weights(short.model), weights(known.model))


class Widened:
    """A task whose batches are all padded to one length."""

    def __init__(self, task, width):
        self.task, self.width = task, width

    def __getattr__(self, name):
        return getattr(self.task, name)

    def collate(self, encoded, rows):
        batch = self.task.collate(encoded, rows)
        shapes = {tensor.shape for name, tensor in batch.items() if name.endswith("input_ids")}
        for name, tensor in batch.items():
            if tensor.shape in shapes:
                missing = (0, self.width - tensor.shape[1])
                value = -100 if name == "labels" else 0
                batch[name] = torch.nn.functional.pad(tensor, missing, value=value)
        return batch

    def decode(self, outputs, encoded, rows):
        longest = int(self.task.cost(encoded)[rows].max())
        of_tokens = outputs.ndim == 3
        return self.task.decode(outputs[:, :longest] if of_tokens else outputs, encoded, rows)


@pytest.mark.parametrize("kind", ["classification", "pos", "sts", "qa", "retrieval"])
def test_losses_of_a_whole_run_are_those_of_padding_to_max_length(kind, folders):
    given, how, runs = material(kind, folders["still"]), recipe(epochs=3, patience=None), []
    for task, price in ((given.task, 0.0), (Widened(given.task, 64), math.inf)):
        training = Training(load(folders["still"], given), replace(given, task=task), how)
        training.price = price
        runs.append(finish(training)[0])
    for ours, wide in zip(*runs, strict=True):
        assert ours.loss == pytest.approx(wide.loss, rel=1e-5)
        assert ours.metrics["train_loss"] == pytest.approx(wide.metrics["train_loss"], rel=1e-5)
        assert ours.metrics["train_padding"] < 1.2 < 1.6 < wide.metrics["train_padding"]


def test_a_single_row_that_does_not_fit_is_out_of_memory(folders):
    given = material("classification", folders["still"], rows=8)
    with pytest.raises(torch.OutOfMemoryError):
        finish(Training(cramped(load(folders["still"], given), 0), given, recipe()))


# Reproducing.


def test_an_epochs_order_depends_on_seed_and_epoch_alone():
    first = recipe(seed=25).order(100, 3)
    torch.rand(5)
    assert (first == recipe(seed=25).order(100, 3)).all()
    assert (first != recipe(seed=25).order(100, 4)).any()
    assert (first != recipe(seed=26).order(100, 3)).any()


@pytest.mark.parametrize("boundary", [1, 2, 3])
def test_a_resumed_run_ends_bit_identical(boundary, folders):
    given, how = material("pos", folders["dropout"]), recipe(epochs=4, weight_decay=1e-5)
    whole = Training(load(folders["dropout"], given), given, how)
    epochs, stored = [], io.BytesIO()
    for report in whole.run():
        epochs.append(report)
        if report.epoch == boundary:
            torch.save(whole.state(), stored)
    torch.rand(7)
    resumed = Training(load(folders["dropout"], given), given, how)
    resumed.load_state(torch.load(io.BytesIO(stored.getvalue())))
    rest, _ = finish(resumed)
    assert [each.loss for each in rest] == [each.loss for each in epochs[boundary:]]
    assert same(weights(whole.model), weights(resumed.model))


def test_whoever_draws_between_epochs_changes_nothing(folders):
    given, losses = material("sts", folders["dropout"]), []
    for disturbed in (False, True):
        training = Training(load(folders["dropout"], given), given, recipe(epochs=3))
        for report in training.run():
            losses.append(report.loss)
            torch.rand(int(disturbed))
    assert losses[:3] == losses[3:]


def test_another_attention_lasts_only_for_a_while(folders):
    given = material("classification", folders["modernbert"])
    training = Training(load(folders["modernbert"], given), given, recipe())
    usual = training.evaluate(given.validation).loss
    with attention(training.model, "eager"):
        assert training.model.config._attn_implementation == "eager"
        assert training.evaluate(given.validation).loss == pytest.approx(usual, rel=1e-5)
    assert training.model.config._attn_implementation == "sdpa"


def test_an_epoch_reports_what_it_cost(folders):
    given = material("classification", folders["still"])
    epochs, kept = finish(Training(load(folders["still"], given), given, recipe()))
    metrics = epochs[0].metrics
    assert metrics["train_tokens"] == given.task.cost(given.train).sum()
    assert metrics["train_padding"] > 1
    assert kept.seconds["train_seconds"] == sum(each.metrics["train_seconds"] for each in epochs)
    assert "validation_accuracy" in metrics

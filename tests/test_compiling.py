"""Compiled training steps: the same losses, compiling told apart, refusals explained."""

import sys

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache

from tabiflow import compiling
from tabiflow.errors import ModelError
from tabiflow.spent import Spent
from tabiflow.training import Training
from tests import samples
from tests.samples import material
from tests.test_finetune import finish
from tests.test_training import finish as trained
from tests.test_training import load, recipe
from tests.tiny import tiny_model

# torch's own compiler calls what torch has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model") / "bert")


@pytest.fixture
def traced(monkeypatch):
    """Without the minutes in which kernels are written and built: the traced graphs are run."""
    with_backend(monkeypatch, "aot_eager")


@pytest.fixture
def captured(monkeypatch):
    """Not even gradients are traced."""
    with_backend(monkeypatch, "eager")


def with_backend(monkeypatch, backend):
    whole = torch.compile
    monkeypatch.setattr(
        torch,
        "compile",
        lambda model, *, dynamic, options: whole(model, dynamic=dynamic, backend=backend),
    )


def losses(kind, folder, how):
    given = material(kind, folder)
    training = Training(load(folder, given), given, recipe(compile=how))
    # Batches in parts; those of retrieval are computed twice, with the same dropout.
    training.room.largest = 3
    torch.manual_seed(1)
    epochs, _ = trained(training)
    return [loss for each in epochs for loss in (each.loss, each.metrics["train_loss"])]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pos", "sts", "qa", "retrieval"])
def test_a_compiled_run_has_the_losses_of_one_that_is_not(kind, folder, traced):
    counters.clear()
    plain = losses(kind, folder, None)
    assert losses(kind, folder, "default") == pytest.approx(plain, rel=1e-5)
    # A graph for any length and number of rows, others for one row and without gradients.
    assert 1 <= counters["stats"]["unique_graphs"] <= 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classification", "retrieval"])
def test_so_it_has_with_the_kernels_that_torch_builds(kind, folder):
    with fresh_cache():
        compiled = losses(kind, folder, "default")
    assert compiled == pytest.approx(losses(kind, folder, None), rel=1e-5)


def test_a_compiled_trial_scores_the_same_and_compiling_counts_as_its_start(tmp_path, captured):
    how = {"epochs": 1, "dropout": 0.0}
    plain, _ = finish(samples.job(tmp_path, **how))
    epochs, result = finish(samples.job(tmp_path, **how, compile="cuda_graphs"))
    assert epochs[0].loss == pytest.approx(plain[0].loss, rel=1e-5)
    facts = result.facts
    assert facts["compiled"] == "default"  # a CPU has no CUDA graphs
    assert facts["compile_seconds"] > 0 < facts["train_seconds"]
    held = sum(facts[f"{name}_seconds"] for name in ("compile", "train", "validation")) + 1
    spent = Spent.of({**facts, "held_seconds": held})
    assert spent.training == facts["train_seconds"]
    assert spent.start + spent.data == pytest.approx(facts["compile_seconds"] + 1)


def test_a_warm_process_compiles_anew_and_counts_it(captured):
    for _ in range(2):
        compiled = compiling.Compiled(torch.nn.Linear(2, 2), "default")
        compiled.model(torch.ones(3, 2))
        assert compiled.seconds() > 0
        assert compiled.seconds() == 0
        compiled.model(torch.ones(4, 2))  # of another length, by the same code
        assert compiled.seconds() == 0


def test_a_trial_that_is_not_compiled_says_so(tmp_path):
    _, result = finish(samples.job(tmp_path, epochs=1))
    assert result.facts["compiled"] == "no"
    assert "compile_seconds" not in result.facts


def test_a_compiler_that_gives_up_is_explained_in_one_line(tmp_path, monkeypatch):
    def broken(graph, inputs):
        raise OSError("there is no g++\nat all")

    with_backend(monkeypatch, broken)
    with pytest.raises(ModelError) as refused:
        finish(samples.job(tmp_path, epochs=1, compile="default"))
    told = "torch.compile gives up: OSError: there is no g++; leave `compile` out of the protocol"
    assert str(refused.value) == told


def test_other_errors_pass_as_they_are(monkeypatch):
    for error in (RuntimeError("else"), torch.OutOfMemoryError("no room")):
        with pytest.raises(type(error)) as passed, compiling.explained():
            raise error
        assert passed.value is error
    monkeypatch.delitem(sys.modules, "torch._dynamo.exc")
    with pytest.raises(RuntimeError, match="else"), compiling.explained():
        raise RuntimeError("else")

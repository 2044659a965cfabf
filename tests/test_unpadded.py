"""Encoders over real tokens alone against the same encoders over padded rows."""

import copy
import math

import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    BertForSequenceClassification,
    CamembertConfig,
    DistilBertConfig,
    ElectraConfig,
    ModernBertConfig,
    RobertaConfig,
    XLMRobertaConfig,
)

from tabiflow.tasks.sequences import run
from tabiflow.training import Training
from tabiflow.unpadded import FIRST, KNOWN, is_unpadded, unpad
from tests.samples import material
from tests.test_training import Widened, finish, folders, load, recipe, same, weights

__all__ = ["folders"]

SMALL = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "initializer_range": 0.3,
}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
CONFIGS = {
    "bert": BertConfig(**SMALL, **STILL),
    "camembert": CamembertConfig(**SMALL, **STILL),
    "electra": ElectraConfig(**SMALL, **STILL, embedding_size=16),
    "modernbert": ModernBertConfig(
        **SMALL, local_attention=16, global_attn_every_n_layers=2, bos_token_id=2, eos_token_id=3
    ),
    "roberta": RobertaConfig(**SMALL, **STILL),
    "xlm-roberta": XLMRobertaConfig(**SMALL, **STILL),
}
HEADS = {
    "none": AutoModel,
    "sequence": AutoModelForSequenceClassification,
    "tokens": AutoModelForTokenClassification,
    "spans": AutoModelForQuestionAnswering,
}
LENGTHS = (40, 3, 17, 17, 1, 26)


def batch() -> dict[str, torch.Tensor]:
    """Longer and shorter than the window; the padding id, which any text may spell, among them."""
    torch.manual_seed(3)
    mask = (torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]).long()
    ids = torch.where(mask == 1, torch.randint(4, 50, mask.shape), 1)
    ids[2, 5] = 1
    return {"input_ids": ids, "attention_mask": mask}


def model(kind: str, head: str = "none") -> torch.nn.Module:
    torch.manual_seed(5)
    config = copy.deepcopy(CONFIGS[kind])
    return HEADS[head].from_config(config, attn_implementation="sdpa").double()


def outputs(net: torch.nn.Module, given: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Of real tokens where there is one a token."""
    mask = given["attention_mask"].bool()
    found = [each for each in run(net, given).to_tuple() if isinstance(each, torch.Tensor)]
    return [each[mask] if each.shape[:2] == mask.shape else each for each in found]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("kind", sorted(KNOWN))
def test_outputs_and_gradients_are_those_of_padded_rows(kind, head):
    found = []
    for net in (model(kind, head), model(kind, head)):
        assert not found or unpad(net)
        told = outputs(net, batch())
        sum(each.sin().sum() for each in told).backward()
        gradients = {name: each.grad for name, each in net.named_parameters()}
        found.append((told, [each for each in gradients.values() if each is not None]))
    for padded, unpadded in zip(*found, strict=True):
        for one, other in zip(padded, unpadded, strict=True):
            assert torch.allclose(one, other, rtol=1e-10, atol=1e-10)
    assert found[0][0] and all(each.std() > 1e-3 for each in found[0][0])


def test_token_types_go_with_their_tokens():
    given = batch()
    given["token_type_ids"] = given["attention_mask"] * (torch.arange(max(LENGTHS)) % 3 == 0)
    padded, unpadded = model("bert"), model("bert")
    assert unpad(unpadded)
    for one, other in zip(outputs(padded, given), outputs(unpadded, given), strict=True):
        assert torch.allclose(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", sorted(KNOWN))
def test_layers_see_real_tokens_alone(kind):
    net, seen = model(kind), []
    unpad(net)
    linear = [each for each in net.modules() if isinstance(each, torch.nn.Linear)]
    for each in linear[:-1]:  # BERT's last one pools
        each.register_forward_hook(lambda module, args, states: seen.append(states.shape[:-1]))
    net(**batch())
    assert set(seen) == {(1, sum(LENGTHS))}


@pytest.mark.parametrize(
    ("kind", "head", "last"),
    [
        *((kind, "sequence", len(LENGTHS)) for kind in sorted(FIRST)),
        ("modernbert", "sequence", sum(LENGTHS)),
        ("bert", "tokens", sum(LENGTHS)),
        ("bert", "spans", sum(LENGTHS)),
    ],
)
def test_only_a_classifiers_last_layer_computes_first_tokens_alone(kind, head, last):
    assert computed(model(kind, head)) == [sum(LENGTHS)] * 2 + [last]


def test_a_head_of_ones_own_may_look_at_every_token():
    class Own(BertForSequenceClassification):
        pass

    own = Own._from_config(copy.deepcopy(CONFIGS["bert"]), attn_implementation="sdpa")
    assert computed(own) == [sum(LENGTHS)] * 3


def computed(net: torch.nn.Module) -> list[int]:
    """How many tokens each layer's feed-forward part is given."""
    seen: list[int] = []
    assert unpad(net)
    wide = [each for each in net.modules() if getattr(each, "in_features", 0) == 48]
    for each in wide:
        each.register_forward_hook(lambda module, args, states: seen.append(states.shape[1]))
    run(net, batch())
    return seen


DISTIL = DistilBertConfig(vocab_size=50, dim=32, n_heads=2, n_layers=2, hidden_dim=32)
DECODER = BertConfig(**SMALL, is_decoder=True)


@pytest.mark.parametrize(
    ("config", "attention"),
    [(DISTIL, "sdpa"), (DECODER, "sdpa"), (CONFIGS["bert"], "eager")],
    ids=["unknown", "decoder", "eager"],
)
def test_what_is_not_known_to_work_is_left_as_it_is(config, attention):
    net = AutoModel.from_config(copy.deepcopy(config), attn_implementation=attention)
    assert not unpad(net) and not is_unpadded(net)
    assert net.config._attn_implementation == attention
    assert not any(each._forward_pre_hooks or each._forward_hooks for each in net.modules())


def test_a_model_of_no_library_is_left_as_it_is():
    net = torch.nn.Linear(2, 2)
    assert not unpad(net) and not is_unpadded(net)


@pytest.mark.parametrize("architecture", ["still", "modernbert"])
@pytest.mark.parametrize("kind", ["classification", "pos", "sts", "qa", "retrieval"])
def test_losses_of_a_whole_run_are_those_of_padding_to_max_length(kind, architecture, folders):
    given, how = material(kind, folders[architecture]), recipe(epochs=3, patience=None)
    ours, wide = (Training(load(folders[architecture], given), given, how) for _ in range(2))
    wide.task, wide.price = Widened(given.task, 64), math.inf
    assert unpad(ours.model)
    ours = Training(ours.model, given, how)
    for one, other in zip(finish(ours)[0], finish(wide)[0], strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-5)
        assert one.metrics["train_loss"] == pytest.approx(other.metrics["train_loss"], rel=1e-5)
        assert one.metrics["train_padding"] == 1 < 1.1 < other.metrics["train_padding"]


def test_memory_that_ends_cuts_a_batch_in_parts_of_the_same_gradients(folders):
    given, found = material("retrieval", folders["still"], rows=20, validation=4), []
    for largest in (None, 3):
        net = load(folders["still"], given, double=True)
        assert unpad(net)
        training = Training(net, given, recipe(1000, epochs=1))
        training.room.largest = largest or training.room.largest
        finish(training)
        found.append([each.grad for each in net.parameters() if each.grad is not None])
    for whole, parts in zip(*found, strict=True):
        assert torch.allclose(whole, parts, rtol=1e-9, atol=1e-12)


def test_dropout_falls_on_attention_too_and_the_seed_repeats_it(folders):
    given, ends = material("classification", folders["dropout"], rows=20), []
    for probability in (0.0, 0.5, 0.5):
        net = load(folders["dropout"], given)
        for each in net.modules():
            if isinstance(each, torch.nn.Dropout):
                each.p = 0.0
        for layer in net.base_model.encoder.layer:
            layer.attention.self.dropout.p = probability
        unpad(net)
        torch.manual_seed(1)
        finish(training := Training(net, given, recipe(epochs=1)))
        ends.append(weights(training.model))
    assert not same(ends[0], ends[1]) and same(ends[1], ends[2])

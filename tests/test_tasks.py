"""What holds for every kind of task: losses, padding, a perfect score, loading."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from rows import ROWS, SCHEMAS
from tiny import tiny_model

from tabiflow.encoding import Encoded, TextEncoder, cached, text_encoder
from tabiflow.errors import DataError, ModelError
from tabiflow.protocol import Protocol
from tabiflow.registry import kinds
from tabiflow.spec import Model, TaskKind
from tabiflow.tasks import TASKS, sequences

KINDS = get_args(TaskKind)
SETTINGS = Protocol()


@pytest.fixture(scope="module", params=["bert", "modernbert"])
def text(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TextEncoder:
    folder = tiny_model(
        tmp_path_factory.mktemp(request.param), request.param, dropout=0, context=128
    )
    return text_encoder(Model(name=request.param, path=folder))


def encode(kind: TaskKind, text: TextEncoder, settings: Protocol = SETTINGS) -> Encoded:
    task = TASKS[kind]
    lengths = task.lengths(ROWS[kind], text, settings)
    return task.encode(ROWS[kind], text, SCHEMAS[kind], lengths, settings, training=False)


def model(kind: TaskKind, text: TextEncoder) -> torch.nn.Module:
    torch.manual_seed(1)
    return TASKS[kind].model(text.source, SCHEMAS[kind], {}).eval()


def forward(
    kind: TaskKind, network: torch.nn.Module, encoded: Encoded, rows: list[int]
) -> tuple[float, torch.Tensor]:
    batch = TASKS[kind].collate(encoded, np.array(rows))
    with torch.no_grad():
        loss, outputs = TASKS[kind].forward(network, batch, SETTINGS)
    return loss.item(), outputs


def test_every_kind_has_a_task() -> None:
    assert set(TASKS) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_depends_on_the_seed_alone(kind: TaskKind, text: TextEncoder) -> None:
    first, second = model(kind, text).state_dict(), model(kind, text).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "retrieval"])
def test_neither_padding_nor_splitting_changes_the_loss(kind: TaskKind, text: TextEncoder) -> None:
    encoded, network = encode(kind, text), model(kind, text)
    rows = list(range(TASKS[kind].rows(encoded)))
    whole, _ = forward(kind, network, encoded, rows)
    parts = sum(forward(kind, network, encoded, [row])[0] for row in rows)
    assert whole == pytest.approx(parts, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_over_outputs_is_that_of_the_forward_pass(
    kind: TaskKind, text: TextEncoder
) -> None:
    encoded, network = encode(kind, text), model(kind, text)
    loss, outputs = forward(kind, network, encoded, [0, 1, 2])
    batch = TASKS[kind].collate(encoded, np.array([0, 1, 2]))
    assert TASKS[kind].loss(outputs, batch, SETTINGS).item() == loss
    assert len(outputs) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_an_encoded_split_is_the_same_from_disk(
    kind: TaskKind, text: TextEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABIFLOW_CACHE", str(tmp_path))
    fresh, network = encode(kind, text), model(kind, text)
    stored = cached(kind, lambda: fresh)
    rows = [2, 0, 1]
    loss, outputs = forward(kind, network, stored, rows)
    assert loss == forward(kind, network, fresh, rows)[0]
    decoded = [TASKS[kind].decode(outputs, each, np.array(rows)) for each in (fresh, stored)]
    assert repr(decoded[0]) == repr(decoded[1])


def _classes(encoded: Encoded) -> torch.Tensor:
    return torch.eye(4)[torch.from_numpy(sequences.flat(encoded, "label"))]


def _scores(encoded: Encoded) -> torch.Tensor:
    return torch.from_numpy(sequences.flat(encoded, "score")).float()


def _tags(encoded: Encoded) -> torch.Tensor:
    labels = TASKS["ner"].collate(encoded, np.arange(_n(encoded)))
    return torch.eye(5)[labels["labels"].clamp(min=0)]


def _n(encoded: Encoded) -> int:
    return len(encoded["input_ids"])


def _spans(encoded: Encoded) -> torch.Tensor:
    batch = TASKS["qa"].collate(encoded, np.arange(_n(encoded)))
    outputs = torch.zeros(*batch["input_ids"].shape, 2)
    for side in (0, 1):
        outputs[torch.arange(_n(encoded)), batch["target"][:, side], side] = 9.0
    return outputs


def _vectors(encoded: Encoded) -> torch.Tensor:
    # An anchor's vector is the sum of its positives', which are orthogonal.
    anchors, positives = (sequences.flat(encoded, f"{c}_id") for c in ("anchor", "positive"))
    axes = np.eye(positives.max() + 1, dtype=np.float32)
    sums = np.stack([axes[positives[anchors == anchor]].sum(axis=0) for anchor in anchors])
    return torch.from_numpy(np.concatenate([sums, axes[positives]], axis=1))


PERFECT: dict[TaskKind, Callable[[Encoded], torch.Tensor]] = {
    "classification": _classes,
    "nli": _classes,
    "sts": _scores,
    "ner": _tags,
    "pos": _tags,
    "qa": _spans,
    "retrieval": _vectors,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_perfect_predictor_scores_100(kind: TaskKind, text: TextEncoder) -> None:
    task, encoded = TASKS[kind], encode(kind, text)
    rows = np.arange(task.rows(encoded))
    decoded = task.decode(PERFECT[kind](encoded), encoded, rows)
    scores = task.score(decoded, encoded, SCHEMAS[kind])
    assert scores.headline == pytest.approx(100, abs=1e-9)
    assert len(scores.predictions) == len(scores.references) > 0
    found = (scores.predictions[0], scores.references[0])
    assert tuple(map(_shape, found)) == tuple(map(_shape, kinds.KINDS[kind].item))


def _shape(value: Any) -> Any:
    """What additional metrics see of an item: types, whatever the values and how many."""
    if isinstance(value, dict):
        return {name: _shape(each) for name, each in value.items()}
    return [_shape(each) for each in value[:1]] if isinstance(value, list) else type(value)


def _labels(encoded: Encoded, batch: dict[str, torch.Tensor]) -> dict[str, Any]:
    targets = {name: batch[name] for name in ("label", "score", "labels") if name in batch}
    if targets:
        return {"labels": next(iter(targets.values()))}
    start, end = batch["target"].unbind(dim=1)
    return {"start_positions": start, "end_positions": end}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "retrieval"])
def test_the_mean_loss_is_the_librarys_own(kind: TaskKind, text: TextEncoder) -> None:
    # One row: the library's question answering lets padding compete with the answer.
    encoded, network = encode(kind, text), model(kind, text)
    rows = np.array([0] if kind == "qa" else [0, 1, 2])
    batch = TASKS[kind].collate(encoded, rows)
    loss, _ = TASKS[kind].forward(network, batch, SETTINGS)
    inputs = {name: batch[name] for name in sequences.MODEL_INPUTS if name in batch}
    expected = network(**inputs, **_labels(encoded, batch)).loss
    assert loss.item() / TASKS[kind].weight(encoded, rows) == pytest.approx(expected.item(), 1e-6)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "retrieval"])
def test_batches_keep_the_order_and_drop_nothing(kind: TaskKind, text: TextEncoder) -> None:
    encoded = encode(kind, text)
    order = np.arange(TASKS[kind].rows(encoded))[::-1]
    batches = TASKS[kind].batches(encoded, order, 2)
    assert np.concatenate(batches).tolist() == order.tolist()
    assert {len(batch) for batch in batches[:-1]} == {2}


@pytest.mark.parametrize("kind", KINDS)
def test_a_fixed_length_cuts_and_the_models_limit_holds(kind: TaskKind, text: TextEncoder) -> None:
    for asked, got in ((8, 8), (4096, 128)):
        settings = Protocol(max_length=asked)
        assert set(TASKS[kind].lengths(ROWS[kind], text, settings).values()) == {got}
        encoded = encode(kind, text, settings)
        longest = [
            sequences.ragged(encoded, name).lengths.max() for name in encoded if "input_ids" in name
        ]
        assert max(longest) <= got


def test_segments_are_told_apart_where_the_tokenizer_does(text: TextEncoder) -> None:
    batch = TASKS["nli"].collate(encode("nli", text), np.array([0]))
    segments = batch.get("token_type_ids", torch.zeros(1)).unique().tolist()
    assert segments == ([0] if "modernbert" in text.source else [0, 1])


def test_an_unknown_label_is_named_with_a_near_one(text: TextEncoder) -> None:
    rows = ROWS["classification"].set_column(1, "label", [["iyi", "kötu", "iyi", "iyi", "iyi"]])
    with pytest.raises(DataError, match=r"`kötu` is not in .* did you mean `kötü`"):
        TASKS["classification"].encode(
            rows, text, SCHEMAS["classification"], {"text": 16}, SETTINGS, training=True
        )


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    bert = tiny_model(tmp_path / "bert")
    other = tiny_model(tmp_path / "modernbert", "modernbert")
    (bert / "model.safetensors").write_bytes((other / "model.safetensors").read_bytes())
    with pytest.raises(ModelError, match="its weights lack"):
        TASKS["sts"].model(str(bert), SCHEMAS["sts"], {})


@pytest.mark.parametrize("size", [0, 100, 20_000])
def test_truncated_weights_raise_the_librarys_error(size: int, tmp_path: Path) -> None:
    folder = tiny_model(tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:size])
    with pytest.raises(Exception, match=r"(?i)header|incomplete|safetensor"):
        TASKS["qa"].model(str(folder), SCHEMAS["qa"], {})

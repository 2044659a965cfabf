"""Pairs: batches without duplicates, the in-batch loss, the ranking of a split's own corpus."""

import math

import numpy as np
import pyarrow as pa
import pytest
import sklearn.metrics
import torch
from rows import ROWS
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tiny import tiny_model

from tabiflow.data import Schema
from tabiflow.encoding import Encoded, TextEncoder, text_encoder
from tabiflow.protocol import Protocol
from tabiflow.spec import Model
from tabiflow.tasks import TASKS, sequences

RETRIEVAL = TASKS["retrieval"]
SETTINGS = Protocol()


@pytest.fixture(scope="module", params=["bert", "modernbert"])
def text(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TextEncoder:
    folder = tiny_model(tmp_path_factory.mktemp(request.param), request.param, dropout=0)
    return text_encoder(Model(name=request.param, path=folder))


def encode(anchors: list[str], positives: list[str], text: TextEncoder) -> Encoded:
    rows = pa.table({"anchor": anchors, "positive": positives})
    lengths = {"anchor": 16, "positive": 64}
    return RETRIEVAL.encode(rows, text, Schema(), lengths, SETTINGS, training=True)


def drawn(seed: int, rows: int, texts: int) -> tuple[list[str], list[str]]:
    draw = np.random.default_rng(seed)
    anchors, positives = (
        [f"{name}{number}" for number in draw.integers(0, texts, rows)] for name in ("", "")
    )
    return anchors, positives


@pytest.mark.parametrize("scale", [20.0, 5.0])
def test_the_loss_is_multiple_negatives_ranking(scale: float, text: TextEncoder) -> None:
    rows = [0, 1, 3]
    anchors, positives = (
        [ROWS["retrieval"][name].to_pylist()[row] for row in rows]
        for name in ("anchor", "positive")
    )
    encoder = Transformer(text.source)
    oracle = SentenceTransformer(modules=[encoder, Pooling(32, "mean")], device="cpu").eval()
    features = [oracle.preprocess(texts) for texts in (anchors, positives)]
    expected = MultipleNegativesRankingLoss(oracle, scale=scale)(features, None)
    encoded = encode(anchors, positives, text)
    batch = RETRIEVAL.collate(encoded, np.arange(3))
    model = RETRIEVAL.model(text.source, Schema(), {}).eval()
    loss, _ = RETRIEVAL.forward(model, batch, Protocol(scale=scale))
    assert loss.item() / RETRIEVAL.weight(encoded, np.arange(3)) == pytest.approx(
        expected.item(), rel=1e-5
    )


def test_the_loss_of_parts_put_together_is_that_of_the_batch(text: TextEncoder) -> None:
    encoded = encode(*drawn(0, 6, 50), text)
    model = RETRIEVAL.model(text.source, Schema(), {}).eval()
    parts = [
        RETRIEVAL.forward(model, RETRIEVAL.collate(encoded, rows), SETTINGS)[1]
        for rows in (np.arange(4), np.arange(4, 6))
    ]
    whole, _ = RETRIEVAL.forward(model, RETRIEVAL.collate(encoded, np.arange(6)), SETTINGS)
    assert RETRIEVAL.loss(torch.cat(parts), {}, SETTINGS).item() == pytest.approx(whole.item())


@pytest.mark.parametrize(("seed", "texts"), [(0, 4), (1, 15), (2, 60), (3, 400), (4, 1)])
def test_no_text_stands_twice_in_a_batch_and_no_row_is_lost(
    seed: int, texts: int, text: TextEncoder
) -> None:
    anchors, positives = drawn(seed, 150, texts)
    encoded = encode(anchors, positives, text)
    order = np.random.default_rng(seed).permutation(150)
    batches = RETRIEVAL.batches(encoded, order, 16)
    assert sorted(np.concatenate(batches).tolist()) == list(range(150))
    assert max(map(len, batches)) <= 16
    for batch in batches:
        pairs = [{anchors[row], positives[row]} for row in batch]
        assert len(set().union(*pairs)) == sum(map(len, pairs))


def _filled_one_by_one(order: list[int], pairs: list[set[str]], size: int) -> list[list[int]]:
    """Each batch takes what fits from all that is left, as sentence-transformers' sampler does."""
    batches = []
    while order:
        batch: list[int] = []
        texts: set[str] = set()
        for row in order:
            if len(batch) < size and not texts & pairs[row]:
                batch.append(row)
                texts |= pairs[row]
        order = [row for row in order if row not in batch]
        batches.append(batch)
    return batches


@pytest.mark.parametrize(("seed", "texts"), [(0, 4), (1, 15), (2, 60), (3, 400)])
def test_batches_are_filled_in_the_order_given(seed: int, texts: int, text: TextEncoder) -> None:
    anchors, positives = drawn(seed, 120, texts)
    order = np.random.default_rng(seed).permutation(120)
    batches = RETRIEVAL.batches(encode(anchors, positives, text), order, 8)
    pairs = [{a, p} for a, p in zip(anchors, positives, strict=True)]
    expected = _filled_one_by_one(order.tolist(), pairs, 8)
    assert [batch.tolist() for batch in batches] == expected


def test_each_column_has_its_own_length(text: TextEncoder) -> None:
    lengths = RETRIEVAL.lengths(ROWS["retrieval"], text, SETTINGS)
    assert lengths["anchor"] < lengths["positive"]


def _decoded(queries: np.ndarray, documents: np.ndarray) -> list[np.ndarray]:
    return list(np.stack([queries, documents], axis=1).astype(np.float32))


def test_the_corpus_is_the_unique_positives_and_all_of_a_query_are_relevant(
    text: TextEncoder,
) -> None:
    # Query a has documents x and y, query b has x; the corpus is x, y.
    encoded = encode(["a", "a", "b", "a"], ["x", "y", "x", "x"], text)
    axes = np.eye(3)
    queries, documents = axes[[0, 0, 1, 0]], axes[[0, 1, 0, 0]]
    queries[2] = [0.2, 0.9, 0]
    scores = RETRIEVAL.score(_decoded(queries, documents), encoded, Schema())
    # a ranks x first, y second; b ranks y before its x.
    assert scores.predictions == [[1, 2], [2]]
    assert scores.references == [2, 1]
    assert scores.headline == pytest.approx(100 * (1 + 1 / math.log2(3)) / 2)


@pytest.mark.parametrize("seed", range(5))
def test_ndcg_is_scikit_learns(seed: int, text: TextEncoder) -> None:
    anchors, positives = drawn(seed, 60, 25)
    names, corpus = list(dict.fromkeys(anchors)), list(dict.fromkeys(positives))
    vectors = np.random.default_rng(seed).normal(size=(2, 25, 6))
    rows = [vectors[0][[int(a) for a in anchors]], vectors[1][[int(p) for p in positives]]]
    scores = RETRIEVAL.score(_decoded(*rows), encode(anchors, positives, text), Schema())
    relevant = set(zip(anchors, positives, strict=True))
    gold = [[(name, document) in relevant for document in corpus] for name in names]
    unit = [
        vectors[side][[int(each) for each in chosen]] for side, chosen in enumerate((names, corpus))
    ]
    unit = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in unit]
    expected = sklearn.metrics.ndcg_score(np.array(gold), unit[0] @ unit[1].T, k=10)
    assert scores.headline == pytest.approx(100 * expected)


def test_embeddings_that_are_no_numbers_have_an_unknown_score(text: TextEncoder) -> None:
    vectors = np.full((2, 3), np.nan)
    encoded = encode(["a", "b"], ["x", "y"], text)
    assert math.isnan(RETRIEVAL.score(_decoded(vectors, vectors), encoded, Schema()).headline)


def test_equal_embeddings_win_nothing_but_the_order(text: TextEncoder) -> None:
    anchors, positives = [f"a{i}" for i in range(40)], [f"p{i}" for i in range(40)]
    encoded = encode(anchors, positives, text)
    same = np.ones((40, 4))
    ranks = RETRIEVAL.score(_decoded(same, same), encoded, Schema()).predictions
    assert ranks == [[place] for place in range(1, 41)]


def test_the_mean_is_over_the_texts_own_tokens(text: TextEncoder) -> None:
    encoded = encode(["film", "kedi masanın"], ["Harika bir film", "kedi"], text)
    model = RETRIEVAL.model(text.source, Schema(), {}).eval()
    together, alone = (
        RETRIEVAL.forward(model, RETRIEVAL.collate(encoded, rows), SETTINGS)[1]
        for rows in (np.array([0, 1]), np.array([0]))
    )
    tokens = torch.from_numpy(sequences.ragged(encoded, "anchor_input_ids").row(0)).long()
    hidden = model(input_ids=tokens[None]).last_hidden_state
    torch.testing.assert_close(alone[0, :32], hidden[0].mean(dim=0))
    torch.testing.assert_close(together[0], alone[0])

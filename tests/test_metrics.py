"""Every metric against an independent oracle, on cases made by hand and drawn at random."""

import math

import numpy as np
import pytest
import seqeval.metrics
import sklearn.metrics
from scipy import stats

from tabiflow.tasks import metrics

SEEDS = range(5)


@pytest.mark.parametrize("seed", SEEDS)
def test_macro_f1_is_scikit_learns_over_the_classes_that_occur(seed: int) -> None:
    draw = np.random.default_rng(seed)
    gold, predicted = draw.integers(0, 9, 30), draw.integers(0, 9, 30)
    report = sklearn.metrics.classification_report(
        gold, predicted, output_dict=True, zero_division=0
    )
    assert metrics.macro_f1(gold, predicted) == pytest.approx(100 * report["macro avg"]["f1-score"])
    assert metrics.accuracy(gold, predicted) == pytest.approx(100 * report["accuracy"])


def test_macro_f1_by_hand() -> None:
    # Class 0: P 1, R 1/2, F 2/3. Class 1: P 1/2, R 1, F 2/3. Class 2 occurs nowhere.
    gold, predicted = np.array([0, 0, 1]), np.array([0, 1, 1])
    assert metrics.macro_f1(gold, predicted) == pytest.approx(200 / 3)


def test_a_class_that_is_only_predicted_counts_as_zero() -> None:
    assert metrics.macro_f1(np.array([0, 0]), np.array([0, 2])) == pytest.approx(100 / 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_correlations_are_those_of_the_centred_vectors(seed: int) -> None:
    draw = np.random.default_rng(seed)
    gold = draw.integers(0, 6, 40).astype(float)
    predicted = gold + draw.normal(0, 2, 40)
    corrcoef = np.corrcoef(gold, predicted)[0, 1]
    of_ranks = np.corrcoef(stats.rankdata(gold), stats.rankdata(predicted))[0, 1]
    assert metrics.pearson(gold, predicted) == pytest.approx(100 * corrcoef)
    assert metrics.spearman(gold, predicted) == pytest.approx(100 * of_ranks)


@pytest.mark.parametrize(
    ("gold", "predicted"),
    [
        ([1, 2, 3], [2, 2, 2]),
        ([2, 2, 2], [1, 2, 3]),
        ([1, 2, 3], [1, math.nan, 3]),
        ([1, 2, 3], [1, math.inf, 3]),
        ([1], [1]),
        ([], []),
    ],
)
def test_a_correlation_without_variance_is_unknown(gold: list[float], predicted: list[float]):
    pair = np.array(gold, dtype=float), np.array(predicted, dtype=float)
    assert math.isnan(metrics.pearson(*pair))
    assert math.isnan(metrics.spearman(*pair))


def _sentences(draw: np.random.Generator, tags: list[str]) -> list[list[str]]:
    return [draw.choice(tags, size).tolist() for size in (7, 1, 0, 12, 5, 9)]


@pytest.mark.parametrize("seed", SEEDS)
def test_entity_scores_are_seqevals(seed: int) -> None:
    draw = np.random.default_rng(seed)
    tags = ["O", "O", "B-PER", "I-PER", "B-WORK_OF_ART", "I-WORK_OF_ART"]
    gold, predicted = _sentences(draw, tags), _sentences(draw, tags)
    scores = metrics.entity_scores(gold, predicted)
    assert scores["entity_f1"] == pytest.approx(100 * seqeval.metrics.f1_score(gold, predicted))
    assert scores["precision"] == pytest.approx(
        100 * seqeval.metrics.precision_score(gold, predicted)
    )
    assert scores["recall"] == pytest.approx(100 * seqeval.metrics.recall_score(gold, predicted))


def test_entity_f1_by_hand() -> None:
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-ORG"]]
    predicted = [["B-PER", "O", "O", "B-LOC"], ["O"]]
    scores = metrics.entity_scores(gold, predicted)
    # One of two predicted entities is right, of three gold ones: F1 = 2 * 1 / (2 + 3).
    assert [scores[name] for name in ("precision", "recall", "entity_f1", "strict_f1")] == (
        pytest.approx([50, 100 / 3, 40, 40])
    )


def test_an_entity_that_opens_with_i_counts_for_conlleval_but_not_strictly() -> None:
    scores = metrics.entity_scores([["B-PER", "O"]], [["I-PER", "O"]])
    assert scores["entity_f1"] == 100
    assert scores["strict_f1"] == 0


def test_entities_found_where_there_are_none_are_worth_nothing() -> None:
    assert metrics.entity_scores([["O"]], [["B-PER"]])["entity_f1"] == 0
    assert math.isnan(metrics.entity_scores([["O"]], [["O"]])["entity_f1"])


def test_chunk_f1_merges_neighbours_of_one_part_of_speech() -> None:
    # Gold: the chunks NOUN NOUN and VERB; predicted: NOUN, VERB, VERB merged to two.
    assert metrics.chunk_f1([["NOUN", "NOUN", "VERB"]], [["NOUN", "VERB", "VERB"]]) == 0
    assert metrics.chunk_f1([["NOUN", "VERB", "X"]], [["NOUN", "VERB", "_"]]) == 100


@pytest.mark.parametrize(
    ("golds", "said", "span_f1", "exact", "squad_f1", "squad_em"),
    [
        (["Ankara"], "Ankara", 100, 100, 100, 100),
        (["Ankara"], "Ankara'da", 0, 0, 0, 0),
        (["Ankara"], '"ankara".', 100, 100, 100, 100),
        (["Mustafa Kemal Atatürk"], "Kemal Atatürk", 80, 0, 80, 0),
        (["1881", "1881 yılında"], "1881 yılında", 100, 100, 100, 100),
        (["ISPARTA"], "ısparta", 100, 100, 0, 0),
        (["İZMİR"], "izmir", 100, 100, 0, 0),
        (["INDUS"], "indus", 0, 0, 100, 100),
        (["“Ankara”"], "Ankara", 100, 100, 0, 0),
        (["o an"], "o", 200 / 3, 0, 100, 100),
        (["the end"], "end", 200 / 3, 0, 100, 100),
        (["kedi kedi köpek"], "kedi", 50, 0, 50, 0),
        (["Ankara"], "", 0, 0, 0, 0),
        ([], "", 100, 100, 100, 100),
        ([], "Ankara", 0, 0, 0, 0),
    ],
)
def test_answers_by_hand(
    golds: list[str], said: str, span_f1: float, exact: float, squad_f1: float, squad_em: float
) -> None:
    scores = metrics.answer_scores([golds], [said])
    expected = {"span_f1": span_f1, "exact_match": exact, "squad_f1": squad_f1}
    assert scores == pytest.approx({**expected, "squad_em": squad_em})


def test_answers_are_averaged_over_questions() -> None:
    scores = metrics.answer_scores([["bir"], ["iki"], ["üç"]], ["bir", "iki", "dört"])
    assert scores["span_f1"] == pytest.approx(200 / 3)
    assert math.isnan(metrics.answer_scores([], [])["span_f1"])


def _similarities(
    seed: int, ties: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Queries, corpus, relevance [queries, documents] and its pairs."""
    draw = np.random.default_rng(seed)
    vectors = draw.integers(-1, 2, (48, 3)) if ties else draw.normal(size=(48, 8))
    queries, corpus = vectors[:8].astype(float), vectors[8:].astype(float)
    relevance = draw.random((8, 40)) < draw.choice([0.02, 0.1, 0.5], (8, 1))
    relevance[np.arange(8), draw.integers(0, 40, 8)] = True
    return queries, corpus, relevance, *np.nonzero(relevance)


@pytest.mark.parametrize("seed", SEEDS)
def test_ndcg_with_several_positives_is_scikit_learns(seed: int) -> None:
    queries, corpus, relevance, query, document = _similarities(seed, ties=False)
    scores = metrics.ranking_scores(metrics.ranks(queries, corpus, query, document))
    expected = sklearn.metrics.ndcg_score(relevance, queries @ corpus.T, k=10)
    assert scores["ndcg_at_10"] == pytest.approx(100 * expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_of_equals_the_first_in_the_corpus_ranks_first(seed: int) -> None:
    queries, corpus, _, query, document = _similarities(seed, ties=True)
    order = np.argsort(-(queries @ corpus.T), axis=1, kind="stable")
    places = np.argsort(order, axis=1)[query, document] + 1
    assert metrics.ranks(queries, corpus, query, document).rank.tolist() == places.tolist()


@pytest.mark.parametrize(
    ("relevant", "ndcg", "recall", "mrr"),
    [
        ([1], 100, 100, 100),
        ([2], 100 / math.log2(3), 100, 50),
        ([11], 0, 0, 0),
        ([1, 3], 100 * (1 + 0.5) / (1 + 1 / math.log2(3)), 100, 100),
        ([10, 12], 100 / math.log2(11) / (1 + 1 / math.log2(3)), 50, 10),
        (list(range(1, 13)), 100, 1000 / 12, 100),
    ],
)
def test_rankings_by_hand(relevant: list[int], ndcg: float, recall: float, mrr: float) -> None:
    found = metrics.Ranks(np.zeros(len(relevant), dtype=int), np.array(relevant))
    expected = {"ndcg_at_10": ndcg, "recall_at_10": recall, "mrr_at_10": mrr}
    assert metrics.ranking_scores(found) == pytest.approx(expected)


def test_a_ranking_counts_each_query_once_however_many_documents_it_has() -> None:
    found = metrics.Ranks(np.array([0, 0, 0, 1]), np.array([1, 2, 3, 20]))
    assert metrics.ranking_scores(found)["ndcg_at_10"] == pytest.approx(50)


def test_ranks_are_the_same_in_parts() -> None:
    queries, corpus, _, query, document = _similarities(0, ties=False)
    whole = metrics.ranks(queries, corpus, query, document)
    parts = metrics.ranks(queries, corpus, query, document, at_once=3)
    assert parts.rank.tolist() == whole.rank.tolist()

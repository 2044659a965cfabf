"""The metrics, on a scale of 0 to 100. Pure functions of gold and predictions.

A figure that is undefined (nothing to score, no variance, a prediction that is no number) is NaN.
"""

import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import seqeval.metrics
import seqeval.scheme
from scipy import stats
from sklearn.metrics import f1_score

from tabiflow.answers import answer_f1, squad_words, turkish_words

Tags = Sequence[Sequence[str]]
"""A tag for every word of every sentence."""


def accuracy(gold: np.ndarray, predicted: np.ndarray) -> float:
    return 100 * float(np.mean(gold == predicted)) if len(gold) else math.nan


def macro_f1(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Mean F1 of the classes that occur in gold or predictions, scikit-learn's default.

    A class of the schema that this split lacks is no reason for a zero, unless it is predicted.
    """
    if not len(gold):
        return math.nan
    return 100 * float(f1_score(gold, predicted, average="macro", zero_division=0))


def pearson(gold: np.ndarray, predicted: np.ndarray) -> float:
    return _correlation(gold, predicted, stats.pearsonr)


def spearman(gold: np.ndarray, predicted: np.ndarray) -> float:
    return _correlation(gold, predicted, stats.spearmanr)


def _correlation(
    gold: np.ndarray, predicted: np.ndarray, measure: Callable[..., tuple[float, float]]
) -> float:
    for values in (gold, predicted):
        if len(values) < 2 or not np.isfinite(values).all() or np.ptp(values) == 0:
            return math.nan
    return 100 * float(measure(gold, predicted)[0])


def entity_scores(gold: Tags, predicted: Tags) -> dict[str, float]:
    """Micro-averaged over entities, for IOB2 tags.

    `entity_f1`, `precision` and `recall` read a prediction as conlleval does, seqeval's default and
    what the published tables hold: an `I-` that continues nothing opens an entity. `strict_f1` asks
    for valid IOB2. On valid IOB2 both are the same.
    """
    if not any(tag != "O" for tags in (*gold, *predicted) for tag in tags):
        return dict.fromkeys(("entity_f1", "precision", "recall", "strict_f1"), math.nan)
    pair = ([list(tags) for tags in gold], [list(tags) for tags in predicted])
    strict = {"mode": "strict", "scheme": seqeval.scheme.IOB2}
    return {
        "entity_f1": 100 * float(seqeval.metrics.f1_score(*pair, zero_division=0)),
        "precision": 100 * float(seqeval.metrics.precision_score(*pair, zero_division=0)),
        "recall": 100 * float(seqeval.metrics.recall_score(*pair, zero_division=0)),
        "strict_f1": 100 * float(seqeval.metrics.f1_score(*pair, zero_division=0, **strict)),
    }


def agreement(right: float, gold: float, predicted: float, either: float) -> dict[str, float]:
    """From counts: items that agree, are in gold, are predicted, are in at least one of them."""
    return {
        "accuracy": _share(right, either),
        "precision": _share(right, predicted),
        "recall": _share(right, gold),
        "f1": _share(2 * right, gold + predicted),
    }


def tag_scores(
    gold: Sequence[str], predicted: Sequence[str | None], tags: Sequence[str]
) -> dict[str, float]:
    """Each tag's precision, recall and F1 over words, and the gold words that have it, `n`.

    `predicted` is None for a word without a prediction. Undefined figures are NaN.
    """
    golds, told = Counter(gold), Counter(predicted)
    right = Counter(tag for tag, said in zip(gold, predicted, strict=True) if tag == said)
    figures: dict[str, float] = {}
    for tag in tags:
        scores = agreement(right[tag], golds[tag], told[tag], math.nan)
        stem = f"tag_{metric_part(tag)}"
        figures |= {f"{stem}_{name}": scores[name] for name in ("precision", "recall", "f1")}
        figures[f"{stem}_n"] = float(golds[tag])
    return figures


def sentence_exact(gold: Sequence[np.ndarray], predicted: Sequence[np.ndarray]) -> float:
    """The share of sentences without a wrong word; those without words do not count."""
    pairs = [pair for pair in zip(gold, predicted, strict=True) if len(pair[0])]
    return _share(sum(np.array_equal(*pair) for pair in pairs), len(pairs))


def metric_part(name: str) -> str:
    """A tag or feature as a metric's name may hold it.

    Universal Dependencies' `Number[psor]` becomes `Number.psor`; of any other sign that MLflow does
    not take, the code remains, so that the tags `,` and `:` stay apart.
    """
    layered = re.sub(r"\[(\w+)\]$", r".\1", name)
    return re.sub(r"[^\w.-]", lambda sign: f"x{ord(sign[0]):02X}", layered)


def _share(part: float, whole: float) -> float:
    return 100 * part / whole if whole else math.nan


def chunk_f1(gold: Tags, predicted: Tags) -> float:
    """seqeval on bare tags: takes the first letter for a prefix and merges equal neighbours."""
    if not any(gold):
        return math.nan
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r".* seems not to be NE tag", UserWarning)
        pair = ([list(tags) for tags in gold], [list(tags) for tags in predicted])
        return 100 * float(seqeval.metrics.f1_score(*pair, zero_division=0))


def answer_scores(golds: Sequence[Sequence[str]], predicted: Sequence[str]) -> dict[str, float]:
    """Means over questions of the best agreement with any gold answer.

    `span_f1` and `exact_match` are lower-cased as Turkish is, `squad_f1` and `squad_em` by SQuAD's
    own English rules.
    """
    turkish = _best_answers(golds, predicted, turkish_words)
    english = _best_answers(golds, predicted, squad_words)
    return {
        "span_f1": turkish[0],
        "exact_match": turkish[1],
        "squad_f1": english[0],
        "squad_em": english[1],
    }


def _best_answers(
    golds: Sequence[Sequence[str]],
    predicted: Sequence[str],
    words: Callable[[str], list[str]],
) -> tuple[float, float]:
    if not predicted:
        return math.nan, math.nan
    f1, exact = [], []
    for answers, answer in zip(golds, predicted, strict=True):
        said, known = words(answer), [words(gold) for gold in answers] or [[]]
        f1.append(max(answer_f1(each, said) for each in known))
        exact.append(100.0 * any(each == said for each in known))
    return float(np.mean(f1)), float(np.mean(exact))


@dataclass(frozen=True)
class Ranks:
    """Where each query's relevant documents stand in its ranking of the whole corpus."""

    query: np.ndarray
    """[pairs] The query of each relevant document, 0, 1, ..."""
    rank: np.ndarray
    """[pairs] 1 is the best."""


def ranks(
    queries: np.ndarray,
    corpus: np.ndarray,
    query: np.ndarray,
    document: np.ndarray,
    at_once: int = 256,
) -> Ranks:
    """`query` and `document` [pairs] say which documents are relevant; vectors are unit length.

    Of equally similar documents the one that stands first in the corpus ranks first. Computed
    for `at_once` pairs at a time, so that a corpus of tens of thousands needs no square matrix.
    """
    rank = np.empty(len(query), dtype=np.int64)
    for start in range(0, len(query), at_once):
        part = slice(start, start + at_once)
        similar = queries[query[part]] @ corpus.T
        own = np.take_along_axis(similar, document[part, None], axis=1)
        behind = np.arange(len(corpus)) > document[part, None]
        # Counted from below, so that a similarity that is no number ranks last.
        rank[part] = len(corpus) - ((similar < own) | ((similar == own) & behind)).sum(axis=1)
    return Ranks(query, rank)


def ranking_scores(ranks: Ranks, depth: int = 10) -> dict[str, float]:
    """Means over queries. The ideal ranking holds min(relevant, depth) documents on top."""
    n = int(ranks.query.max(initial=-1)) + 1
    if not n:
        return dict.fromkeys((f"{name}_at_{depth}" for name in ("ndcg", "recall", "mrr")), math.nan)
    found = ranks.rank <= depth
    discount = 1 / np.log2(np.arange(depth) + 2)
    gain = np.where(found, 1 / np.log2(ranks.rank + 1.0), 0.0)
    relevant = np.bincount(ranks.query, minlength=n)
    ideal = np.cumsum(discount)[np.minimum(relevant, depth) - 1]
    first = np.zeros(n)
    np.maximum.at(first, ranks.query, np.where(found, 1 / ranks.rank, 0.0))
    return {
        f"ndcg_at_{depth}": _mean(np.bincount(ranks.query, gain, n) / ideal),
        f"recall_at_{depth}": _mean(np.bincount(ranks.query, found, n) / relevant),
        f"mrr_at_{depth}": _mean(first),
    }


def _mean(values: np.ndarray) -> float:
    return 100 * float(np.mean(values))


def headline(scores: Mapping[str, float], name: str) -> tuple[float, dict[str, float]]:
    """The headline and the others beside it."""
    return scores[name], {key: value for key, value in scores.items() if key != name}

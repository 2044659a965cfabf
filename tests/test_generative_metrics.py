"""Metrics of generated text against oracles of their own: other libraries, or counting by hand."""

import math
import re
import string
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from nltk.translate.bleu_score import corpus_bleu
from sklearn.metrics import f1_score

from tabiflow.generative.metrics import (
    answer_scores,
    choice_scores,
    correction_scores,
    edits,
    rouge_scores,
    translation_scores,
)
from tabiflow.generative.prompts import Item

WORDS = ["kedi", "köpek", "ağaç", "dal", "ışık", "gül", "ev", "yol", "su", "taş"]


def item(*references: str, gold: int | None = None, source: str = "") -> Item:
    return Item(0, "s", "0", references=references, gold=gold, source=source)


def sentences(seed: int, count: int, length: int = 9) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(1, length))) for _ in range(count)]


def pairs(seed: int, count: int) -> tuple[list[Item], list[str]]:
    return [item(each) for each in sentences(seed, count)], sentences(seed + 1, count)


def squad(text: str) -> list[str]:
    """The SQuAD script's normalisation, written anew."""
    bare = "".join(each for each in text.lower() if each not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


def squad_f1(gold: str, said: str) -> float:
    a, b = squad(gold), squad(said)
    same = sum((Counter(a) & Counter(b)).values())
    return 0.0 if not same else 200 * same / (len(a) + len(b))


def bigram_f(gold: list[str], said: list[str]) -> float:
    a, b = (Counter(pairwise(each)) for each in (gold, said))
    same = (a & b).total()
    return 0.0 if not same else 200 * same / (a.total() + b.total())


def test_accuracy_counts_an_unread_answer_as_wrong() -> None:
    golds, answers = [0, 1, 2, 1, 0, 2], [0, 1, 1, None, 2, 2]
    found = choice_scores([item(gold=gold) for gold in golds], answers)
    said = [-1 if each is None else each for each in answers]
    assert found.figures["accuracy"] == 50 and found.rows == (100, 100, 0, 0, 0, 100)
    macro = f1_score(golds, said, average="macro", zero_division=0)
    assert found.figures["macro_f1"] == pytest.approx(100 * macro)
    assert found.figures["unread"] == pytest.approx(100 / 6)


def test_squad_figures_are_the_scripts() -> None:
    items, answers = pairs(1, 60)
    found = answer_scores(items, [f"The {each}." for each in answers]).figures
    golds = [each.references[0] for each in items]
    f1 = [squad_f1(*each) for each in zip(golds, answers, strict=True)]
    exact = [squad(gold) == squad(said) for gold, said in zip(golds, answers, strict=True)]
    assert found["squad_f1"] == pytest.approx(np.mean(f1))
    assert found["squad_em"] == pytest.approx(100 * np.mean(exact))


@pytest.mark.parametrize(
    ("said", "exact", "squad_em"),
    [
        ("ırmak", 100, 0),
        ("IRMAK.", 100, 100),
        ("«Irmak»", 100, 0),
        ("nehir", 100, 100),
        ("deniz", 0, 0),
        ("", 0, 0),
    ],
)
def test_case_is_turkish_and_the_best_reference_counts(
    said: str, exact: float, squad_em: float
) -> None:
    found = answer_scores([item("Irmak", "Nehir")], [said]).figures
    assert (found["exact_match"], found["squad_em"]) == (exact, squad_em)


def test_an_is_a_word_of_turkish_and_an_article_to_squad() -> None:
    found = answer_scores([item("o an")], ["o"]).figures
    assert (found["exact_match"], found["squad_em"]) == (0, 100)


def test_rouge_2_counts_bigrams_of_turkish_words() -> None:
    items, answers = pairs(3, 60)
    golds = [each.references[0].split() for each in items]
    expected = [bigram_f(g, said.split()) for g, said in zip(golds, answers, strict=True)]
    found = rouge_scores(items, answers)
    assert found.rows == pytest.approx(expected)
    assert found.figures["rouge2"] == pytest.approx(np.mean(expected))
    assert found.signature.startswith("rouge2|f|stem:no|tok:turkish-words|")


def test_rouges_own_tokenizer_breaks_words_that_ours_keeps() -> None:
    different = rouge_scores([item("dağ ışık")], ["dağ üşük"]).figures
    assert different["rouge2"] == 0 < different["rouge2_default"]
    same = rouge_scores([item("IŞIK, gül!")], ["ışık gül"]).figures
    assert same["rouge2"] == 100


def test_bleu_is_nltks_on_words_apart() -> None:
    # Of sentences below four words nltk counts one 4-gram that is not there.
    references = [f"{each} ev yol su taş" for each in sentences(5, 40, 16)]
    answers = [each.replace("kedi ", "").replace("gül", "dal") for each in references]
    found = translation_scores([item(each) for each in references], answers)
    split = [[each.split()] for each in references], [each.split() for each in answers]
    assert found.figures["bleu"] == pytest.approx(100 * corpus_bleu(*split))
    assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in found.signature


def chrf(gold: str, said: str) -> float:
    """chrF2 by its definition: mean precision and recall of 1- to 6-grams without spaces."""
    gold, said = gold.replace(" ", ""), said.replace(" ", "")
    shares = []
    for n in range(1, 7):
        a, b = (Counter(t[k : k + n] for k in range(len(t) - n + 1)) for t in (gold, said))
        if a and b:
            same = (a & b).total()
            shares.append((same / b.total(), same / a.total()))
    precision, recall = np.mean(shares, axis=0)
    return 100 * 5 * precision * recall / (4 * precision + recall) if precision else 0.0


@pytest.mark.parametrize("said", ["Kediler damda geziyor.", "Kedi dam üstünde gezdi.", "Köpek."])
def test_chrf_is_its_definition(said: str) -> None:
    gold = "Kedi damda geziyor."
    found = translation_scores([item(gold)], [said])
    assert found.figures["chrf"] == pytest.approx(chrf(gold, said))
    assert "chrF nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:" in found.signature


def applied(source: str, found: frozenset[tuple[int, int, tuple[str, ...]]]) -> str:
    words = source.split()
    for start, end, new in sorted(found, reverse=True):
        words[start:end] = new
    return " ".join(words)


def test_edits_make_the_target_of_the_source() -> None:
    for source, target in zip(sentences(7, 300), sentences(8, 300), strict=True):
        assert applied(source, edits(source, target)) == target
    assert edits("aynı cümle", "aynı  cümle") == frozenset()


def test_words_that_changed_side_by_side_are_edits_of_their_own() -> None:
    assert edits("herşey bendede", "her şey bende de") == {
        (0, 1, ("her", "şey")),
        (1, 2, ("bende", "de")),
    }
    assert edits("a b c", "a x y") == {(1, 2, ("x",)), (2, 3, ("y",))}
    assert edits("ya'da", "ya da") == {(0, 1, ("ya", "da"))}
    assert edits("bir çok şey", "birçok şey") == {(0, 2, ("birçok",))}


@pytest.mark.parametrize(
    ("said", "exact", "precision", "recall", "f05", "macro"),
    [
        # Due: `herşey` in two words, and `de` written apart.
        ("her şey bende de", 100, 100, 100, 100, 100),
        ("herşey bendede", 0, math.nan, 0, 0, 0),
        ("her şey bendede", 0, 100, 50, 100 * 1.25 / 1.5, 200 / 3),
        ("her şey bende te", 0, 50, 50, 50, 50),
        ("", 0, 0, 0, 0, 0),
    ],
)
def test_word_edits_by_hand(
    said: str, exact: float, precision: float, recall: float, f05: float, macro: float
) -> None:
    pair = [item("her şey bende de", source="herşey bendede")]
    found = correction_scores(pair, [said]).figures
    expected = (exact, precision, recall, f05, macro)
    assert tuple(found.values()) == pytest.approx(expected, nan_ok=True)


def test_f05_is_that_of_the_counts_over_all_sentences() -> None:
    items = [item("a b", source="a x"), item("c d", source="c d")]
    found = correction_scores(items, ["a b", "e d"]).figures
    precision, recall = 1 / 2, 1 / 1
    f05 = 1.25 * precision * recall / (0.25 * precision + recall)
    assert (found["gec_precision"], found["gec_recall"]) == (50, 100)
    assert found["gec_f05"] == pytest.approx(100 * f05)
    assert found["gec_macro_f1"] == 50


def test_a_sentence_that_was_right_and_stays_so_is_right() -> None:
    found = correction_scores([item("a b", source="a b")], ["a b"]).figures
    assert found["gec_macro_f1"] == found["gec_exact_match"] == 100
    assert math.isnan(found["gec_f05"])


@pytest.mark.parametrize("scorer", [answer_scores, rouge_scores, translation_scores])
def test_without_a_row_a_figure_is_unknown(scorer) -> None:
    assert all(math.isnan(value) for value in scorer([], []).figures.values())

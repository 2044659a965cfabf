"""The rules that choose an option, and what of a text is an answer."""

import math

import numpy as np
import pytest

from tabiflow.generative.scoring import (
    Likelihood,
    chosen,
    cut,
    first_best,
    read_mark,
    single_tokens,
)

LONG_AND_SHORT = (Likelihood(-6.0, 6, 30), Likelihood(-5.0, 2, 10), Likelihood(-5.5, 5, 40))


def test_the_rules_may_choose_differently() -> None:
    assert chosen(LONG_AND_SHORT, "sum") == 1
    assert chosen(LONG_AND_SHORT, "per_character") == 2
    assert chosen(LONG_AND_SHORT, "per_token") == 0


def test_the_rules_are_the_harnesss_and_the_lowest_perplexity() -> None:
    random = np.random.default_rng(25)
    for _ in range(200):
        sums, tokens = -random.exponential(5, 4), random.integers(1, 9, 4)
        characters = random.integers(1, 40, 4)
        found = [
            Likelihood(*each)
            for each in zip(sums.tolist(), tokens.tolist(), characters.tolist(), strict=True)
        ]
        assert chosen(found, "sum") == np.argmax(sums)
        assert chosen(found, "per_character") == np.argmax(sums / characters)
        assert chosen(found, "per_token") == np.argmin(np.exp(-sums / tokens))


@pytest.mark.parametrize("rule", ["sum", "per_character", "per_token"])
def test_a_tie_takes_the_first(rule: str) -> None:
    same = Likelihood(-2.0, 2, 4)
    assert chosen([Likelihood(-9.0, 2, 4), same, same], rule) == 1  # type: ignore[arg-type]
    assert first_best([-1.0, -0.5, -0.5]) == 1


def test_a_missing_score_is_an_error_and_no_choice() -> None:
    with pytest.raises(ValueError, match="missing"):
        first_best([math.nan, -1.0])
    with pytest.raises(ValueError, match="missing"):
        first_best([])
    with pytest.raises(ValueError, match="without a token"):
        chosen([Likelihood(0.0, 0, 4)], "sum")


def test_letters_need_one_token_each_to_be_scored_at_once() -> None:
    assert single_tokens([[5], [6]]) == (5, 6)
    assert single_tokens([[5], [6, 7]]) is None
    assert single_tokens([[5], [5]]) is None


@pytest.mark.parametrize(
    ("text", "stops", "kept"),
    [
        (" iki kez\nSoru: ne", ["\n"], "iki kez"),
        ("bir###iki\nüç", ["\n", "###"], "bir"),
        ("\nsonra", ["\n"], ""),
        ("durmadan ", ["\n\n"], "durmadan"),
        ("a\n\nb", ["\n\n"], "a"),
        ("hepsi", [], "hepsi"),
    ],
)
def test_an_answer_ends_at_the_first_stop(text: str, stops: list[str], kept: str) -> None:
    assert cut(text, stops) == kept


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("B", 1),
        (" b", 1),
        ("(c) çünkü", 2),
        ("d) deniz", 3),
        ("Cevap: A", 0),
        ("Bilmecenin cevabı D", 3),
        ("Doğru seçenek B'dir.", 1),
        ("KAŞIK", None),
        ("Ayna", None),
        ("a bakalım", None),
        ("cevap e değil c.", None),
        ("", None),
        ("E", None),
    ],
)
def test_a_written_letter_is_one_that_stands_by_itself(text: str, option: int | None) -> None:
    assert read_mark(text, "ABCD") == option


@pytest.mark.parametrize(
    ("text", "marks", "option"),
    [
        ("Cevap: A", "ABCD", 2),
        ("Bilmecenin cevabı D", "ABCD", 1),
        (" KAŞIK", "ABCD", 0),
        (" 12", "0123", 1),
        ("yok", "0123", None),
    ],
)
def test_the_repositorys_reading_takes_a_letter_inside_a_word(
    text: str, marks: str, option: int | None
) -> None:
    assert read_mark(text, marks, anywhere=True) == option


def test_a_number_is_read_whole() -> None:
    assert read_mark("12", "0123") is None
    assert read_mark("2.", "0123") == 2

"""Answers become figures: by every rule, with baselines, and never by what a server cut or not."""

from pathlib import Path

import pytest

from tabiflow.generative.asking import Asked, asked
from tabiflow.generative.result import Result, of_letters, of_options, of_texts, settings
from tabiflow.generative.scoring import Likelihood
from tabiflow.generative.summary import paired
from tabiflow.spec.evaluation import Evaluation

QUICKSTART = Path(__file__).parent.parent / "sweeps" / "cetvel-quickstart.yaml"
ASKED = {each.name: each for each in asked(Evaluation.read(QUICKSTART))}


def with_best(found: Asked, best: int) -> list[list[Likelihood]]:
    """The sum prefers the option `best`, per token the next one."""
    return [
        [
            Likelihood(-1.0 if n == best else -2.0, 1 if n == best else 4, 10)
            for n in range(len(item.options))
        ]
        for item in found.test.scored
    ]


def test_the_headline_is_the_papers_rule_and_the_others_stand_beside_it() -> None:
    found = of_options(ASKED["xcopa_tr"], with_best(ASKED["xcopa_tr"], 0))
    assert found.score == found.figures["accuracy_per_token"] == 50
    assert found.figures["accuracy_sum"] == 50
    nli = of_options(ASKED["xnli_tr"], with_best(ASKED["xnli_tr"], 2))
    assert nli.signature.startswith("rule:per_token|options|")
    assert nli.choices is not None and nli.choices.answers == {"A": 9, "B": 0, "C": 0}


def test_letters_come_with_baselines_and_interval() -> None:
    found = of_letters(ASKED["belebele_tr"], [[-3.0, -1.0, -2.0, -1.0]] * 6)
    assert found.choices is not None
    assert found.choices.answers == {"A": 0, "B": 6, "C": 0, "D": 0}
    assert (found.score, found.choices.uniform) == (pytest.approx(100 / 3), 25)
    assert found.choices.support.interval.low < found.score < found.choices.support.interval.high


def test_a_server_that_runs_on_scores_as_one_that_stops() -> None:
    items = ASKED["xquad_tr"].test.scored
    short = [f" {item.references[0]}" for item in items]
    long = [f"{text}\nSoru: Peki neden?" for text in short]
    assert of_texts(ASKED["xquad_tr"], short) == of_texts(ASKED["xquad_tr"], long)
    assert of_texts(ASKED["xquad_tr"], long).score == 100


def test_a_written_letter_that_cannot_be_read_is_wrong_and_counted() -> None:
    golds = [item.gold or 0 for item in ASKED["bilmecebench"].test.scored]
    found = of_texts(ASKED["bilmecebench"], ["bilmem", *(f" {'ABCD'[g]})" for g in golds[1:])])
    assert found.score == pytest.approx(500 / 6)
    assert found.figures["unread"] == pytest.approx(100 / 6)
    assert found.choices is not None and found.choices.answers["-"] == 1


def test_corrections_and_translations_have_their_figures_and_signatures() -> None:
    sources = [item.source for item in ASKED["gecturk_generation"].test.scored]
    unchanged = of_texts(ASKED["gecturk_generation"], sources)
    assert (unchanged.score, unchanged.figures["gec_recall"]) == (12.5, 0)
    english = of_texts(ASKED["wmt-tr-en-prompt"], ["Bu cümle."] * 6)
    assert english.metric == "bleu" and "tok:13a" in english.signature


def test_settings_are_the_tasks_unless_a_template_has_its_own() -> None:
    assert (settings(ASKED["xlsum_tr"]).beams, settings(ASKED["xquad_tr"]).beams) == (5, 1)
    assert settings(ASKED["gecturk_generation"]).max_tokens == 64


def by_letter(name: str, letter: int) -> Result:
    scores = [[float(n == letter) for n in range(4)] for _ in ASKED[name].test.scored]
    return of_letters(ASKED[name], scores)


def test_two_models_are_compared_row_by_row() -> None:
    found = paired(by_letter("belebele_tr", 1).rows, by_letter("belebele_tr", 0).rows)
    assert (found.rows, found.only_a, found.only_b) == (6, 2, 1)
    assert found.p_permutation == 1.0

"""Rows become items, or are excluded by index and reason; nothing is guessed and nothing cut."""

from typing import Any

import pytest

from tabiflow.generative.prompts import Items, items, lettered, rotations, too_long
from tabiflow.generative.templates import TEMPLATES, Template
from tabiflow.registry.cetvel import task

COPA = {
    "premise": "Bardak masadan düştü.",
    "question": "effect",
    "choice1": "Bardak kırıldı.",
    "choice2": "Masa yeşile boyandı.",
    "label": 0,
}
PASSAGE = {
    "flores_passage": "Kedi gece boyunca damda gezdi.",
    "question": "Kedi neredeydi?",
    "mc_answer1": "evde",
    "mc_answer2": "damda",
    "mc_answer3": "suda",
    "mc_answer4": "yolda",
    "correct_answer_num": "2",
}


def made(name: str, *rows: dict[str, Any], template: Template | None = None) -> Items:
    return items(task(name), template or TEMPLATES[name], rows)


def test_options_follow_the_prompt_with_their_delimiter() -> None:
    (item,) = made("xcopa_tr", COPA).scored
    assert item.prompt.endswith("Bunun sonucunda şu oldu:")
    assert item.continuations == (" Bardak kırıldı.", " Masa yeşile boyandı.")
    assert (item.index, item.gold) == (0, 0)


def test_letters_stand_in_the_prompt_and_are_what_is_scored() -> None:
    (item,) = made("belebele_tr", PASSAGE).scored
    assert "A) evde\nB) damda\nC) suda\nD) yolda" in item.prompt
    assert item.continuations == (" A", " B", " C", " D") and item.gold == 1
    assert item.options == ("evde", "damda", "suda", "yolda")


@pytest.mark.parametrize(
    ("name", "row", "references"),
    [
        ("mkqa_tr", {"query": "kaç", "answers": "['iki', '2']"}, ("iki", "2")),
        (
            "xquad_tr",
            {"context": "a", "question": "b", "answers": {"text": ["c"], "answer_start": [0]}},
            ("c",),
        ),
        ("tquad", {"context": "a", "question": "b", "answers": [{"text": "c"}]}, ("c",)),
        ("wmt-tr-en-prompt", {"translation": {"en": "Hi.", "tr": "Selam."}}, ("Selam.",)),
    ],
)
def test_references_are_found_as_each_release_holds_them(
    name: str, row: dict[str, Any], references: tuple[str, ...]
) -> None:
    assert made(name, row).scored[0].references == references


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("mnli_tr", {"label": -1}, "its answer -1 is none of the 3 options"),
        ("mnli_tr", {"label": None}, "its answer None is none of the 3 options"),
        ("mnli_tr", {"label": True}, "its answer True is none of the 3 options"),
        ("exams_tr", {"answerKey": "E"}, "its answer 'E' is none of the 2 options"),
        ("exams_tr", {"question": {"stem": "s"}}, "has no attribute 'choices'"),
        ("belebele_tr", {"mc_answer3": " "}, "an option is empty"),
        ("belebele_tr", {"correct_answer_num": "0"}, "its answer -1 is none of the 4 options"),
        ("turkishmmlu", {"choices": []}, "it has no options"),
        ("turkishmmlu", {"choices": ["tek"]}, "it has 1 option"),
        ("turkishmmlu", {"choices": ["x"] * 27}, "it has 27 options"),
        ("turkishmmlu", {"choices": None}, "its options are no list: None"),
        ("mkqa_tr", {"answers": "[]"}, "it has no reference"),
        ("mkqa_tr", {"answers": "yok"}, "ValueError"),
        ("gecturk_generation", {"target": None}, "its reference is no text"),
    ],
)
def test_a_row_that_cannot_be_scored_is_excluded_with_its_reason(
    name: str, change: dict[str, Any], reason: str
) -> None:
    whole: dict[str, dict[str, Any]] = {
        "mnli_tr": {"premise": "a", "hypothesis": "b", "label": 1},
        "exams_tr": {
            "question": {"stem": "s", "choices": {"text": ["x", "y"], "label": ["A", "B"]}},
            "answerKey": "B ",
        },
        "belebele_tr": PASSAGE,
        "turkishmmlu": {"question": "s", "choices": ["x", "y"], "answer": "B"},
        "mkqa_tr": {"query": "s", "answers": "['c']"},
        "gecturk_generation": {"source": "a", "target": "b"},
    }
    found = made(name, whole[name], whole[name] | change, whole[name])
    assert [item.index for item in found.scored] == [0, 2]
    (excluded,) = found.excluded
    assert excluded.index == 1 and reason in excluded.reason
    assert found.rows == 3


@pytest.mark.parametrize(
    ("score", "gold"), [(0, 0), (0.49, 0), (0.5, 1), (2.5, 3), (4.4, 4), (4.5, 5), (5.0, 5)]
)
def test_a_similarity_falls_into_its_class(score: float, gold: int) -> None:
    row = {"sentence1": "a", "sentence2": "b", "score": score}
    assert made("sts_tr", row).scored[0].gold == gold


def test_hashes_are_of_what_is_asked_and_of_what_the_row_holds() -> None:
    (plain,) = made("xcopa_tr", COPA).scored
    (other,) = made("xcopa_tr", COPA, template=Template("{{ premise }}")).scored
    assert plain.hash != other.hash and plain.content == other.content
    assert plain.hash != made("xcopa_tr", COPA | {"choice1": "Başka."}).scored[0].hash


def test_a_template_with_too_few_words_for_the_options_excludes_the_row() -> None:
    found = made("xcopa_tr", COPA, template=Template("{{ premise }}", continuations=("a",)))
    assert "not one continuation for each of 2" in found.excluded[0].reason


@pytest.mark.parametrize("own", [True, False])
def test_rotations_move_the_options_and_the_right_one_with_them(own: bool) -> None:
    checkouts = Template("{{ question }} {{ mc_answer1 }} {{ mc_answer2 }}")
    template = TEMPLATES["belebele_tr"] if own else checkouts
    turned = rotations(task("belebele_tr"), template, 7, PASSAGE)
    assert [item.gold for item in turned] == [1, 0, 3, 2]
    assert all(item.options[item.gold or 0] == "damda" and item.index == 7 for item in turned)
    assert turned[1].options[0] == "damda" and len({item.hash for item in turned}) >= 4 - own


def test_a_list_of_options_rotates_as_well() -> None:
    row = {"question": "s", "choices": ["x", "y", "z"], "answer": "C"}
    turned = rotations(task("turkishmmlu"), TEMPLATES["turkishmmlu"], 0, row)
    assert [item.options for item in turned] == [
        ("x", "y", "z"),
        ("y", "z", "x"),
        ("z", "x", "y"),
    ]
    assert [item.gold for item in turned] == [2, 1, 0]


def test_nothing_is_cut_but_what_does_not_fit_is_named() -> None:
    assert too_long([10, 2048, 2049], 2048) == (2,)
    assert lettered(["x", "y"]) == "A) x\nB) y"

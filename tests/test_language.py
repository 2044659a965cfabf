"""The language check selects answers for people; it abstains by human text and confirms nothing."""

import pytest

from tabiflow.generative.language import abstention, guess, languages, with_review
from tabiflow.generative.origin import opened
from tabiflow.registry.cetvel import task

HUMAN = [row["text"] for row in opened(task("xlsum_tr"), "example").test] + [
    row["target"] for row in opened(task("gecturk_generation"), "example").test
]
ANSWERS = [
    "Belediye meydanın yeniden düzenleneceğini duyurdu.",
    "The municipality announced that the square will be rebuilt next year.",
    "Городские власти объявили о реконструкции площади.",
    "Mən bu gün məktəbə getmədim, çünki xəstə idim.",
    "42",
    "",
]


@pytest.mark.parametrize(
    ("text", "language"), list(zip(ANSWERS, ["tr", "en", "ru", "az"], strict=False))
)
def test_any_language_may_be_named(text: str, language: str) -> None:
    found = guess(text)
    assert found.language == language and found.confidence > 0.5


def test_the_threshold_is_chosen_on_human_text() -> None:
    found = abstention([*HUMAN, "Revue de la santé publique du Canada"])
    assert found.threshold > guess("Revue de la santé publique du Canada").confidence
    assert found.mistaken <= 1 and found.texts == len(HUMAN) + 1
    assert abstention(HUMAN[:1]).threshold == 0
    with pytest.raises(ValueError, match="human texts"):
        abstention([])


def test_predicted_labels_are_not_confirmed_drift() -> None:
    known = abstention([*HUMAN, "42"])
    found = languages(ANSWERS, known)
    assert dict(found.predicted) == {"tr": 1, "en": 1, "ru": 1, "az": 1}
    assert (found.rows, found.abstained, found.confirmed) == (6, 2, None)
    assert found.review == {"en": (1,), "ru": (2,), "az": (3,)}
    looked = with_review(found, {1: True, 3: False})
    assert (looked.reviewed, looked.confirmed, looked.predicted) == (2, 1, found.predicted)

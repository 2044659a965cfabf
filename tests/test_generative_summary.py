"""What scores say: baselines, denominators, option orders, averages, two models on one set."""

import math

import numpy as np
import pytest

from tabiflow.generative.prompts import Excluded, Item, Items
from tabiflow.generative.summary import (
    averages,
    choices,
    inequality,
    majority_option,
    orders,
    paired,
    uniform,
)
from tabiflow.registry.cetvel import TASKS
from tabiflow.statistics import gini


def item(index: int, gold: int, options: int = 4, subject: str = "") -> Item:
    texts = tuple("ABCDEFGH"[:options])
    return Item(index, "s", "0", options=texts, gold=gold, subject=subject)


def chapter() -> Items:
    """797 of 799 rows, D right in 304 of them, as in the textbook's measured example."""
    golds = [3] * 304 + [0] * 200 + [1] * 150 + [2] * 143
    excluded = tuple(Excluded(place, "0", "it has no options") for place in (362, 390))
    return Items(tuple(item(n, gold) for n, gold in enumerate(golds)), excluded)


def test_the_chapters_figures_come_out_as_printed() -> None:
    found = chapter()
    golds = [each.gold or 0 for each in found.scored]
    answers = [gold if n < 226 else (gold + 1) % 4 for n, gold in enumerate(golds)]
    validation = [item(0, 3)] * 14 + [item(0, 1)] * 13 + [item(0, 0)] * 13
    said = choices(found, answers, validation)
    assert (said.support.right, said.support.rows, said.released) == (226, 797, 799)
    assert round(said.support.accuracy, 2) == 28.36
    assert [round(each, 2) for each in said.support.interval] == [25.34, 31.58]
    assert (said.majority_option, round(said.majority, 2)) == (3, 38.14)
    assert said.uniform == 25.0
    assert [(each.index, each.reason) for each in said.excluded] == [
        (362, "it has no options"),
        (390, "it has no options"),
    ]


def test_the_uniform_baseline_is_analytic() -> None:
    assert uniform([item(0, 0, 2), item(1, 0, 4), item(2, 0, 5)]) == pytest.approx(
        100 * (1 / 2 + 1 / 4 + 1 / 5) / 3
    )


def test_the_majority_is_validations_and_never_tests() -> None:
    test = Items(tuple(item(n, 1) for n in range(9)), ())
    said = choices(test, [1] * 9, [item(0, 2), item(1, 2), item(2, 0)])
    assert (said.majority_option, said.majority) == (2, 0.0)
    assert math.isnan(choices(test, [1] * 9).majority)
    assert majority_option([item(0, 3), item(1, 1)]) == 1


def test_subjects_have_their_own_support() -> None:
    rows = (item(0, 0, subject="Tarih"), item(1, 0, subject="Fizik"), item(2, 1, subject="Tarih"))
    said = choices(Items(rows, ()), [0, 1, None])
    assert {name: (e.right, e.rows) for name, e in said.subjects.items()} == {
        "Fizik": (0, 1),
        "Tarih": (1, 2),
    }
    assert said.answers == {"A": 1, "B": 1, "C": 0, "D": 0, "-": 1}


def test_a_model_that_always_answers_b_has_stability_0() -> None:
    found = orders([[1, 1, 1, 1]] * 10)
    assert (found.rows, found.stable, found.stability) == (10, 0, 0.0)
    assert found.letters == {"A": 0, "B": 40, "C": 0, "D": 0}


def test_a_model_that_always_finds_the_same_option_has_stability_100() -> None:
    found = orders([[(option - shift) % 4 for shift in range(4)] for option in (0, 1, 2, 3)])
    assert found.stability == 100 and found.letters == dict.fromkeys("ABCD", 4)


@pytest.mark.parametrize(
    ("row", "stable"), [([0, 1], 1), ([0, 0], 0), ([None, None], 0), ([1, 0, 2], 1), ([1, 0, 1], 0)]
)
def test_a_row_is_stable_if_every_order_gives_one_option(
    row: list[int | None], stable: int
) -> None:
    assert orders([row]).stable == stable


def test_a_row_of_one_option_has_no_order() -> None:
    with pytest.raises(ValueError, match="no other order"):
        orders([[0]])
    assert math.isnan(orders([]).stability)


def test_two_models_are_compared_on_the_rows_that_both_answered() -> None:
    a = {f"h{n}": 100.0 * (n % 4 != 0) for n in range(200)}
    b = {f"h{n}": 100.0 * (n % 2) for n in range(100, 300)}
    found = paired(a, b)
    assert (found.rows, found.comparison.difference) == (100, 25.0)
    assert (found.only_a, found.only_b) == (25, 0)
    assert found.p_permutation < 0.001 and found.comparison.low > 0


def test_averages_are_plain_but_for_the_parts_of_plu() -> None:
    scores = {row.column: 50.0 for row in TASKS} | {"PLU_GI": 100.0, "XNLI": 80.0}
    found = averages(scores, TASKS)
    rows = {row.column: row.rows or 0 for row in TASKS if row.group == "PLU"}
    plu = 50 + 50 * rows["PLU_GI"] / sum(rows.values())
    assert found.categories["MCQA"] == pytest.approx((7 * 50 + plu) / 8)
    assert found.categories["NLI"] == pytest.approx(60)
    assert found.overall == pytest.approx(np.mean(list(found.categories.values())))


def test_a_missing_score_leaves_its_category_and_the_total_unknown() -> None:
    scores = {row.column: 50.0 for row in TASKS if row.column not in ("XNLI", "PLU_SI")}
    found = averages(scores, TASKS)
    unknown = {name for name, value in found.categories.items() if math.isnan(value)}
    assert unknown == {"NLI", "MCQA"} and math.isnan(found.overall)


def test_ginis_interval_is_over_models() -> None:
    scores = np.random.default_rng(25).gamma(2, 10, 33).tolist()
    found = inequality(scores, draws=2000)
    assert found.value == gini(scores) and found.models == 33
    random = np.random.default_rng(1)
    drawn = [gini(random.choice(scores, 33)) for _ in range(2000)]
    assert found.interval == pytest.approx(np.percentile(drawn, [2.5, 97.5]), abs=0.02)
    assert math.isnan(inequality([0.0, 0.0]).value)

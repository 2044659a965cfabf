"""The split rule, held against the paper's sizes and against scikit-learn."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from tabiflow import splits


def sizes_of(given, strata=None):
    cut = splits.cut(frozenset(given), given.__getitem__, strata)
    return {
        name: given[part.source] if part.rows is None else len(part.rows)
        for name, part in cut.parts.items()
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"train": 750, "validation": 150, "test": 250}, (750, 150, 250)),
        ({"train": 235_165}, (164_615, 35_275, 35_275)),
        ({"train": 995}, (696, 149, 150)),
        ({"test": 1_190}, (833, 178, 179)),
        ({"train": 919, "test": 339}, (580, 339, 339)),
        ({"train": 1_000, "validation": 120}, (880, 120, 120)),
        ({"validation": 7_626, "test": 15_675}, (6_100, 1_526, 15_675)),
    ],
)
def test_sizes_are_those_of_the_paper(given, expected):
    assert tuple(sizes_of(given).values()) == expected


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10, 11, 99, 100, 1_001])
def test_a_single_split_is_cut_as_scikit_learn_would(size):
    expected = (size, 0, 0)
    if size > 1:
        train, held_out = train_test_split(range(size), test_size=0.3, random_state=25)
        expected = (len(train), len(held_out) // 2, -(-len(held_out) // 2))
    parts = sizes_of({"train": size})
    assert sum(parts.values()) == size
    assert size == 1 or tuple(parts.values()) == expected


@pytest.mark.parametrize("given", [("train", "test"), ("train", "validation"), ("train",)])
def test_no_row_stands_in_two_splits_or_in_none(given):
    cut = splits.cut(frozenset(given), dict.fromkeys(given, 40).__getitem__, None)
    seen = [
        (part.source, row)
        for part in cut.parts.values()
        for row in (range(40) if part.rows is None else part.rows)
    ]
    assert sorted(seen) == sorted((source, row) for source in given for row in range(40))


def test_the_validation_split_becomes_test_where_there_is_none():
    cut = splits.cut(frozenset({"train", "validation"}), lambda name: 10, None)
    assert cut.parts["test"] == splits.Part("validation")
    assert cut.parts["validation"].source == "train"
    assert "validation is test" in cut.rule


def test_given_splits_are_kept_without_counting_them():
    def size(name):
        raise AssertionError(name)

    cut = splits.cut(frozenset(splits.NAMES), size, None)
    assert cut.parts == {name: splits.Part(name) for name in splits.NAMES}


@pytest.mark.parametrize("seed", range(20))
def test_every_class_has_its_share_of_each_split_within_one_row(seed):
    random = np.random.default_rng(seed)
    shares = random.dirichlet(np.full(random.integers(1, 12), 0.7))
    strata = random.choice(len(shares), random.integers(20, 400), p=shares).astype(str).tolist()
    cut = splits.cut(frozenset({"train"}), lambda name: len(strata), strata)
    assert cut.rule.endswith(", stratified")
    for part in cut.parts.values():
        found = Counter(strata[row] for row in part.rows)
        for name, count in Counter(strata).items():
            assert abs(found[name] - Fraction(count * len(part.rows), len(strata))) < 1


def test_a_class_of_one_row_is_no_obstacle():
    parts = sizes_of({"train": 10}, ["only"] + ["many"] * 9)
    assert tuple(parts.values()) == (7, 1, 2)


def test_the_same_rows_are_drawn_every_time_and_stay_in_order():
    first, second = (splits.cut(frozenset({"train"}), lambda name: 20, None) for _ in range(2))
    for name, part in first.parts.items():
        assert part.rows.tolist() == second.parts[name].rows.tolist() == sorted(part.rows)


def test_the_draw_is_pinned():
    cut = splits.cut(frozenset({"train"}), lambda name: 12, ["a", "b", "b"] * 4)
    assert {name: part.rows.tolist() for name, part in cut.parts.items()} == {
        "train": [0, 2, 4, 6, 7, 8, 9, 11],
        "validation": [1, 10],
        "test": [3, 5],
    }


@pytest.mark.parametrize(("rows", "keep"), [(10, 3), (10, 10), (10, 20), (10, None), (1, 1)])
def test_a_limit_keeps_so_many_rows_in_their_order(rows, keep):
    kept = splits.sample(rows, keep)
    assert len(kept) == min(rows, keep or rows)
    assert kept.tolist() == sorted(set(kept.tolist()))


def test_a_wider_limit_keeps_what_a_narrow_one_kept():
    assert set(splits.sample(100, 10)) < set(splits.sample(100, 30))


def test_a_limit_draws_from_the_whole_split():
    assert splits.sample(1_000, 20).max() > 500

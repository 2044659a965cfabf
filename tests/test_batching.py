"""Every row goes through the model once, with as little padding as is worth it."""

import math

import numpy as np
import pytest

from tabiflow.batching import cut, length_batches


@pytest.mark.parametrize("largest", [1, 3, 1000])
@pytest.mark.parametrize("price", [0.0, 40.0, math.inf])
def test_parts_hold_every_row_once_and_no_more_than_fit(price, largest):
    costs = np.random.default_rng(0).integers(2, 200, size=32)
    rows = np.arange(100, 132)
    parts = cut(rows, costs, price, largest)
    assert sorted(np.concatenate(parts)) == rows.tolist()
    assert max(map(len, parts)) <= largest
    assert all(
        each.tolist() == other.tolist()
        for each, other in zip(parts, cut(rows, costs, price, largest), strict=True)
    )


def test_a_batch_is_cut_only_where_that_saves_enough():
    rows, costs = np.arange(8), np.array([10, 10, 10, 10, 100, 100, 100, 100])
    assert [len(part) for part in cut(rows, costs, 359, 8)] == [4, 4]
    assert [len(part) for part in cut(rows, costs, 360, 8)] == [8]


def test_scoring_batches_hold_every_row_once_and_stay_small():
    costs = np.concatenate([np.random.default_rng(0).integers(1, 600, size=500), [90_000]])
    batches = length_batches(costs)
    assert sorted(np.concatenate(batches)) == list(range(501))
    assert all(len(rows) * costs[rows].max() <= 16_384 for rows in batches[:-1])
    assert batches[-1].tolist() == [500]

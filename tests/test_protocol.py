"""The schedule and weight decay against closed formulas over whole runs."""

import math

import pytest
from pydantic import ValidationError

from tabiflow.protocol import Params, Protocol, planned_steps, rate_factor, torch_weight_decay


@pytest.mark.parametrize(
    ("rows", "batch_size", "epochs", "steps"),
    [(32, 16, 10, 20), (33, 16, 10, 30), (1, 16, 10, 10), (750, 32, 1, 24)],
)
def test_a_short_last_batch_is_a_step(rows: int, batch_size: int, epochs: int, steps: int) -> None:
    assert planned_steps(rows, batch_size, epochs) == steps


@pytest.mark.parametrize("planned", [1, 2, 16, 17, 50, 100, 1237])
@pytest.mark.parametrize("floor", [0.0, 0.02, 1.0])
def test_the_rate_is_two_straight_lines(planned: int, floor: float) -> None:
    rising = planned * 6 // 100
    expected = [step / rising for step in range(rising)] + [
        ((planned - step) + floor * (step - rising)) / (planned - rising)
        for step in range(rising, planned)
    ]

    rates = [rate_factor(step, planned, 0.06, floor) for step in range(planned)]

    assert rates == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("planned", [50, 1000])
def test_the_rates_of_a_run_sum_to_two_triangles(planned: int) -> None:
    rising, floor = planned * 6 // 100, 0.02
    falling = planned - rising

    whole = math.fsum(rate_factor(step, planned, 0.06, floor) for step in range(planned))

    assert whole == pytest.approx((rising - 1) / 2 + falling - (1 - floor) * (falling - 1) / 2)


@pytest.mark.parametrize("warmup", [0.0, 0.06, 0.5])
def test_the_peak_and_the_floor_are_reached_and_kept(warmup: float) -> None:
    assert rate_factor(int(warmup * 100), 100, warmup, 0.02) == 1.0
    assert rate_factor(100, 100, warmup, 0.02) == pytest.approx(0.02)
    assert rate_factor(1000, 100, warmup, 0.02) == pytest.approx(0.02)


@pytest.mark.parametrize(("planned", "warmup"), [(100, 0.06), (1237, 0.1), (40, 0.0)])
def test_without_a_floor_it_is_the_schedule_of_transformers(planned: int, warmup: float) -> None:
    import torch
    from transformers import get_linear_schedule_with_warmup

    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = get_linear_schedule_with_warmup(optimizer, int(warmup * planned), planned)
    for step in range(planned):
        assert rate_factor(step, planned, warmup, 0.0) == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()


def _after_a_run_without_gradients(weight_decay: float, mode: str) -> float:
    """What torch's AdamW leaves of a weight of 1, in fp32."""
    import torch

    weight, peak, planned = torch.ones(1, requires_grad=True), 3e-5, 400
    decay = torch_weight_decay(weight_decay, peak, mode)
    optimizer = torch.optim.AdamW([weight], lr=peak, weight_decay=decay)
    for step in range(planned):
        optimizer.param_groups[0]["lr"] = peak * rate_factor(step, planned, 0.06, 0.02)
        weight.grad = torch.zeros(1)
        optimizer.step()
    return weight.item()


@pytest.mark.parametrize("weight_decay", [1e-2, 1e-4, 1e-5])
def test_decoupled_decay_multiplies_by_the_share_of_the_rate(weight_decay: float) -> None:
    factors = (1 - weight_decay * rate_factor(step, 400, 0.06, 0.02) for step in range(400))

    left = _after_a_run_without_gradients(weight_decay, "decoupled")

    assert left == pytest.approx(math.prod(factors), rel=1e-5)


def test_the_decay_of_torch_is_lost_in_fp32_where_the_decoupled_one_is_not() -> None:
    assert _after_a_run_without_gradients(1e-5, "adamw") == 1.0
    assert _after_a_run_without_gradients(1e-5, "decoupled") < 0.999


def test_the_mode_of_torch_takes_the_decay_as_it_is() -> None:
    assert torch_weight_decay(0.01, 3e-5, "adamw") == 0.01
    assert torch_weight_decay(0.01, 3e-5, "decoupled") == pytest.approx(333.33333)


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({}, {}),
        ({"epochs": 10, "patience": 2, "weight_decay": {"mode": "decoupled"}}, {}),
        ({"epochs": 3, "patience": None}, {"epochs": 3, "patience": None}),
        ({"weight_decay": {"mode": "adamw"}}, {"weight_decay": {"mode": "adamw"}}),
        ({"dropout": 0}, {"dropout": 0.0}),
    ],
)
def test_only_changed_fields_count(fields: dict[str, object], changed: dict[str, object]) -> None:
    assert Protocol.model_validate(fields).changed() == changed


def test_a_raised_version_counts_even_as_the_default() -> None:
    class Second(Protocol):
        version: int = 2

    assert Second().changed() == {"version": 2}


@pytest.mark.parametrize("rate", [0, -1e-5, math.inf, math.nan])
def test_a_learning_rate_is_above_zero_and_finite(rate: float) -> None:
    with pytest.raises(ValidationError):
        Params(learning_rate=rate)

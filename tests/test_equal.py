"""Trials that are proven equal: which ones, why, and that they are when both are run."""

from pathlib import Path
from typing import Any

import pytest
from studies import dataset, outcome, planned, scored, searched

from tabiflow.plan import CellPlan
from tabiflow.protocol import Params, Protocol, decay_is_lost
from tabiflow.selection import winners
from tabiflow.trial import Status
from tabiflow.work import missing, spoiled

ADAMW = {"protocol": {"weight_decay": {"mode": "adamw"}}}
GRID = searched(learning_rate=[2e-5, 3e-5], weight_decay=[1e-5, 1e-6, 0, 0.1])


def _cell(folder: Path, *given: Any, **changes: Any) -> CellPlan:
    [cell] = planned(folder, *given, **{"search": GRID, **ADAMW, **changes}).cells
    return cell


@pytest.mark.parametrize(
    ("rate", "decay", "mode", "lost"),
    [
        (3e-5, 1e-5, "adamw", True),
        (3e-5, 0.0, "adamw", True),
        (2.0**-15, 2.0**-11, "adamw", True),
        (2.0**-15, 2.0**-10, "adamw", False),
        (3e-5, 0.01, "adamw", False),
        (3e-5, 1e-5, "decoupled", False),
        (3e-5, 0.0, "decoupled", False),
    ],
)
def test_decay_is_lost_where_its_product_with_the_rate_is_below_fp32(
    rate: float, decay: float, mode: str, lost: bool
) -> None:
    protocol = Protocol.model_validate({"weight_decay": {"mode": mode}})
    assert decay_is_lost(Params(learning_rate=rate, weight_decay=decay), protocol) == lost


def test_of_equal_trials_the_first_in_grid_order_is_run(tmp_path: Path) -> None:
    whole = planned(tmp_path, search=GRID, **ADAMW)
    [cell] = whole.cells

    assert (whole.counts["trials"], whole.counts["distinct"], whole.counts["todo"]) == (8, 4, 8)
    assert [each.params.weight_decay for each in cell.distinct] == [1e-5, 0.1, 1e-5, 0.1]
    [work] = missing(whole)
    assert work.trials == cell.distinct and work.samples == 0
    assert all("below 2^-25" in each.proof and len(each.aliases) == 2 for each in cell.equal)


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol": {}},
        {"search": searched(learning_rate=[1e-5, 2e-5], weight_decay=[0.1, 0.01])},
        {
            "search": searched(
                samples=3, learning_rate=[1e-5, 2e-5], weight_decay={"uniform": [0, 1e-6]}
            )
        },
    ],
    ids=["decoupled", "decaying", "sampled"],
)
def test_nothing_else_is_merged(tmp_path: Path, changes: dict[str, Any]) -> None:
    whole = planned(tmp_path, **{"search": GRID, **ADAMW, **changes})

    assert whole.counts["distinct"] == whole.counts["trials"]
    assert not whole.cells[0].equal


def test_seeds_are_not_merged_with_each_other(tmp_path: Path) -> None:
    assert len(_cell(tmp_path, seeds=[1, 2]).distinct) == 8


@pytest.mark.parametrize(
    ("status", "state"),
    [(Status.DONE, "known"), (Status.FAILED, "failed"), (Status.KILLED, "todo")],
)
def test_aliases_are_where_the_trial_is_that_is_run(
    tmp_path: Path, status: Status, state: str
) -> None:
    first, *aliases = _cell(tmp_path).trials[:3]
    whole = planned(tmp_path, [outcome(first, status, score=1.0)], search=GRID, **ADAMW)
    [cell] = whole.cells

    assert {cell.state(trial) for trial in (first, *aliases)} == {state}
    assert sum(whole.counts[name] for name in ("known", "failed", "held", "todo")) == 8
    assert not {alias.id for alias in aliases} & {each.id for each in cell.having(state)}


def test_a_finished_alias_is_not_run_again(tmp_path: Path) -> None:
    first, second, *_ = _cell(tmp_path).trials
    cell = _cell(tmp_path, [outcome(second, score=7.0)])

    assert cell.run_of(first) == second and cell.counts["known"] == 3
    [winner] = winners(planned(tmp_path, cell.outcomes.values(), search=GRID, **ADAMW))
    assert (winner.trial, winner.score, winner.ties) == (second, 7.0, 2)


def test_aliases_have_the_score_of_the_trial_that_is_run(tmp_path: Path) -> None:
    cell = _cell(tmp_path)
    outcomes = scored(cell.distinct, 10.0, 5.0, 30.0, 20.0)
    [winner] = winners(planned(tmp_path, outcomes, search=GRID, **ADAMW))

    assert winner.trial == cell.distinct[2] and winner.complete
    assert (winner.score, winner.ties, winner.candidates) == (30.0, 2, 8)


def test_a_failed_class_is_resubmitted_once(tmp_path: Path) -> None:
    first = _cell(tmp_path).trials[0]
    outcomes = [outcome(first, Status.FAILED, kind="bug")]
    whole = planned(tmp_path, outcomes, search=GRID, **ADAMW)

    [work] = spoiled(whole, {each.trial.id: each for each in outcomes})
    assert work.trials == (first,)


def test_the_papers_grid_is_half_as_large_under_adamw(tmp_path: Path) -> None:
    rates, decays = [5e-6, 1e-5, 2e-5, 3e-5], [1e-5, 1e-6]
    space = {"learning_rate": rates, "weight_decay": decays, "batch_size": [16, 32]}
    search = [{"datasets": [dataset()], "space": space}]

    counts = planned(tmp_path, search=search, **ADAMW).counts

    assert (counts["trials"], counts["distinct"]) == (16, 8)


@pytest.mark.parametrize("kind", ["classification", "retrieval"])
def test_merged_trials_are_bit_identical_when_they_are_run(tmp_path: Path, kind: Any) -> None:
    from tests import samples

    rates = {"learning_rate": 1e-3, "batch_size": 8}
    decays = (0.0, 1e-6, 2.9e-5)
    curves = [
        _curve(samples.job(tmp_path, kind, params={**rates, "weight_decay": decay}, **_adamw()))
        for decay in decays
    ]
    assert curves[0] == curves[1] == curves[2]
    other = samples.job(tmp_path, kind, params={**rates, "weight_decay": 1.0}, **_adamw())
    assert _curve(other) != curves[0]


def _adamw() -> dict[str, Any]:
    return {"weight_decay": {"mode": "adamw"}, "epochs": 2}


def _curve(job: Any) -> list[tuple[float, float, float]]:
    from tabiflow.runners.finetune import run

    return [(each.score, each.loss, each.metrics["train_loss"]) for each in run(job)]


def test_the_weights_of_merged_trials_are_the_same_bits(tmp_path: Path) -> None:
    import torch

    from tests.samples import material
    from tests.tiny import tiny_model

    folder = tiny_model(tmp_path / "model")
    first, *others = (_weights(material("sts", folder), folder, decay) for decay in (0.0, 2.9e-5))
    for weights in others:
        assert all(torch.equal(first[name], weights[name]) for name in first)


def _weights(given: Any, folder: Path, decay: float) -> dict[str, Any]:
    import torch

    from tabiflow.training import Recipe, Training

    torch.manual_seed(25)
    model = given.task.model(str(folder), given.schema, {"dtype": torch.float32})
    params = Params(learning_rate=1e-3, weight_decay=decay, batch_size=8)
    protocol = Protocol.model_validate(_adamw())
    list(Training(model, given, Recipe(params, protocol, 25, torch.device("cpu"))).run())
    return dict(model.state_dict())

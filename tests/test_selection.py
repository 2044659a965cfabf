"""Who wins a cell by validation, and what confirming it would open."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from studies import RATES, known, model, opened, outcome, planned, scored, searched

from tabiflow.selection import Confirmation, Winner, confirmation, confirming, winners
from tabiflow.trial import Outcome, Status, Trial


def _trials(folder: Path, **changes: Any) -> list[Trial]:
    return list(planned(folder, **changes).trials)


def _won(folder: Path, *scores: float, **changes: Any) -> tuple[Winner, ...]:
    """The winners after the trials of a plan got these scores, in order."""
    outcomes = scored(_trials(folder, **changes), *scores)
    return winners(planned(folder, outcomes, **changes))


def _winner(folder: Path, trial: Trial) -> Winner:
    """The winner when one of the default plan's trials beats the others."""
    trials = _trials(folder)
    [winner] = _won(folder, *(float(each.id == trial.id) for each in trials))
    return winner


def _confirmed(
    winner: Winner, *outcomes: Outcome, seeds: Sequence[int] = (25,), sweep: str = "study"
) -> Confirmation:
    return confirmation([winner], sweep, seeds, known(outcomes))


def test_the_highest_validation_score_wins(tmp_path: Path) -> None:
    [winner] = _won(tmp_path, 10.0, 30.0, 20.0)

    assert winner.trial == _trials(tmp_path)[1]
    assert (winner.score, winner.epoch, winner.ties, winner.candidates) == (30.0, 1, 0, 3)
    assert winner.complete


def test_ties_go_to_the_first_in_grid_order(tmp_path: Path) -> None:
    [winner] = _won(tmp_path, 10.0, 30.0, 30.0)

    assert (winner.trial, winner.ties) == (_trials(tmp_path)[1], 1)


def test_a_score_that_is_not_a_number_never_wins(tmp_path: Path) -> None:
    [winner] = _won(tmp_path, math.nan, 1.0, math.nan)

    assert (winner.score, winner.candidates, winner.complete) == (1.0, 1, True)
    assert _won(tmp_path, math.nan, math.nan, math.nan) == ()


def test_scores_below_zero_can_win(tmp_path: Path) -> None:
    [winner] = _won(tmp_path, -5.0, -1.0, -3.0)

    assert winner.score == -1.0


@pytest.mark.parametrize(
    ("status", "complete"),
    [
        (Status.PRUNED, True),
        (Status.FAILED, False),
        (Status.KILLED, False),
        (Status.RUNNING, False),
    ],
)
def test_only_done_trials_are_candidates(tmp_path: Path, status: Status, complete: bool) -> None:
    trials = _trials(tmp_path)
    outcomes = [*scored(trials[:2], 1.0, 2.0), outcome(trials[2], status, score=99.0)]

    [winner] = winners(planned(tmp_path, outcomes))

    assert (winner.score, winner.candidates, winner.complete) == (2.0, 2, complete)


def test_a_cell_without_any_score_has_no_winner(tmp_path: Path) -> None:
    models = [model("m1"), model("m2")]
    trials = _trials(tmp_path, models=models)
    outcomes = scored(trials[:3], 1.0, 2.0, 3.0)

    [winner] = winners(planned(tmp_path, outcomes, models=models))

    assert winner.cell.model == "m1" and winners(planned(tmp_path)) == ()


def test_seeds_are_averaged(tmp_path: Path) -> None:
    [winner] = _won(tmp_path, 10.0, 40.0, 48.0, 0.0, 24.0, 24.0, seeds=[1, 2])

    assert winner.trial == _trials(tmp_path, seeds=[1, 2])[0]
    assert (winner.score, winner.ties, winner.candidates) == (25.0, 0, 3)


def test_a_configuration_that_lacks_a_seed_is_no_candidate(tmp_path: Path) -> None:
    _, *rest = _trials(tmp_path, seeds=[1, 2])
    outcomes = scored(rest, 99.0, 50.0, 0.0, 24.0, 24.0)

    [winner] = winners(planned(tmp_path, outcomes, seeds=[1, 2]))

    assert winner.trial.params.learning_rate == RATES[1]
    assert (winner.score, winner.candidates, winner.complete) == (25.0, 2, False)


def test_a_configuration_that_left_the_space_cannot_win(tmp_path: Path) -> None:
    outcomes = scored(_trials(tmp_path), 10.0, 20.0, 30.0)

    [winner] = winners(planned(tmp_path, outcomes, search=searched(learning_rate=RATES[:2])))

    assert (winner.score, winner.candidates, winner.complete) == (20.0, 2, True)


def test_a_winner_of_a_wider_space_is_marked_until_the_rest_is_known(tmp_path: Path) -> None:
    outcomes = scored(_trials(tmp_path), 10.0, 20.0, 30.0)

    [winner] = winners(planned(tmp_path, outcomes, search=searched(learning_rate=[9e-5, *RATES])))

    assert (winner.score, winner.complete) == (30.0, False)


def test_test_scores_are_never_looked_at(tmp_path: Path) -> None:
    trials = _trials(tmp_path)
    outcomes = scored(trials, 10.0, 30.0, 20.0)
    outcomes[0] = replace(outcomes[0], test=99.0)

    [winner] = winners(planned(tmp_path, [*outcomes, opened(trials[2], score=99.0)]))

    assert winner.trial == trials[1]


def test_confirming_is_the_configuration_on_test_with_each_seed(tmp_path: Path) -> None:
    [winner] = _won(tmp_path, 1.0, 2.0, 3.0)
    first, second = confirming(winner, (25, 26))

    assert (first.split, first.seed, second.seed) == ("test", 25, 26)
    assert replace(first, split="validation") == winner.trial
    assert first.configuration == second.configuration != winner.trial.configuration


def test_nothing_opened_is_all_to_do(tmp_path: Path) -> None:
    first = _trials(tmp_path)[0]
    found = _confirmed(_winner(tmp_path, first), seeds=(25, 26))

    assert (len(found.todo), found.done, found.conflicts, found.trials) == (2, (), {}, 2)


def test_a_rerun_opens_nothing(tmp_path: Path) -> None:
    first = _trials(tmp_path)[0]
    found = _confirmed(_winner(tmp_path, first), opened(first))

    assert (found.todo, found.conflicts) == ((), {})
    assert [each.test for each in found.done] == [50.0]


@pytest.mark.parametrize("status", [Status.KILLED, Status.FAILED, Status.RUNNING])
def test_an_opening_without_a_score_is_finished(tmp_path: Path, status: Status) -> None:
    first = _trials(tmp_path)[0]
    found = _confirmed(_winner(tmp_path, first), opened(first, status=status))

    assert (len(found.todo), found.done, found.conflicts) == (1, (), {})


def test_another_winner_after_an_opening_is_a_conflict(tmp_path: Path) -> None:
    first, second, _ = _trials(tmp_path)
    winner, earlier = _winner(tmp_path, second), opened(first)

    assert _confirmed(winner, earlier).conflicts == {winner.cell: (earlier,)}


@pytest.mark.parametrize("status", [Status.KILLED, Status.FAILED])
def test_an_opening_that_ended_badly_was_still_one(tmp_path: Path, status: Status) -> None:
    first, second, _ = _trials(tmp_path)

    assert _confirmed(_winner(tmp_path, second), opened(first, status=status)).conflicts


def test_the_same_winner_with_another_seed_is_no_conflict(tmp_path: Path) -> None:
    first = _trials(tmp_path)[0]
    found = _confirmed(_winner(tmp_path, first), opened(first), seeds=(25, 26))

    assert ([each.seed for each in found.todo], found.conflicts) == ([26], {})


def test_a_reopened_winner_is_no_conflict_again(tmp_path: Path) -> None:
    first, second, _ = _trials(tmp_path)
    history = opened(first), opened(second)

    for seeds in [(25,), (25, 26)]:
        assert not _confirmed(_winner(tmp_path, second), *history, seeds=seeds).conflicts


def test_openings_of_other_sweeps_and_cells_are_no_conflict(tmp_path: Path) -> None:
    first, second, _ = _trials(tmp_path)
    elsewhere = opened(first, sweep="elsewhere")
    other_cell = opened(replace(first, model="other"))

    assert not _confirmed(_winner(tmp_path, second), elsewhere, other_cell).conflicts


def test_a_confirming_trial_of_another_sweep_is_reused(tmp_path: Path) -> None:
    first = _trials(tmp_path)[0]
    found = _confirmed(_winner(tmp_path, first), opened(first, sweep="elsewhere"))

    assert (found.todo, len(found.done)) == ((), 1)


def test_a_conflict_of_one_cell_leaves_the_others(tmp_path: Path) -> None:
    models = [model("m1"), model("m2")]
    chosen = _won(tmp_path, 1.0, 2.0, 3.0, 1.0, 2.0, 3.0, models=models)
    earlier = opened(_trials(tmp_path, models=models)[0])

    found = confirmation(chosen, "study", (25,), known([earlier]))

    assert list(found.conflicts) == [chosen[0].cell] and len(found.todo) == 2

"""What a report says, against tables computed by hand and against scipy."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from reported import Kept, Records, labels, made, records, two
from studies import dataset, known, model, opened, outcome, planned, scored

from tabiflow import selection, statistics
from tabiflow.published import tabibench
from tabiflow.registry import resolve
from tabiflow.report import report
from tabiflow.report.comparisons import Comparison
from tabiflow.report.content import Report
from tabiflow.report.items import items
from tabiflow.report.paper import paper_tables
from tabiflow.report.render import markdown
from tabiflow.selection import winners
from tabiflow.spec import Sweep
from tabiflow.tasks import metrics
from tabiflow.trial import Outcome, Status, Trial

SIZES = {"big": 300, "small": 100}


def compared(content: Report, name: str, scope: str = "dataset") -> Comparison:
    [found] = [each for each in content.comparisons if (each.scope, each.name) == (scope, name)]
    return found


def plain(
    folder: Path, tests: dict[str, list[float]], extra: list[Outcome] | None = None
) -> Report:
    """One model on two data sets of one category: scores by seed 25, 7, and no predictions."""
    rows = [dataset(name, category="texts", sizes={"test": size}) for name, size in SIZES.items()]
    changes = {
        "search": [{"datasets": rows, "space": {"learning_rate": [1e-5]}}],
        "confirm": {"seeds": [25, 7]},
    }
    trials = list(planned(folder, **changes).trials)
    done = scored(trials, *(60.0 for _ in trials))
    confirmed = [
        opened(trial, seed, test=score, n=50, tags={"opened_at": f"2026-01-0{seed % 9}"})
        for trial in trials
        for seed, score in zip((25, 7), tests.get(trial.dataset, []), strict=False)
    ]
    outcomes = known([*done, *confirmed, *(extra or [])])
    plan = planned(folder, outcomes.values(), **changes)
    return report(plan, winners(plan), outcomes)


def test_a_category_is_weighted_by_published_test_rows(tmp_path: Path) -> None:
    content = plain(tmp_path, {"big": [80.0, 80.0], "small": [40.0, 40.0]})
    (category,) = content.categories
    assert category.test == pytest.approx((300 * 80 + 100 * 40) / 400)
    assert category.unweighted == 60.0
    assert content.average["model"] == category.test
    assert content.averages[0].by_row == category.test


def test_limited_rows_are_weighted_by_what_was_scored(tmp_path: Path) -> None:
    tests = {("a", "big"): [labels(40, 50)], ("a", "small"): [labels(20, 50)]}
    rows = [dataset(name, sizes={"test": size}, category="texts") for name, size in SIZES.items()]
    content = made(tmp_path, tests, rows, [model("a")], limit={"test": 50})
    big, small = content.scores
    assert content.categories[0].test == pytest.approx((big.test + small.test) / 2)


def test_seeds_are_a_mean_and_a_sample_deviation(tmp_path: Path) -> None:
    content = plain(tmp_path, {"big": [80.0, 84.0], "small": [40.0]})
    score, _ = content.scores
    assert (score.test, score.seeds, score.tests, score.n) == (82.0, (25, 7), (80.0, 84.0), 50)
    assert score.deviation == pytest.approx(math.sqrt(8))


def test_a_categorys_deviation_is_that_of_its_average_over_seeds(tmp_path: Path) -> None:
    (category,) = plain(tmp_path, {"big": [80.0, 84.0], "small": [40.0, 44.0]}).categories
    assert category.deviation == pytest.approx(np.std([70.0, 74.0], ddof=1))
    (category,) = plain(tmp_path, {"big": [80.0, 84.0], "small": [40.0]}).categories
    assert math.isnan(category.deviation)


def test_half_a_category_has_no_average(tmp_path: Path) -> None:
    content = plain(tmp_path, {"big": [80.0, 80.0]})
    assert math.isnan(content.categories[0].test) and math.isnan(content.average["model"])


def test_openings_of_this_sweep_are_listed_and_reopened_ones_counted(tmp_path: Path) -> None:
    other_space = [{"datasets": [dataset("big")], "space": {"learning_rate": [9e-5]}}]
    trial = next(planned(tmp_path, search=other_space).trials)
    again = opened(trial, tags={"opened_at": "2026-02-01", "reopen_reason": "a wider space"})
    other = opened(trial, seed=99, sweep="another")
    content = plain(tmp_path, {"big": [80.0], "small": [40.0]}, [again, other])
    assert [each.reason for each in content.openings] == ["", "", "a wider space"]
    assert "**Reopened:** 1 of 3 openings" in markdown(content)


def test_a_report_over_missing_trials_says_so(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    first, second, _ = plan.trials
    outcomes = [*scored([first], 60.0), outcome(second, Status.FAILED, kind="oom")]
    plan = planned(tmp_path, outcomes)
    content = report(plan, winners(plan), known(outcomes))
    assert content.unfinished == {"todo": 1, "failed": 1}
    assert "**Not final:** 1 todo, 1 failed trials" in markdown(content)


# Items

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def _tags(random: np.random.Generator) -> list[list[str]]:
    return [random.choice(TAGS, 6).tolist() for _ in range(40)]


@pytest.mark.parametrize("name", ["macro_f1", "pearson", "entity_f1", "word_f1"])
def test_every_item_once_is_the_recorded_metric(name: str) -> None:
    random = np.random.default_rng(1)
    said, true = {
        "macro_f1": (random.integers(0, 3, 40).tolist(), random.integers(0, 3, 40).tolist()),
        "pearson": (random.random(40).tolist(), random.random(40).tolist()),
    }.get(name) or (_tags(random), _tags(random))
    expected = {
        "macro_f1": lambda: metrics.macro_f1(np.array(true), np.array(said)),
        "pearson": lambda: metrics.pearson(np.array(true), np.array(said)),
        "entity_f1": lambda: metrics.entity_scores(true, said)["entity_f1"],
        "word_f1": lambda: metrics.accuracy(np.ravel(true), np.ravel(said)),
    }[name]()
    assert items(name, records(said, true)).score == pytest.approx(expected)


def test_answers_are_scored_as_the_metric_does() -> None:
    golds, said = [["Iğdır", "Iğdır'da"], ["2003 yılı"]], ["ığdır", "2003"]
    true = [{"answers": {"text": each}} for each in golds]
    found = items("span_f1", records([{"prediction_text": each} for each in said], true))
    assert found.score == pytest.approx(metrics.answer_scores(golds, said)["span_f1"])


def test_rankings_are_scored_as_the_metric_does() -> None:
    ranks = metrics.Ranks(np.array([0, 0, 1, 2]), np.array([1, 4, 12, 3]))
    found = items("ndcg_at_10", records([[1, 4], [12], [3]], [2, 1, 1]))
    assert found.score == pytest.approx(metrics.ranking_scores(ranks)["ndcg_at_10"])


def test_a_metric_that_is_not_known_and_no_items_have_no_interval() -> None:
    assert items("of_my_own", labels(3, 4)) is None and items("macro_f1", []) is None


# Intervals


def test_an_interval_is_the_bootstraps(tmp_path: Path) -> None:
    kept = labels(80, 100)
    score = two(tmp_path, {("a", "data"): [kept], ("b", "data"): [kept]}).scores[0]
    hits = np.array([100.0 * (each["prediction"] == each["reference"]) for each in kept])
    expected = scipy.stats.bootstrap((hits,), np.mean, method="percentile", random_state=0)
    assert score.low == pytest.approx(expected.confidence_interval.low, abs=1.5)
    assert score.high == pytest.approx(expected.confidence_interval.high, abs=1.5)


def test_a_share_has_wilsons_interval(tmp_path: Path) -> None:
    share = two(tmp_path, {("a", "data"): [labels(226, 797)]}).scores[0].share
    assert (share.name, share.hits, share.of) == ("accuracy", 226, 797)
    assert (round(share.low, 2), round(share.high, 2)) == (25.34, 31.58)


def test_equal_sets_are_drawn_apart_so_that_their_average_is_surer(tmp_path: Path) -> None:
    kept = labels(80, 100)
    content = two(tmp_path, {("a", "one"): [kept], ("a", "two"): [kept]})
    width = content.scores[0].high - content.scores[0].low
    category = content.categories[0]
    assert (category.high - category.low) / width == pytest.approx(1 / math.sqrt(2), abs=0.08)


def test_predictions_that_do_not_give_the_score_are_not_used(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    trials = list(plan.trials)
    found = [*scored(trials, 60.0, 50.0, 40.0), opened(trials[0], test=12.0, n=10, run_id="seen")]
    plan = planned(tmp_path, found)

    class Wrong:
        def predictions(self, run_ids):
            return {"seen": labels(8, 10)}

        def curves(self, run_ids):
            return {}

    [score] = report(plan, winners(plan), known(found), Wrong()).scores
    assert score.test == 12.0 and math.isnan(score.low) and "give 80.00" in score.doubt


def test_an_undefined_score_is_told_as_such(tmp_path: Path) -> None:
    similar = dataset("one", task="sts", label_range=[0, 20])
    tests = {
        ("a", "one"): [records([1.0] * 20, [float(each) for each in range(20)])],
        ("b", "one"): [records([each % 7 for each in range(20)], list(range(20)))],
    }
    content = made(tmp_path, tests, [similar], [model("a"), model("b")])
    undefined, defined = content.scores
    assert math.isnan(undefined.test) and "the metric is undefined" in undefined.doubt
    assert defined.doubt == "" and defined.low < defined.test and content.comparisons == ()


def test_a_seed_without_predictions_is_told(tmp_path: Path) -> None:
    content = plain(tmp_path, {"big": [80.0, 84.0], "small": []})
    assert [each.doubt for each in content.scores] == ["2 of 2 seeds have no predictions kept", ""]


# Comparisons


def test_welch_over_seeds_is_scipys(tmp_path: Path) -> None:
    a, b = ([labels(n, 100) for n in counts] for counts in ((80, 84, 82), (70, 76, 71)))
    content = two(tmp_path, {("a", "data"): a, ("b", "data"): b})
    ours, theirs = (each.tests for each in content.scores)
    expected = scipy.stats.ttest_ind(theirs, ours, equal_var=False)
    found = compared(content, "data")
    assert found.welch_t == pytest.approx(expected.statistic)
    assert (found.welch_df, found.welch_p) == pytest.approx((expected.df, expected.pvalue))


def test_the_permutation_test_over_items_is_scipys(tmp_path: Path) -> None:
    said_a, said_b = [[1], [3], [1], [2], [1], [1]], [[5], [4], [1], [9], [2], [3]]
    tests = {("a", "data"): [records(said_a, [1] * 6)], ("b", "data"): [records(said_b, [1] * 6)]}
    rows = [dataset("data", task="retrieval")]
    found = compared(made(tmp_path, tests, rows, [model("a"), model("b")]), "data")
    gains = [items("ndcg_at_10", each).columns[0] for (each,) in tests.values()]
    expected = scipy.stats.permutation_test(
        gains, lambda x, y: np.mean(x) - np.mean(y), permutation_type="samples", n_resamples=9999
    )
    assert found.permutation_p == pytest.approx(expected.pvalue)


def test_holm_is_over_the_data_sets_of_a_pair(tmp_path: Path) -> None:
    tests = {
        (name, data): [labels(right, 100, seed=7)]
        for data, pair in {"one": (80, 60), "two": (70, 69), "three": (90, 75)}.items()
        for name, right in zip("ab", pair, strict=True)
    }
    content = two(tmp_path, tests)
    of_data = [each for each in content.comparisons if each.scope == "dataset"]
    raw = [each.permutation_p for each in of_data]
    assert [each.items_holm_p for each in of_data] == statistics.holm(raw)
    assert [each.better for each in of_data] == ["a", "", "a"]


def test_models_that_saw_other_items_are_not_compared_over_items(tmp_path: Path) -> None:
    tests = {("a", "data"): [labels(80, 100)], ("b", "data"): [labels(60, 90)]}
    found = compared(two(tmp_path, tests), "data")
    assert found.difference < 0 and math.isnan(found.bootstrap_p) and found.better == ""


def test_equal_predictions_are_no_difference_and_one_group(tmp_path: Path) -> None:
    content = two(tmp_path, {(name, "data"): [labels(80, 100)] for name in "ab"})
    found = compared(content, "data")
    assert (found.low, found.high, found.bootstrap_p, found.permutation_p) == (0, 0, 1, 1)
    assert content.ties[0].groups == (("a", "b"),)


def test_a_difference_that_seeds_do_not_bear_out_does_not_count(tmp_path: Path) -> None:
    a = [labels(n, 400) for n in (390, 390, 210)]
    b = [labels(n, 400) for n in (280, 281, 282)]
    found = compared(two(tmp_path, {("a", "data"): a, ("b", "data"): b}), "data")
    assert found.permutation_p < 0.05 < found.welch_p and found.better == ""


def test_what_could_have_been_shown_is_known_of_items_and_of_seeds(tmp_path: Path) -> None:
    a, b = ([labels(n, 100, seed=n) for n in ns] for ns in ((80, 84, 82), (79, 82, 83)))
    found = compared(two(tmp_path, {("a", "data"): a, ("b", "data"): b}), "data")
    ours, theirs = ([items("macro_f1", each).score for each in kept] for kept in (b, a))
    spread = statistics.deviation(ours), 3, statistics.deviation(theirs), 3
    assert found.detectable_seeds == statistics.detectable(*statistics.seed_error(*spread))
    assert 3 < found.detectable_items < 20


def test_an_average_is_compared_draw_by_draw(tmp_path: Path) -> None:
    tests = {(m, d): [labels(90 if m == "a" else 70, 100)] for m in "ab" for d in ("one", "two")}
    content = two(tmp_path, tests)
    for scope, name in (("category", "texts"), ("average", "average")):
        found = compared(content, name, scope)
        assert found.low < found.difference < found.high < 0 and found.better == "a"


# The search


def _spaced(folder: Path, scores: list[float]) -> Report:
    space = {"learning_rate": [1e-5, 2e-5, 3e-5], "batch_size": [16, 32]}
    changes = {"search": [{"datasets": [dataset("one"), dataset("two")], "space": space}]}
    outcomes = scored(planned(folder, **changes).trials, *scores)
    plan = planned(folder, outcomes, **changes)
    return report(plan, winners(plan), known(outcomes))


def test_a_settings_effect_is_against_its_cells_mean(tmp_path: Path) -> None:
    content = _spaced(tmp_path, [10, 20, 30, 40, 50, 60, 80, 80, 80, 80, 80, 98])
    rate = [each for each in content.settings if each.parameter == "learning_rate"]
    assert [each.value for each in rate] == ["1e-05", "2e-05", "3e-05"]
    assert [each.effect for each in rate] == pytest.approx([-11.5, -1.5, 13.0])
    assert rate[2].deviation == pytest.approx(np.std([20, 6], ddof=1))
    assert [(each.trials, each.winners) for each in rate] == [(4, 0), (4, 0), (4, 2)]


def test_winners_on_the_edge_are_counted_and_warned_of(tmp_path: Path) -> None:
    content = _spaced(tmp_path, [0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 9])
    rate, batch = content.edges
    assert (rate.cells, rate.lowest, rate.highest) == (2, 0, 1)
    assert (batch.lowest, batch.highest) == (1, 1)
    assert "**learning_rate:** 1 of 2 winners stand at the highest value" in markdown(content)


def test_of_the_published_winners_75_take_the_highest_rate(tmp_path: Path) -> None:
    chosen = tabibench().configurations.chosen
    cells = [(data, name, each) for data, row in chosen.items() for name, each in row.items()]
    grid = {"learning_rate": [5e-6, 1e-5, 2e-5, 3e-5]}
    changes = {"models": ["encoders"], "search": [{"datasets": ["tabibench"], "space": grid}]}
    best = {(name, data): each.learning_rate for data, name, each in cells}

    def score(trial: Trial) -> float:
        return 60.0 + (trial.params.learning_rate == best[trial.cell])

    trials = list(planned(tmp_path, **changes).trials)
    outcomes = scored(trials, *map(score, trials))
    plan = planned(tmp_path, outcomes, **changes)
    [edge] = report(plan, winners(plan), known(outcomes)).edges
    assert (edge.cells, edge.lowest, edge.highest) == (135, 10, 75)


def test_a_winners_curve_is_of_its_trial_in_the_search(tmp_path: Path) -> None:
    content = two(tmp_path, {("a", "data"): [labels(8, 10)]})
    assert content.curves[0].points == ((1, 40.0), (2, 61.5))
    assert content.curves[0].trial == content.winners[0].trial.id


# Origins


def test_rows_left_out_revisions_and_hours_are_told(tmp_path: Path) -> None:
    content = two(tmp_path, {("a", "data"): [labels(8, 10)]})
    assert [(each.rows, each.reasons) for each in content.exclusions] == [(3, "no label: 3")]
    by_name = {each.name: each for each in content.revisions}
    assert by_name["a"].commit == "beef" and by_name["data"].fingerprint == "test f00d"
    assert content.provenance["code_commit"] == "abc123"
    assert "trial_hours" not in content.provenance


def test_gpu_hours_are_shares_of_gpus_over_trials_that_had_one(tmp_path: Path) -> None:
    changes = {"models": [model(gpus=0.5)]}
    trials = list(planned(tmp_path, **changes).trials)
    devices = ["cuda: H200", "cuda: H200", "cpu"]
    outcomes = [
        outcome(trial, score=50.0, seconds=3600.0, tags={"device": device})
        for trial, device in zip(trials, devices, strict=True)
    ]
    plan = planned(tmp_path, outcomes, **changes)
    found = report(plan, winners(plan), known(outcomes)).provenance
    assert (found["trial_hours"], found["gpu_hours"]) == ("3.000", "1.000")


# A sweep of winners under another protocol


def _shortened(
    folder: Path, before: list[Records], after: list[Records], by: str = "study", **earlier: Any
) -> Report:
    """The winner of `study`, confirmed there and again at 512 tokens. `by` is the sweep that has
    run it without the change; `earlier` are fields of the protocol that it ran under."""
    plan = planned(folder)
    trials = list(plan.trials)
    file = folder / "short.yaml"
    search = [{"datasets": [dataset()], "space": {"winners_of": "study"}}]
    content = {"models": [model()], "search": search, "protocol": {"max_length": 512}}
    file.write_text(json.dumps({"name": "short", **content, "confirm": {"seeds": [25, 7]}}))
    short = replace(trials[0], protocol=trials[0].protocol.model_copy(update={"max_length": 512}))
    evidence, found = Kept(), scored(trials, 60.0, 50.0, 40.0)
    first = replace(trials[0], protocol=trials[0].protocol.model_copy(update=earlier))
    for trial, sweep, runs in ((first, by, before), (short, "short", after)):
        for seed, kept in zip((25, 7), runs, strict=False):
            run_id = f"{sweep}-{seed}"
            evidence.items[run_id] = kept
            test = items("macro_f1", kept).score
            found.append(opened(trial, seed, sweep=sweep, run_id=run_id, test=test, n=len(kept)))
    sweep = Sweep.read(file)
    plan = selection.planned(sweep, resolve(sweep), known(found))
    return report(plan, winners(plan), known(found), evidence)


def test_a_changed_protocol_stands_beside_the_winners_own_scores(tmp_path: Path) -> None:
    content = _shortened(tmp_path, [labels(90, 100)], [labels(70, 100), labels(10, 100)])
    [change] = content.changes
    assert (change.seeds, change.what) == ((25,), "max_length 512")
    assert change.before == pytest.approx(90, abs=0.1)
    assert change.low < change.difference < change.high < 0 and change.p < 0.01
    assert [table.title for table in paper_tables(content)][
        -1
    ] == "The winners under max_length 512"


def test_a_score_that_another_sweep_has_run_stands_beside_a_change(tmp_path: Path) -> None:
    [change] = _shortened(tmp_path, [labels(9, 10)], [labels(7, 10)], by="earlier").changes
    assert change.seeds == (25,) and change.before > change.after


def test_a_score_of_an_earlier_protocol_does_not_stand_beside_a_change(tmp_path: Path) -> None:
    [change] = _shortened(tmp_path, [labels(9, 10)], [labels(7, 10)], epochs=1).changes
    assert change.seeds == () and math.isnan(change.before)


def test_a_winner_that_was_not_confirmed_leaves_the_difference_unknown(tmp_path: Path) -> None:
    [change] = _shortened(tmp_path, [], [labels(70, 100)]).changes
    assert change.seeds == () and math.isnan(change.before) and math.isnan(change.difference)

"""Statistics against scipy, scikit-learn, hand-computed cases, and simulated models."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score

from tabiflow import draws
from tabiflow import statistics as ours

NAN = math.nan
SIMULATIONS = 1_000
# A true rate of 5% is found above this in 1 of 700 runs of so many simulations.
FALSE_POSITIVES = 0.05 + 3 * math.sqrt(0.05 * 0.95 / SIMULATIONS)
FEW = {"draws": 500}


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# Averages


def test_the_weighted_mean_is_by_size() -> None:
    assert ours.weighted_mean([80, 60], [3, 1]) == 75


@pytest.mark.parametrize(
    ("scores", "sizes"), [([], []), ([50], [0]), ([50, NAN], [1, 1]), ([50], [NAN])]
)
def test_the_weighted_mean_of_the_unknown_is_unknown(scores: list, sizes: list) -> None:
    assert math.isnan(ours.weighted_mean(scores, sizes))


@pytest.mark.parametrize(("scores", "sizes"), [([1, 2], [1]), ([1, 2], [2, -1]), ([1], [])])
def test_sizes_that_cannot_be_are_refused(scores: list, sizes: list) -> None:
    with pytest.raises(ValueError, match=r"sizes|argument"):
        ours.weighted_mean(scores, sizes)


def test_one_missing_score_spoils_its_category_and_the_total_only() -> None:
    found = ours.aggregate(
        {"a": 50, "b": NAN, "c": 80}, {"a": 1, "b": 1, "c": 1}, {"a": "x", "b": "y", "c": "x"}
    )
    assert found.categories["x"] == 65
    assert math.isnan(found.categories["y"]) and math.isnan(found.total)


def test_deviation_is_the_sample_deviation() -> None:
    scores = [84.1, 84.5, 84.3, 84.6, 84.2]
    assert ours.deviation(scores) == pytest.approx(np.std(scores, ddof=1))
    assert ours.deviation([84.1] * 5) == 0
    assert math.isnan(ours.deviation([84.1]))


# Seeds


@pytest.mark.parametrize(("n_a", "n_b", "scale"), [(5, 5, 1), (5, 5, 8), (2, 9, 0.1), (30, 3, 3)])
def test_welch_is_scipy_s(n_a: int, n_b: int, scale: float) -> None:
    a, b = random(n_a).normal(84, 1, n_a), random(n_b).normal(83, scale, n_b)
    theirs = stats.ttest_ind(a, b, equal_var=False)
    found = ours.welch(a.tolist(), b.tolist())
    assert found == pytest.approx((theirs.statistic, theirs.df, theirs.pvalue))


@pytest.mark.parametrize(
    ("a", "b"), [([1], [1, 2]), ([84.1] * 5, [80.3] * 5), ([1, NAN], [1, 2]), ([], [])]
)
def test_welch_without_spread_is_unknown(a: list, b: list) -> None:
    assert math.isnan(ours.welch(a, b).p)


@pytest.mark.parametrize("df", [4, 8, 2000])
def test_power_is_that_of_simulated_t_tests(df: int) -> None:
    values = random().standard_normal(40_000) + 2.5
    spreads = np.sqrt(random(1).chisquare(df, 40_000) / df)
    rejected = np.abs(values / spreads) > stats.t.ppf(0.975, df)
    assert ours.power(2.5, 1, df) == pytest.approx(rejected.mean(), abs=0.01)


def test_power_without_a_difference_is_alpha() -> None:
    assert ours.power(0, 1, 8, alpha=0.01) == pytest.approx(0.01)


@pytest.mark.parametrize(("df", "wanted"), [(4, 0.8), (8, 0.9), (35_000, 0.5), (3, 0.06)])
def test_the_detectable_difference_has_the_power_asked_for(df: int, wanted: float) -> None:
    found = ours.detectable(0.3, df, wanted=wanted)
    assert ours.power(found, 0.3, df) == pytest.approx(wanted, abs=1e-6)


def test_five_seeds_spread_like_the_published_ones_miss_the_published_lead() -> None:
    assert ours.detectable(*ours.seed_error(0.13, 5, 0.14, 5)) == pytest.approx(0.27, abs=0.01)


def test_more_items_detect_less() -> None:
    a, b = random().random(4000), random(1).random(4000)
    few, many = (ours.detectable(*ours.item_error(a[:n], b[:n])) for n in (1000, 4000))
    assert many == pytest.approx(few / 2, rel=0.05)


@pytest.mark.parametrize(("deviation", "n"), [(0, 5), (NAN, 5), (1, 1)])
def test_without_a_known_spread_nothing_is_known_to_be_detectable(deviation: float, n: int) -> None:
    assert math.isnan(ours.detectable(*ours.seed_error(deviation, n, deviation, n)))


def test_constant_differences_have_no_spread() -> None:
    a = random().random(50)
    assert all(math.isnan(each) for each in ours.item_error(a + 0.1, a))


# Proportions and items


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [
        (226, 797, 25.34, 31.58),
        (108, 120, 83.3, 94.2),
        (119, 120, 95.4, 99.9),
        (12, 120, 5.8, 16.7),
    ],
)
def test_wilson_of_published_counts(hits: int, n: int, low: float, high: float) -> None:
    assert ours.wilson(hits, n) == pytest.approx((low, high), abs=0.05 if n == 120 else 0.005)


@pytest.mark.parametrize(("hits", "n", "level"), [(0, 9, 0.95), (9, 9, 0.9), (3, 40, 0.99)])
def test_wilson_is_scipy_s(hits: int, n: int, level: float) -> None:
    theirs = stats.binomtest(hits, n).proportion_ci(level, method="wilson")
    found = ours.wilson(hits, n, level)
    assert found == pytest.approx((100 * theirs.low, 100 * theirs.high), abs=1e-9)


def test_wilson_of_nothing_is_unknown_and_of_the_impossible_refused() -> None:
    assert all(math.isnan(bound) for bound in ours.wilson(0, 0))
    assert all(math.isnan(bound) for bound in ours.wilson(NAN, 10))
    for hits, n, level in [(11, 10, 0.95), (-1, 10, 0.95), (1, 10, 95)]:
        with pytest.raises(ValueError, match=r"proportion|between"):
            ours.wilson(hits, n, level)


def test_bootstrap_of_a_mean_is_scipy_s_percentile_interval() -> None:
    scores = random().gamma(2, 10, 150)
    theirs = stats.bootstrap(
        (scores,), np.mean, method="percentile", n_resamples=10_000, rng=random(1)
    ).confidence_interval
    assert ours.bootstrap(scores) == pytest.approx(theirs, abs=0.25)


def test_bootstrap_of_hits_drawn_together_is_that_of_hits_drawn_one_by_one() -> None:
    hits = (random().random(400) < 0.8).astype(float)
    one_by_one = ours.bootstrap_of(draws.mean_of(hits), 400)
    assert ours.bootstrap(hits) == pytest.approx(one_by_one, abs=0.003)


def test_bootstrap_covers_the_truth_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(SIMULATIONS):
        low, high = ours.bootstrap(random(seed).normal(70, 10, 80), seed=seed, draws=300)
        covered += low <= 70 <= high
    assert covered / SIMULATIONS == pytest.approx(0.95, abs=0.03)


def test_the_same_seed_draws_the_same() -> None:
    scores = random().random(300)
    assert ours.bootstrap(scores, **FEW) == ours.bootstrap(scores, **FEW)
    assert ours.bootstrap(scores, seed=1, **FEW) != ours.bootstrap(scores, **FEW)


def test_draws_come_in_blocks_of_bounded_size() -> None:
    blocks = list(draws.resamples(300, 8000, 0))
    assert len(blocks) > 1 and max(block.size for block in blocks) <= draws.CELLS
    assert (np.concatenate(blocks).sum(axis=1) == np.full(8000, 300)).all()


@pytest.mark.parametrize("scores", [[], [50.0], [50.0, NAN, 60.0]])
def test_bootstrap_of_the_unknown_is_unknown(scores: list) -> None:
    assert all(math.isnan(bound) for bound in ours.bootstrap(scores, **FEW))


def test_macro_f1_of_draws_is_scikit_learn_s_of_the_drawn_rows() -> None:
    gold, said = random().integers(0, 4, 40), random(1).integers(0, 5, 40)
    weights = next(draws.resamples(40, 50, 0))
    rows = draws.over_rows(lambda r: 100 * f1_score(gold[r], said[r], average="macro"))
    assert draws.macro_f1_of(gold, said)(weights) == pytest.approx(rows(weights))


def test_pearson_of_draws_is_scipy_s_of_the_drawn_rows() -> None:
    x = 1000 + random().random(30)
    y = x + random(1).random(30)
    weights = next(draws.resamples(30, 50, 0))
    rows = draws.over_rows(lambda r: 100 * stats.pearsonr(x[r], y[r]).statistic)
    assert draws.pearson_of(x, y)(weights) == pytest.approx(rows(weights))


def test_micro_f1_of_draws_adds_counts_before_dividing() -> None:
    metric = draws.micro_f1_of([1, 0], [1, 2], [2, 1])
    assert metric(np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 1.0]])) == pytest.approx(
        [100 / 3, 200 / 3, 0]
    )


@pytest.mark.parametrize(
    "metric",
    [
        draws.pearson_of([1, 2, 3], [0.1, 0.1, 0.1]),
        draws.micro_f1_of([0, 0, 0], [0, 0, 0], [0, 0, 0]),
        draws.mean_of([1, NAN, 2]),
    ],
)
def test_an_undefined_metric_has_no_interval(metric: draws.Metric) -> None:
    assert all(math.isnan(bound) for bound in ours.bootstrap_of(metric, 3, **FEW))


def test_paired_bootstrap_sees_what_two_intervals_would_hide() -> None:
    easy = random().normal(60, 20, 400)
    a, b = easy + random(1).normal(1, 2, 400), easy
    found = ours.paired_bootstrap(a, b)
    assert found.low < 1 < found.high and found.low > 0 and found.p < 0.01
    assert ours.bootstrap(a).low < ours.bootstrap(b).high


def test_paired_bootstrap_of_a_metric_is_that_of_scores_where_it_is_a_mean() -> None:
    a, b = random().random(200), random(1).random(200)
    scores = ours.paired_bootstrap(a, b, **FEW)
    metric = ours.paired_bootstrap_of(draws.mean_of([*a, *b]), 200, **FEW)
    assert metric == pytest.approx(scores)


def test_scores_of_different_items_are_not_paired() -> None:
    for test in (ours.paired_bootstrap, ours.permutation):
        with pytest.raises(ValueError, match="3 and 2 scores"):
            test([1, 2, 3], [1, 2])


@pytest.mark.parametrize("n", [2, 5, 12])
def test_permutation_of_few_items_is_scipy_s_exact_test(n: int) -> None:
    a, b = random(n).random(n), random(n + 1).random(n)
    theirs = stats.permutation_test(
        (a, b), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=np.inf
    )
    assert ours.permutation(a, b) == pytest.approx(theirs.pvalue)
    assert ours.permutation_of(draws.mean_of([*a, *b]), n) == pytest.approx(theirs.pvalue)


@pytest.mark.parametrize(("wins", "losses"), [(5, 0), (7, 1), (9, 4)])
def test_permutation_of_hits_is_the_sign_test_over_the_items_that_differ(
    wins: int, losses: int
) -> None:
    a = [1] * wins + [0] * losses + [1] * 500
    b = [0] * wins + [1] * losses + [1] * 500
    theirs = stats.binomtest(wins, wins + losses).pvalue
    assert ours.permutation(a, b) == pytest.approx(theirs)


def test_permutation_of_many_items_is_near_the_t_test_and_never_zero() -> None:
    a = random().normal(0.15, 1, 300)
    theirs = stats.ttest_1samp(a, 0).pvalue
    assert ours.permutation(a, np.zeros(300)) == pytest.approx(theirs, abs=0.01)
    assert ours.permutation(a + 9, np.zeros(300), draws=99) == 0.01


@pytest.mark.parametrize(
    ("a", "b", "p"), [([1, 2], [1, 2], 1), ([], [], NAN), ([1, NAN], [1, 2], NAN)]
)
def test_permutation_of_equals_is_one_and_of_the_unknown_unknown(a, b, p) -> None:
    assert ours.permutation(a, b) == pytest.approx(p, nan_ok=True)


# Many comparisons


def test_holm_of_a_hand_computed_case_in_any_order() -> None:
    assert ours.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert ours.holm([0.5, 0.9, NAN]) == pytest.approx([1, 1, NAN], nan_ok=True)
    assert ours.holm([]) == []
    with pytest.raises(ValueError, match="between 0 and 1"):
        ours.holm([0.1, 1.2])


def test_beating_needs_the_lead_and_every_p_value() -> None:
    assert ours.beats(0.5, [0.01, 0.05])
    for difference, p_values in [(0.5, [0.01, 0.06]), (0.5, [0.01, NAN]), (0.5, []), (-1, [0.01])]:
        assert not ours.beats(difference, p_values)


SCORES = {"low": 70.0, "top": 80.0, "mid": 75.0}


@pytest.mark.parametrize(
    ("p_values", "groups"),
    [
        ((0.9, 0.9, 0.9), [("top", "mid", "low")]),
        ((0.001, 0.001, 0.001), [("top",), ("mid",), ("low",)]),
        ((0.9, 0.001, 0.9), [("top", "mid"), ("mid", "low")]),
        ((0.001, 0.9, 0.001), [("top", "low"), ("mid",)]),
        ((0.03, 0.03, 0.03), [("top", "mid", "low")]),
        ((NAN, 0.001, 0.001), [("top", "mid"), ("low",)]),
    ],
    ids=["all alike", "all apart", "chain", "out of order", "by Holm only", "one unknown"],
)
def test_tie_groups(p_values: tuple, groups: list) -> None:
    pairs = [("mid", "top"), ("low", "top"), ("mid", "low")]
    assert ours.tie_groups(SCORES, dict(zip(pairs, p_values, strict=True))) == tuple(groups)


def test_no_models_are_no_group() -> None:
    assert ours.tie_groups({}, {}) == ()


def test_two_models_share_a_group_exactly_if_the_data_cannot_tell_them_apart() -> None:
    names = "abcdefgh"
    pairs = dict(zip(combinations(names, 2), random().choice([1e-5, 0.5], 28), strict=True))
    groups = ours.tie_groups(dict.fromkeys(names, 1.0), pairs)
    for pair, p in pairs.items():
        assert any(set(pair) <= set(group) for group in groups) == (p == 0.5)


@pytest.mark.parametrize(
    ("scores", "error"), [(SCORES | {"mid": NAN}, "`mid` has no score"), (SCORES, "no p-value")]
)
def test_groups_need_scores_and_all_pairs(scores: dict, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        ours.tie_groups(scores, {("mid", "top"): 0.5})


# Agreement and inequality

FLEISS_1971 = [
    *([0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1]),
    *([7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7]),
]


def test_kappa_of_worked_examples() -> None:
    assert ours.fleiss_kappa(FLEISS_1971) == pytest.approx(0.210, abs=0.0005)
    assert ours.fleiss_kappa([[3, 0], [0, 3]]) == 1
    assert ours.fleiss_kappa([[1, 1], [1, 1]]) == -1


def test_kappa_of_one_category_or_none_is_unknown() -> None:
    for table in ([[3, 0], [3, 0]], [], [[3, NAN]]):
        assert math.isnan(ours.fleiss_kappa(table))


@pytest.mark.parametrize("table", [[[3, 0], [1, 1]], [[1, 0]], [[4, -1]]])
def test_kappa_refuses_unequal_numbers_of_ratings(table: list) -> None:
    with pytest.raises(ValueError, match="same number of ratings"):
        ours.fleiss_kappa(table)


SEVERITY = ("adequate", "flawed", "changed")


@pytest.mark.parametrize(
    ("votes", "label"),
    [
        (["adequate", "changed", "adequate"], "adequate"),
        (["changed", "flawed", "adequate"], "changed"),
        (["flawed", "adequate", "flawed", "adequate", "changed"], "flawed"),
    ],
)
def test_the_majority_decides_and_ties_go_to_the_severest(votes: list, label: str) -> None:
    assert ours.majority(votes, SEVERITY) == label


def test_no_votes_and_unknown_votes_are_refused() -> None:
    for votes in ([], ["fine"]):
        with pytest.raises(ValueError, match="vote"):
            ours.majority(votes, SEVERITY)


def test_gini_is_the_mean_difference_of_all_pairs_over_twice_the_mean() -> None:
    values = random().gamma(1, 10, 33)
    pairs = np.abs(values[:, None] - values).sum() / (2 * 33**2 * values.mean())
    assert ours.gini(values) == pytest.approx(pairs)
    assert ours.gini([1, 1, 1]) == 0
    assert ours.gini([0, 0, 0, 1]) == 0.75


def test_gini_of_nothing_is_unknown_and_of_negatives_refused() -> None:
    for values in ([], [0, 0], [1, NAN]):
        assert math.isnan(ours.gini(values))
    with pytest.raises(ValueError, match="0 or more"):
        ours.gini([1, -0.5])


# Simulated models


def answers(generator: np.random.Generator, rates: list[float], items: int = 200) -> list:
    """Right or wrong, 0 or 1, for each model; items differ in difficulty, alike for all models."""
    difficulty = generator.normal(0, 0.15, items)
    return [(generator.random(items) < rate + difficulty).astype(float) for rate in rates]


def beaten(a: np.ndarray, b: np.ndarray, seed: int = 0) -> bool:
    return ours.beats(a.mean() - b.mean(), [ours.permutation(a, b, seed=seed, draws=199)])


def test_of_equal_models_one_beats_the_other_in_at_most_five_of_a_hundred_data_sets() -> None:
    pairs = [answers(random(seed), [0.7, 0.7]) for seed in range(SIMULATIONS)]
    wins = [beaten(a, b) or beaten(b, a) for a, b in pairs]
    assert np.mean(wins) <= FALSE_POSITIVES


def test_of_equal_recipes_one_beats_the_other_in_at_most_five_of_a_hundred_sets_of_seeds() -> None:
    samples = random().normal(84, 0.3, (SIMULATIONS, 2, 5))
    tests = [(ours.welch(a, b), a.mean() - b.mean()) for a, b in samples]
    wins = [ours.beats(abs(difference), [test.p]) for test, difference in tests]
    assert np.mean(wins) <= FALSE_POSITIVES


def test_of_four_equal_models_any_is_told_apart_in_at_most_five_of_a_hundred() -> None:
    apart = 0
    for seed in range(SIMULATIONS // 2):
        models = dict(zip("abcd", answers(random(seed), [0.7] * 4, 100), strict=True))
        pairs = {
            (a, b): ours.permutation(models[a], models[b], draws=199)
            for a, b in combinations(models, 2)
        }
        apart += len(ours.tie_groups({name: x.mean() for name, x in models.items()}, pairs)) > 1
    assert apart / (SIMULATIONS // 2) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / (SIMULATIONS // 2))


def test_of_equal_models_macro_f1_is_told_apart_in_at_most_five_of_a_hundred() -> None:
    apart = 0
    for seed in range(200):
        generator = random(seed)
        gold = generator.integers(0, 3, 100)
        a, b = (np.where(generator.random(100) < 0.7, gold, 0) for _ in range(2))
        metric = draws.macro_f1_of([*gold, *gold], [*a, *b])
        apart += ours.permutation_of(metric, 100, draws=199) <= 0.05
    assert apart / 200 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)


def test_a_real_difference_is_found_as_often_as_power_says(record_property) -> None:
    pairs = [answers(random(seed), [0.8, 0.7], 400) for seed in range(SIMULATIONS // 2)]
    observed = float(np.mean([beaten(a, b) for a, b in pairs]))
    errors = [ours.item_error(a, b) for a, b in pairs]
    difference = float(np.mean([a.mean() - b.mean() for a, b in pairs]))
    expected = ours.power(difference, float(np.mean([error for error, _ in errors])), 399)
    record_property("power", observed)
    record_property("expected power", expected)
    assert observed > 0.85
    assert observed == pytest.approx(expected, abs=0.05)

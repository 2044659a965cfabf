"""The published figures are whole, agree with each other and go by the registry's names."""

from collections import Counter

import pytest

from tabiflow.published import Published, tabibench
from tabiflow.registry.datasets import DATASETS
from tabiflow.registry.models import MODELS
from tabiflow.statistics import Aggregate, aggregate, mean, welch_from_summary

PUBLISHED = tabibench()
ROWS = {row.name: row for row in DATASETS if "tabibench" in row.tags}
# The tables are printed with two decimals, so sums of them are off by their rounding.
ROUNDING = 0.01


def aggregated(published: Published, model: str, **resized: int) -> Aggregate:
    sizes = {name: n for table in published.results for name, n in table.test_sizes.items()}
    return aggregate(
        {name: score for table in published.results for name, score in table.scores[model].items()},
        sizes | resized,
        {name: table.category for table in published.results for name in table.test_sizes},
    )


def test_every_model_and_data_set_has_a_row_in_the_registry() -> None:
    assert set(PUBLISHED.models) <= {row.name for row in MODELS}
    published = {name: table for table in PUBLISHED.results for name in table.test_sizes}
    assert {name: table.category for name, table in published.items()} == {
        name: row.category for name, row in ROWS.items()
    }


def test_every_cell_has_a_score_and_a_configuration() -> None:
    for model in PUBLISHED.models:
        for dataset in ROWS:
            assert 0 < (PUBLISHED.score(model, dataset) or 0) < 100
            assert PUBLISHED.configuration(model, dataset) is not None


def test_weights_are_the_registry_s_test_sizes() -> None:
    for table in PUBLISHED.results:
        for dataset, n in table.test_sizes.items():
            assert ROWS[dataset].sizes["test"] == n


@pytest.mark.parametrize("model", PUBLISHED.models)
def test_category_averages_and_total_of_table_5_come_out_of_tables_6_to_13(model: str) -> None:
    ours, printed = aggregated(PUBLISHED, model), PUBLISHED.overview
    assert ours.categories == pytest.approx(printed.categories[model], abs=ROUNDING)
    assert ours.total == pytest.approx(printed.totals[model], abs=ROUNDING)


@pytest.mark.parametrize("table", PUBLISHED.results, ids=lambda table: table.source)
def test_averages_beside_each_table_are_those_of_table_5(table) -> None:
    for model, average in table.averages.items():
        assert average == PUBLISHED.overview.categories[model][table.category]


@pytest.mark.parametrize("model", PUBLISHED.models)
def test_another_weight_misses_table_5(model: str) -> None:
    ours = aggregated(PUBLISHED, model, apps_tr=3765).categories["code_retrieval"]
    printed = PUBLISHED.overview.categories[model]["code_retrieval"]
    assert abs(ours - printed) > ROUNDING


@pytest.mark.parametrize("dataset", ROWS)
def test_twice_the_weight_of_any_data_set_misses_table_5(dataset: str) -> None:
    category, n = ROWS[dataset].category, ROWS[dataset].sizes["test"]
    misses = [
        abs(
            aggregated(PUBLISHED, model, **{dataset: 2 * n}).categories[category]
            - printed[category]
        )
        for model, printed in PUBLISHED.overview.categories.items()
    ]
    assert max(misses) > ROUNDING


@pytest.mark.parametrize(
    ("model", "unweighted", "balanced", "by_row"),
    [
        ("turkishbertweet", 67.22, 66.33, 72.23),
        ("ytu-cosmos-bert", 72.25, 70.80, 77.60),
        ("berturk", 73.31, 72.45, 78.21),
        ("tabibert", 74.41, 74.25, 78.79),
        ("mmbert", 77.17, 77.72, 79.60),
    ],
)
def test_other_averages(model: str, unweighted: float, balanced: float, by_row: float) -> None:
    ours = aggregated(PUBLISHED, model)
    found = (ours.unweighted, ours.balanced, ours.by_row)
    assert found == pytest.approx((unweighted, balanced, by_row), abs=0.0051)


def test_previous_best_and_tabibert_s_lead_follow_from_table_5() -> None:
    table = PUBLISHED.overview
    others = [model for model in PUBLISHED.turkish if model != "tabibert"]
    for category, best in table.previous_best.items():
        assert best == max(table.categories[model][category] for model in others)
        lead = table.categories["tabibert"][category] - best
        assert lead == pytest.approx(table.lead[category], abs=1e-9)
    total = mean(list(table.previous_best.values()))
    assert total == pytest.approx(table.previous_best_total, abs=ROUNDING)
    assert table.totals["tabibert"] - total == pytest.approx(table.lead_total, abs=ROUNDING)


@pytest.mark.parametrize("model", PUBLISHED.models)
def test_the_context_ablation_starts_from_table_10(model: str) -> None:
    cap = PUBLISHED.context_cap
    assert cap.scores[model] == PUBLISHED.score(model, cap.dataset)
    assert cap.capped[model] - cap.scores[model] == pytest.approx(cap.differences[model])
    assert (cap.lengths[model] == cap.limit) == (cap.differences[model] == 0)


def test_shares_cut_have_the_registry_s_split_sizes() -> None:
    assert PUBLISHED.cut_shares.sizes == ROWS[PUBLISHED.cut_shares.dataset].sizes
    assert set(PUBLISHED.cut_shares.shares) == set(PUBLISHED.models)


@pytest.mark.parametrize(
    ("category", "t", "df", "printed"),
    [("nli", 1.29, 7.96, 1.23), ("token_classification", -0.23, 4.15, -0.21)],
)
def test_welch_of_the_five_seeds(category: str, t: float, df: float, printed: float) -> None:
    seeds = PUBLISHED.seeds
    spread = {each.model: each for each in seeds.spreads if each.category == category}
    a, b, n = spread["tabibert"], spread["berturk"], len(seeds.seeds)
    found = welch_from_summary(a.mean, a.deviation, n, b.mean, b.deviation, n)
    assert (found.t, found.df) == pytest.approx((t, df), abs=0.005)
    assert found.p > 0.05
    assert printed == next(each.t for each in seeds.welch if each.category == category)


def test_configurations_lie_on_the_published_grid() -> None:
    chosen = [
        each for models in PUBLISHED.configurations.chosen.values() for each in models.values()
    ]
    rates = Counter(each.learning_rate for each in chosen)
    assert set(rates) == {5e-6, 1e-5, 2e-5, 3e-5}
    assert {each.weight_decay for each in chosen} == {1e-5, 1e-6}
    assert {each.batch_size for each in chosen} == {16, 32}
    assert (len(chosen), rates[3e-5], sum(each.epochs == 10 for each in chosen)) == (135, 75, 74)


def test_differences_name_known_data_sets_and_models() -> None:
    for each in PUBLISHED.differences:
        assert set(each.datasets) <= set(ROWS)
        assert set(each.models) <= set(PUBLISHED.models)


def test_differences_are_found_by_data_set_and_model() -> None:
    pos = PUBLISHED.differences_of("posud_imst")
    assert "published_f1" in {each.beside for each in pos}
    assert len(PUBLISHED.differences_of("tquad", "berturk")) == 2
    assert len(PUBLISHED.differences_of("tquad", "ytu-cosmos-bert")) == 3
    assert PUBLISHED.differences_of("snli_tr") == ()


def test_what_is_not_published_is_none() -> None:
    assert PUBLISHED.score("berturk", "example-nli") is None
    assert PUBLISHED.score("example-bert", "snli_tr") is None
    assert PUBLISHED.configuration("example-bert", "snli_tr") is None
    assert PUBLISHED.results_of("example") is None

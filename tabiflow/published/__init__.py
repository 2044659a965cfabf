"""The figures that the TabiBERT paper and its code publish, read from a file in this package.

They are facts of others, each with its source, and never mixed with scores that tabiflow measured:
whoever shows one marks it as published. Models and data sets go by their names in the registry,
which this package does not import.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

from tabiflow.protocol import Frozen, Params

ByModel = Mapping[str, float]
"""Model -> figure, scores from 0 to 100."""


class Paper(Frozen):
    title: str
    arxiv: str
    seed: int
    """Of every score but those of `Seeds`."""
    introduces: str
    """The model whose margins the last rows of Table 5 give."""


class Overview(Frozen):
    """Table 5."""

    source: str
    categories: Mapping[str, Mapping[str, float]]
    """Model -> category -> average over its data sets, weighted by test size."""
    totals: ByModel
    """Mean of the eight categories."""
    parameters_millions: ByModel
    previous_best: Mapping[str, float]
    """Category -> best of the Turkish models without TabiBERT."""
    previous_best_total: float
    lead: Mapping[str, float]
    """Category -> TabiBERT's margin over the previous best."""
    lead_total: float


class Results(Frozen):
    """One category's table: 6 to 13."""

    source: str
    category: str
    metric: str
    test_sizes: Mapping[str, int]
    """Data set -> its weight in the average, in the table's order."""
    scores: Mapping[str, Mapping[str, float]]
    """Model -> data set -> test score."""
    averages: ByModel


class CutShares(Frozen):
    """Table 14: per cent of examples longer than `limit` tokens."""

    source: str
    dataset: str
    limit: int
    sizes: Mapping[str, int]
    shares: Mapping[str, Mapping[str, float]]
    """Model -> split -> per cent."""


class ContextCap(Frozen):
    """Table 15: scores at each model's own length and at `limit` tokens."""

    source: str
    dataset: str
    limit: int
    lengths: Mapping[str, int]
    scores: ByModel
    capped: ByModel
    differences: ByModel


class Spread(Frozen):
    """A category's score over the seeds."""

    model: str
    category: str
    mean: float
    deviation: float


class WelchT(Frozen):
    """As printed; recomputed from the printed means and deviations it is 1.29 and -0.23."""

    category: str
    model: str
    reference: str
    t: float


class Seeds(Frozen):
    """Appendix A.3."""

    source: str
    seeds: tuple[int, ...]
    spreads: tuple[Spread, ...]
    welch: tuple[WelchT, ...]


class Configuration(Params):
    """What a cell's search chose."""

    epochs: int
    """The budget of the published final run, fixed from where its search stopped."""


class Configurations(Frozen):
    source: str
    doubts: tuple[str, ...]
    chosen: Mapping[str, Mapping[str, Configuration]]
    """Data set -> model -> configuration."""


class Difference(Frozen):
    """Why a score of tabiflow's cannot stand beside the published one without a word."""

    datasets: tuple[str, ...]
    models: tuple[str, ...] = ()
    """Empty: all."""
    about: Literal["metric", "data"]
    ours: Literal["higher", "lower", "either"]
    """Where our score lies for the same predictions or, of data, the same recipe."""
    beside: str = ""
    """The metric that tabiflow records beside its own and that does compare, if any."""
    note: str


class Published(Frozen):
    paper: Paper
    models: tuple[str, ...]
    """In the order of the paper's tables."""
    turkish: tuple[str, ...]
    """The models among which the paper prints the best in bold."""
    overview: Overview
    results: tuple[Results, ...]
    cut_shares: CutShares
    context_cap: ContextCap
    seeds: Seeds
    configurations: Configurations
    differences: tuple[Difference, ...]

    def results_of(self, category: str) -> Results | None:
        return next((each for each in self.results if each.category == category), None)

    def score(self, model: str, dataset: str) -> float | None:
        """None where nothing is published."""
        for results in self.results:
            if dataset in results.test_sizes:
                return results.scores.get(model, {}).get(dataset)
        return None

    def configuration(self, model: str, dataset: str) -> Configuration | None:
        return self.configurations.chosen.get(dataset, {}).get(model)

    def differences_of(self, dataset: str, model: str | None = None) -> tuple[Difference, ...]:
        """Those that concern a data set, or of them those that concern one model."""
        return tuple(
            each
            for each in self.differences
            if dataset in each.datasets
            and (model is None or not each.models or model in each.models)
        )


@cache
def tabibench() -> Published:
    """The TabiBERT paper's tables and its code's configurations."""
    text = files(__package__).joinpath("tabibench.json").read_text(encoding="utf-8")
    return Published.model_validate_json(text)

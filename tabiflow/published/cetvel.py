"""The published figures of CETVEL: 33 models, 28 columns, as printed. What follows from them is
computed elsewhere; columns go by the paper's names."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from tabiflow.protocol import Frozen


class CategoryScores(Frozen):
    """Table 2."""

    source: str
    categories: Mapping[str, Mapping[str, float]]
    """Model -> category -> score."""
    totals: Mapping[str, float]


class ColumnScores(Frozen):
    """One category's table: 3 to 9."""

    source: str
    category: str
    scores: Mapping[str, Mapping[str, float]]
    """Model -> column -> score."""


class Cetvel(Frozen):
    title: str
    overview: CategoryScores
    results: tuple[ColumnScores, ...]
    printed_gini: Mapping[str, float]
    """By category, from the text; summaries have none there."""
    doubts: tuple[str, ...]

    @property
    def models(self) -> tuple[str, ...]:
        """From the best total down, as in table 2."""
        return tuple(self.overview.totals)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(
            column for table in self.results for column in next(iter(table.scores.values()))
        )

    def scores(self, model: str) -> dict[str, float]:
        """By column; empty for a model that is not there."""
        found = [table.scores.get(model, {}) for table in self.results]
        return {column: score for columns in found for column, score in columns.items()}


@cache
def cetvel() -> Cetvel:
    text = files(__package__).joinpath("cetvel.json").read_text(encoding="utf-8")
    return Cetvel.model_validate_json(text)

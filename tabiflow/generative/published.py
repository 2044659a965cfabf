"""What follows from the published tables: which averages their columns give, how far each column
tells models apart, and where our own models would stand."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tabiflow.generative.summary import Averages, Inequality, averages, inequality
from tabiflow.published.cetvel import Cetvel, ColumnScores
from tabiflow.spec import BenchmarkTask
from tabiflow.statistics import mean

TOLERANCE = 0.1
"""What two roundings to one decimal can do, and a little more."""


@dataclass(frozen=True)
class Derivation:
    """A printed column against what its rule makes of the other columns."""

    column: str
    source: str
    rule: str
    worst: float
    """Largest difference over the models."""
    worst_model: str
    beyond: int
    """Models that differ by more than the tolerance."""
    models: int

    @property
    def reproduces(self) -> bool:
        return self.beyond == 0


def derivations(published: Cetvel, tasks: Sequence[BenchmarkTask]) -> tuple[Derivation, ...]:
    """Of every average that the tables print: PLU, the seven categories, the total."""
    by_model = {model: published.scores(model) for model in published.models}
    made = {model: averages(scores, tasks) for model, scores in by_model.items()}
    plu = [task for task in tasks if task.group == "PLU"]
    found = [
        _derivation(
            "PLU",
            "Table 4",
            "mean of its four parts weighted by their rows",
            {model: scores["PLU"] for model, scores in by_model.items()},
            {model: _category(averages(by_model[model], plu)) for model in by_model},
        )
    ]
    for table in published.results:
        found.append(_of_category(published, table.source, table.category, made, tasks))
    printed = published.overview
    totals = {model: mean(list(printed.categories[model].values())) for model in by_model}
    rule = "mean of the seven printed categories"
    found.append(_derivation("total", printed.source, rule, printed.totals, totals))
    return tuple(found)


def _of_category(
    published: Cetvel,
    source: str,
    category: str,
    made: Mapping[str, Averages],
    tasks: Sequence[BenchmarkTask],
) -> Derivation:
    parts = {task.group or task.column for task in tasks if task.category == category}
    rule = f"mean of its {len(parts)} columns" if len(parts) > 1 else "its only column"
    printed = {model: row[category] for model, row in published.overview.categories.items()}
    ours = {model: each.categories[category] for model, each in made.items()}
    return _derivation(category, source, rule, printed, ours)


def _category(found: Averages) -> float:
    return next(iter(found.categories.values()))


def _derivation(
    column: str,
    source: str,
    rule: str,
    printed: Mapping[str, float],
    made: Mapping[str, float],
) -> Derivation:
    # To the printed decimals and one more: binary fractions are not the tables' doubt.
    gaps = {model: round(abs(printed[model] - made[model]), 3) for model in printed}
    worst = max(gaps, key=lambda model: gaps[model])
    beyond = sum(gap > TOLERANCE for gap in gaps.values())
    return Derivation(column, source, rule, gaps[worst], worst, beyond, len(gaps))


def inequalities(published: Cetvel) -> dict[str, Inequality]:
    """Of the seven printed categories, then of every column."""
    rows = published.overview.categories.values()
    found = {name: inequality([row[name] for row in rows]) for name in next(iter(rows))}
    for table in published.results:
        for column in next(iter(table.scores.values())):
            found[column] = inequality([row[column] for row in table.scores.values()])
    return found


@dataclass(frozen=True)
class Standing:
    """A model in a category's table, or in the overview where columns are categories."""

    model: str
    published: bool
    scores: Mapping[str, float]
    average: float


def standings(
    published: Cetvel, tasks: Sequence[BenchmarkTask], ours: Mapping[str, Mapping[str, float]]
) -> dict[str, tuple[Standing, ...]]:
    """By category and `overall`: the published models and ours (by column), the best first.

    Published averages are as printed, ours by `averages`; unknown ones come last. Whether they
    compare at all is for `Result.comparable` to say.
    """
    printed = published.overview
    made = {model: averages(scores, tasks) for model, scores in ours.items()}
    found = {
        table.category: _ordered(
            *(
                Standing(model, True, scores, printed.categories[model][table.category])
                for model, scores in table.scores.items()
            ),
            *(
                Standing(
                    model, False, _of_columns(table, ours[model]), each.categories[table.category]
                )
                for model, each in made.items()
            ),
        )
        for table in published.results
    }
    overall = _ordered(
        *(Standing(m, True, printed.categories[m], total) for m, total in printed.totals.items()),
        *(Standing(model, False, each.categories, each.overall) for model, each in made.items()),
    )
    return {"overall": overall, **found}


def _of_columns(table: ColumnScores, scores: Mapping[str, float]) -> dict[str, float]:
    columns = next(iter(table.scores.values()))
    return {column: scores.get(column, math.nan) for column in columns}


def _ordered(*rows: Standing) -> tuple[Standing, ...]:
    return tuple(sorted(rows, key=lambda row: (math.isnan(row.average), -row.average)))

"""A report as tables of text: what Markdown, LaTeX, HTML and the terminal have in common.

Every number is turned into text here and nowhere else, so that all forms show the same.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tabiflow.report.comparisons import Comparison
from tabiflow.report.content import Report
from tabiflow.report.scores import Score

Row = tuple[str, ...]
DASH = "–"
LEVEL = "95% intervals"


@dataclass(frozen=True)
class Table:
    title: str
    header: Row
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    quiet: frozenset[int] = frozenset()
    """Rows that somebody else has measured."""
    strong: frozenset[tuple[int, int]] = frozenset()
    """Row and column of the best of ours."""


def number(value: float) -> str:
    return DASH if math.isnan(value) else f"{value:.2f}"


def signed(value: float) -> str:
    return DASH if math.isnan(value) else f"{value:+.2f}"


def p_value(value: float) -> str:
    if math.isnan(value):
        return DASH
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def interval(low: float, high: float, text: str = "{:.2f} to {:.2f}") -> str:
    return DASH if math.isnan(low + high) else text.format(low, high)


def spread(value: float, deviation: float) -> str:
    """Mean ± deviation over seeds, where there are several."""
    return number(value) + ("" if math.isnan(deviation) else f" ± {deviation:.2f}")


def score_table(report: Report) -> Table:
    rows = tuple(
        (
            each.dataset,
            each.model,
            each.metric,
            str(each.n or DASH),
            spread(each.test, each.deviation),
            interval(each.low, each.high),
            _share(each),
            " ".join(map(str, each.seeds)) or DASH,
        )
        for each in sorted(report.scores, key=lambda each: _place(report, each.dataset))
    )
    header = ("data set", "model", "metric", "n", "test", "interval", "as a share", "seeds")
    notes = (
        f"{LEVEL} over test items: bootstrap of {report.draws:,} draws; Wilson's for shares, whose"
        " words or items are taken for independent. ± is the deviation over seeds.",
        *(f"{each.model} on {each.dataset}: no interval, {each.doubt}." for each in report.doubts),
    )
    return Table("Test scores", header, rows, notes)


def _share(score: Score) -> str:
    share = score.share
    if share is None:
        return DASH
    return f"{share.name} {number(share.value)} ({interval(share.low, share.high)})"


def figure_table(report: Report) -> Table:
    """Precision and recall, errors by novelty, figures by tag: whatever a task has measured."""
    models = [row.name for row in report.models]
    rows: list[Row] = []
    for dataset in (row.name for row in report.datasets):
        found = {each.model: each.figures for each in report.scores if each.dataset == dataset}
        for name in dict.fromkeys(name for figures in found.values() for name in figures):
            values = (found.get(model, {}).get(name, math.nan) for model in models)
            rows.append((dataset, name, *(_figure(name, value) for value in values)))
    return Table("Other figures on test", ("data set", "figure", *models), tuple(rows))


def _figure(name: str, value: float) -> str:
    """Counts are named `n`."""
    counted = name.startswith("n_") or name.endswith("_n")
    return f"{value:.0f}" if counted and not math.isnan(value) else number(value)


def _place(report: Report, dataset: str) -> int:
    return [each.name for each in report.datasets].index(dataset)


def average_table(report: Report) -> Table:
    rows = [
        (
            each.model,
            each.category,
            spread(each.test, each.deviation),
            interval(each.low, each.high),
            number(each.unweighted),
            DASH,
        )
        for each in report.categories
    ]
    rows += [
        (
            each.model,
            "average",
            spread(each.test, each.deviation),
            interval(each.low, each.high),
            number(each.unweighted),
            number(each.by_row),
        )
        for each in report.averages
    ]
    notes = (
        "A category is weighted by test size, the average is the mean of the categories. Beside "
        "them the plain means over data sets, and the mean over all test rows.",
    )
    header = ("model", "category", "test", "interval", "unweighted", "by row")
    return Table("Averages", header, tuple(rows), notes)


def comparison_tables(report: Report) -> list[Table]:
    """The reference is the model that stands first in the sweep."""
    pairs = dict.fromkeys((each.model, each.reference) for each in report.comparisons)
    return [
        _comparisons(
            report, [each for each in report.comparisons if (each.model, each.reference) == pair]
        )
        for pair in pairs
    ]


def _comparisons(report: Report, found: Sequence[Comparison]) -> Table:
    header = (
        "on",
        "difference",
        "interval",
        "p bootstrap",
        "p permutation",
        "Holm",
        "Welch t (df)",
        "p",
        "Holm",
        "shown by items",
        "by seeds",
        "better",
    )
    rows = tuple(
        (
            each.name,
            signed(each.difference),
            interval(each.low, each.high, "{:+.2f} to {:+.2f}"),
            p_value(each.bootstrap_p),
            p_value(each.permutation_p),
            p_value(each.items_holm_p),
            DASH if math.isnan(each.welch_t) else f"{each.welch_t:.2f} ({each.welch_df:.1f})",
            p_value(each.welch_p),
            p_value(each.seeds_holm_p),
            _shown_by(each.detectable_items),
            _shown_by(each.detectable_seeds),
            each.better or DASH,
        )
        for each in found
    )
    notes = (
        f"Paired over the same test items, {report.draws:,} draws; Welch's t over seeds where both"
        " have two or more. Holm's method over the data sets, and over the categories. Shown by:"
        " the smallest true difference that these items or seeds show at 5% with 80% power. Better:"
        " every known adjusted p is at most 5%.",
    )
    return Table(f"{found[0].model} minus {found[0].reference}", header, rows, notes)


def _shown_by(difference: float) -> str:
    """Scores lie between 0 and 100, so that a larger difference is none that could be."""
    return "> 100" if difference > 100 else number(difference)


def tie_table(report: Report) -> Table:
    rows = tuple(
        (each.name, " | ".join(", ".join(group) for group in each.groups)) for each in report.ties
    )
    notes = (
        "Best first; a bar stands between groups. Two models share a group where the largest known"
        " p, adjusted over the pairs of models on this one, is above 5%.",
    )
    return Table("What cannot be told apart", ("on", "groups of models"), rows, notes)

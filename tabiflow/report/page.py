"""A report as one self-contained HTML page: no script, no font and no picture from elsewhere."""

import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template

from tabiflow.report import plots
from tabiflow.report.comparisons import Comparison
from tabiflow.report.content import Report
from tabiflow.report.plots import Line, Point
from tabiflow.report.tables import DASH, Table, interval, number, signed


def page(report: Report, warnings: Sequence[str], tables: Sequence[Table]) -> str:
    charts = [section for section in _charts(report) if section is not None]
    shown = [(table.title, _table(table)) for table in tables]
    sections = [*charts, *shown]
    template = Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(report.sweep),
        facts=_facts(report),
        warnings="".join(f'<p class="warning">{escape(each)}</p>' for each in warnings),
        contents="".join(
            f'<a href="#s{place}">{escape(title)}</a>' for place, (title, _) in enumerate(sections)
        ),
        sections="".join(
            f'<section id="s{place}"><h2>{escape(title)}</h2>{body}</section>'
            for place, (title, body) in enumerate(sections)
        ),
    )


def _facts(report: Report) -> str:
    facts = {
        "models": str(len(report.models)),
        "data sets": str(len(report.datasets)),
        "openings of test": str(len(report.openings)),
        "trial hours": report.provenance.get("trial_hours", DASH),
        "GPU hours": report.provenance.get("gpu_hours", DASH),
        "code": report.provenance.get("code_commit", DASH)[:12],
        "draws": f"{report.draws:,}",
    }
    return "".join(
        f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items()
    )


def _charts(report: Report) -> Iterable[tuple[str, str] | None]:
    yield _category_chart(report)
    yield _dataset_chart(report)
    yield _difference_chart(report)
    yield _setting_charts(report)
    yield _curve_charts(report)


def _series(report: Report) -> dict[str, int]:
    return {row.name: place for place, row in enumerate(report.models)}


def _legend(report: Report) -> str:
    return plots.legend(row.title for row in report.models)


def _category_chart(report: Report) -> tuple[str, str] | None:
    names = dict.fromkeys(each.category for each in report.categories)
    rows = [
        (
            name.replace("_", " "),
            [
                _point(report, each.model, name, each.test, each.low, each.high)
                for each in report.categories
                if each.category == name
            ],
        )
        for name in names
    ]
    rows.append(
        (
            "average",
            [
                _point(report, each.model, "average", each.test, each.low, each.high)
                for each in report.averages
            ],
        )
    )
    return _scores(report, "Scores by category", rows)


def _dataset_chart(report: Report) -> tuple[str, str] | None:
    rows = [
        (
            row.title,
            [
                _point(report, each.model, row.title, each.test, each.low, each.high)
                for each in report.scores
                if each.dataset == row.name
            ],
        )
        for row in report.datasets
    ]
    return _scores(report, "Scores by data set", rows)


def _scores(
    report: Report, title: str, rows: Sequence[tuple[str, Sequence[Point]]]
) -> tuple[str, str] | None:
    """None before a model is confirmed on anything."""
    if all(math.isnan(point.value) for _, points in rows for point in points):
        return None
    unit = "test score, 95% bootstrap intervals over test items"
    return title, _legend(report) + plots.forest(rows, unit)


def _point(report: Report, model: str, on: str, value: float, low: float, high: float) -> Point:
    tip = f"{model}, {on}: {number(value)} ({interval(low, high)})"
    return Point(_series(report)[model], value, low, high, tip)


def _difference_chart(report: Report) -> tuple[str, str] | None:
    reference = report.models[0]
    found = [each for each in report.comparisons if each.reference == reference.name]
    if not found:
        return None
    titles = {("dataset", row.name): row.title for row in report.datasets}
    places = dict.fromkeys((each.scope, each.name) for each in found)
    rows = [
        (
            titles.get(place, place[1].replace("_", " ")),
            [_difference(report, each) for each in found if (each.scope, each.name) == place],
        )
        for place in places
    ]
    unit = f"test score less that of {reference.title}, 95% paired bootstrap intervals"
    title = f"Difference to {reference.title}"
    return title, _legend(report) + plots.forest(rows, unit, zero=True)


def _difference(report: Report, each: Comparison) -> Point:
    ends = interval(each.low, each.high, "{:+.2f} to {:+.2f}")
    tip = f"{each.model} less {each.reference}, {each.name}: {signed(each.difference)} ({ends})"
    return Point(_series(report)[each.model], each.difference, each.low, each.high, tip)


def _setting_charts(report: Report) -> tuple[str, str] | None:
    names = dict.fromkeys(each.parameter for each in report.settings)
    panels = [
        plots.effects(
            name,
            [
                (
                    each.value,
                    each.effect,
                    each.deviation,
                    f"{name} {each.value}: {signed(each.effect)} ± {number(each.deviation)}, "
                    f"{each.trials} trials, {each.winners} winners",
                )
                for each in report.settings
                if each.parameter == name
            ],
            "effect on validation, ± deviation over cells",
        )
        for name in names
    ]
    return ("Sensitivity to each hyper-parameter", _grid(panels)) if panels else None


def _curve_charts(report: Report) -> tuple[str, str] | None:
    titles = {row.name: row.title for row in report.datasets}
    panels = []
    for name in dict.fromkeys(each.dataset for each in report.curves):
        lines = [
            Line(
                _series(report)[each.model],
                each.points,
                each.kept,
                f"{each.model}: epoch {each.kept} kept",
            )
            for each in report.curves
            if each.dataset == name
        ]
        panels.append(plots.curves(titles[name], lines, "epoch", "validation score"))
    body = _legend(report) + _grid(panels)
    return ("Learning curves of the winners", body) if panels else None


def _grid(panels: Iterable[str]) -> str:
    return f'<div class="panels">{"".join(panels)}</div>'


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in table.header)
    rows = "".join(_row(table, place) for place in range(len(table.rows)))
    notes = "".join(f"<p class='note'>{escape(note)}</p>" for note in table.notes)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
        f"</div>{notes}"
    )


def _row(table: Table, place: int) -> str:
    cells = "".join(
        f"<td{_kind(table, place, column)}>{escape(text)}</td>"
        for column, text in enumerate(table.rows[place])
    )
    quiet = ' class="published"' if place in table.quiet else ""
    return f"<tr{quiet}>{cells}</tr>"


def _kind(table: Table, place: int, column: int) -> str:
    text = table.rows[place][column]
    kinds = ["number"] if text[:1] in "+-–<0123456789" and column else []
    kinds += ["best"] if (place, column) in table.strong else []
    return f' class="{" ".join(kinds)}"' if kinds else ""

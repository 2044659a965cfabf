"""A report as Markdown, CSV and JSON files, and as tables for a terminal."""

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tabiflow.errors import UserError
from tabiflow.report.content import Report

Row = Sequence[str]


def as_json(report: Report) -> dict[str, Any]:
    """The report for other tools; unknown is null."""
    return {
        "sweep": report.sweep,
        "scores": [asdict(each) for each in report.scores],
        "categories": [asdict(each) for each in report.categories],
        "average": dict(report.average),
        "winners": [
            {
                "model": winner.cell.model,
                "dataset": winner.cell.dataset,
                "trial": winner.trial.id,
                "params": winner.trial.settings,
                "validation": winner.score,
                "epoch": winner.epoch,
                "ties": winner.ties,
                "complete": winner.complete,
            }
            for winner in report.winners
        ],
        "openings": [asdict(each) for each in report.openings],
        "unfinished": dict(report.unfinished),
        "provenance": dict(report.provenance),
    }


def dumps(content: Any, indent: int | None = 2) -> str:
    """JSON without NaN, which other tools refuse: unknown becomes null."""
    return json.dumps(_known(content), indent=indent, ensure_ascii=False, allow_nan=False)


def _known(content: Any) -> Any:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {key: _known(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_known(value) for value in content]
    return content


def write(report: Report, folder: Path) -> list[Path]:
    """report.md, report.json and scores.csv; each is whole or absent. Raises UserError."""
    files = {
        "report.md": markdown(report),
        "report.json": dumps(as_json(report)),
        "scores.csv": _csv(report),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_replace(folder / name, text) for name, text in files.items()]
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(folder)) from error


def _replace(file: Path, text: str) -> Path:
    draft = file.with_name(f".{file.name}.part")
    draft.write_text(text, encoding="utf-8")
    return draft.replace(file)


def _csv(report: Report) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(("model", "dataset", "category", "metric", "test", "deviation", "n", "seeds"))
    for each in report.scores:
        figures = ["" if math.isnan(value) else value for value in (each.test, each.deviation)]
        seeds = " ".join(map(str, each.seeds))
        writer.writerow(
            (each.model, each.dataset, each.category, each.metric, *figures, each.n or "", seeds)
        )
    return out.getvalue()


def markdown(report: Report) -> str:
    """The whole report as one page."""
    parts = [f"# {report.sweep}", *_warnings(report)]
    for title, header, rows in sections(report):
        parts += [f"## {title}", _table(header, rows)]
    return "\n\n".join(parts) + "\n"


def _warnings(report: Report) -> Iterable[str]:
    if report.unfinished:
        counts = ", ".join(f"{count} {state}" for state, count in report.unfinished.items())
        yield f"**Not final:** {counts} trials are not done."
    reopened = sum(bool(each.reason) for each in report.openings)
    if reopened:
        yield f"**Reopened:** {reopened} of {len(report.openings)} openings of a test split."


def sections(report: Report) -> list[tuple[str, Row, list[Row]]]:
    """Title, header and rows of each table."""
    models = list(report.average)
    return [
        ("Average of the categories", ("category", *models), _category_rows(report, models)),
        ("Test scores", ("data set", "metric", "n", *models), _score_rows(report, models)),
        (
            "Winners, chosen on validation",
            ("model", "data set", "configuration", "validation", "epoch", "ties"),
            _winner_rows(report),
        ),
        (
            "Openings of the test split",
            ("opened", "by", "model", "data set", "seed", "validation", "test", "reopened because"),
            _opening_rows(report),
        ),
        (
            "Provenance",
            ("what", "value"),
            [(key, value) for key, value in report.provenance.items()],
        ),
    ]


def _category_rows(report: Report, models: Sequence[str]) -> list[Row]:
    cells = {(each.category, each.model): each.test for each in report.categories}
    names = dict.fromkeys(each.category for each in report.categories)
    rows: list[Row] = [
        (name, *(number(cells.get((name, model), math.nan)) for model in models)) for name in names
    ]
    return [*rows, ("average", *(number(report.average[model]) for model in models))]


def _score_rows(report: Report, models: Sequence[str]) -> list[Row]:
    cells = {(each.dataset, each.model): each for each in report.scores}
    heads = {each.dataset: each for each in report.scores}
    sizes = {each.dataset: each.n for each in report.scores if each.n}
    return [
        (
            name,
            head.metric,
            str(sizes.get(name, "–")),
            *(_with_deviation(cells.get((name, model))) for model in models),
        )
        for name, head in heads.items()
    ]


def _with_deviation(score: Any) -> str:
    if score is None or math.isnan(score.test):
        return "–"
    spread = "" if math.isnan(score.deviation) else f" ± {score.deviation:.2f}"
    return f"{score.test:.2f}{spread}"


def _winner_rows(report: Report) -> list[Row]:
    return [
        (
            winner.cell.model,
            winner.cell.dataset,
            ", ".join(f"{key} {value}" for key, value in winner.trial.settings.items()),
            number(winner.score) + ("" if winner.complete else " (incomplete)"),
            str(winner.epoch),
            str(winner.ties),
        )
        for winner in report.winners
    ]


def _opening_rows(report: Report) -> list[Row]:
    return [
        (
            each.opened_at,
            each.opened_by,
            each.model,
            each.dataset,
            str(each.seed),
            number(each.validation),
            number(each.test),
            each.reason,
        )
        for each in report.openings
    ]


def number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _table(header: Row, rows: Sequence[Row]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_escape(cell) for cell in line) + " |" for line in lines)


def _escape(cell: str) -> str:
    """A pipe or a line break would end the cell."""
    return cell.replace("|", "\\|").replace("\n", " ")

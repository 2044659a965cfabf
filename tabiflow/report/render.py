"""A report as files: Markdown, LaTeX, CSV, JSON and a page for a browser; all of one content."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tabiflow.errors import UserError
from tabiflow.published import tabibench
from tabiflow.report import appendix, tables, typeset
from tabiflow.report.content import Report
from tabiflow.report.page import page
from tabiflow.report.paper import paper_tables
from tabiflow.report.tables import Table, number

__all__ = ["all_tables", "as_json", "brief_tables", "dumps", "markdown", "number", "write"]


def as_json(report: Report) -> dict[str, Any]:
    """The report for other tools; unknown is null."""
    content = {
        name: [asdict(each) for each in getattr(report, name)]
        for name in (
            "models",
            "datasets",
            "scores",
            "categories",
            "averages",
            "comparisons",
            "ties",
            "changes",
            "cuts",
            "openings",
            "exclusions",
            "settings",
            "edges",
            "curves",
            "revisions",
        )
    }
    # No test item was seen: how many there are is not known.
    for each in (*content["scores"], *content["openings"]):
        each["n"] = each["n"] or None
    return {
        "sweep": report.sweep,
        **content,
        "average": dict(report.average),
        "winners": [_winner(each) for each in report.winners],
        "published": _published(report),
        "draws": report.draws,
        "warnings": list(appendix.warnings(report)),
        "unfinished": dict(report.unfinished),
        "provenance": dict(report.provenance),
    }


def _winner(winner: Any) -> dict[str, Any]:
    return {
        "model": winner.cell.model,
        "dataset": winner.cell.dataset,
        "trial": winner.trial.id,
        "params": winner.trial.settings,
        "validation": winner.score,
        "epoch": winner.epoch,
        "ties": winner.ties,
        "complete": winner.complete,
    }


def _published(report: Report) -> list[dict[str, Any]]:
    """What others have measured on the sweep's data sets, and how it differs."""
    facts = tabibench()
    return [
        {
            "model": model,
            "dataset": row.name,
            "test": facts.score(model, row.name),
            "differences": [each.note for each in facts.differences_of(row.name, model)],
        }
        for row in report.datasets
        for model in facts.models
        if facts.score(model, row.name) is not None
    ]


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


def brief_tables(report: Report) -> list[Table]:
    """What a terminal shows; the files have the rest."""
    compared = tables.comparison_tables(report)
    found = [
        *paper_tables(report),
        tables.score_table(report),
        *compared[:1],
        appendix.winner_table(report),
        appendix.opening_table(report),
        appendix.origin_tables(report)[0],
    ]
    return [each for each in found if each.rows]


def all_tables(report: Report) -> list[Table]:
    found = [
        *paper_tables(report),
        tables.score_table(report),
        tables.average_table(report),
        tables.figure_table(report),
        *tables.comparison_tables(report),
        tables.tie_table(report),
        appendix.winner_table(report),
        appendix.setting_table(report),
        appendix.edge_table(report),
        appendix.opening_table(report),
        appendix.exclusion_table(report),
        *appendix.origin_tables(report),
    ]
    return [each for each in found if each.rows]


def markdown(report: Report) -> str:
    return typeset.markdown(report.sweep, appendix.warnings(report), all_tables(report))


def write(report: Report, folder: Path) -> list[Path]:
    """Each file is whole or absent. Raises UserError."""
    content, shown = as_json(report), all_tables(report)
    warned = list(appendix.warnings(report))
    files = {
        "report.html": page(report, warned, shown),
        "report.md": typeset.markdown(report.sweep, warned, shown),
        "report.tex": typeset.latex(report.sweep, warned, shown),
        "report.json": dumps(content),
        **{f"{name}.csv": _csv(content[name]) for name in CSV if content[name]},
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_replace(folder / name, text) for name, text in files.items()]
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(folder)) from error


CSV = ("scores", "categories", "averages", "comparisons", "winners", "settings", "published")


def _replace(file: Path, text: str) -> Path:
    draft = file.with_name(f".{file.name}.part")
    draft.write_text(text, encoding="utf-8")
    return draft.replace(file)


def _csv(records: Sequence[Mapping[str, Any]]) -> str:
    rows = [_flat(each) for each in records]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(name for row in rows for name in row)))
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """One value a column: lists joined by blanks, unknown left empty."""
    flat: dict[str, Any] = {}
    for name, value in _known(record).items():
        if isinstance(value, Mapping):
            flat |= {f"{name}_{key}": each for key, each in _flat(value).items()}
        elif isinstance(value, list):
            flat[name] = " ".join(map(str, value))
        else:
            flat[name] = value
    return flat

"""An audit as sections of tables, as plain values, and as one HTML page that needs nothing else."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import Any, NamedTuple

from tabiflow.audit import Audit, AuditedCell, AuditedDataset
from tabiflow.audit.lengths import Lengths
from tabiflow.spec import Dataset

SHOWN_CLASSES = 8
UNKNOWN = "–"


class Section(NamedTuple):
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def as_json(audit: Audit) -> dict[str, Any]:
    """For other tools. Unknown is NaN."""
    return {
        "sweep": audit.sweep,
        "counts": audit.counts,
        "findings": [asdict(each) for each in audit.findings],
        "terms": [_row(each) for each in audit.rows],
        "datasets": [_dataset(each) for each in audit.datasets],
        "lengths": [each for cell in audit.cells for each in _cell(cell)],
        "tokens": [
            {"model": cell.model, "dataset": cell.dataset.name}
            | asdict(cell.measured.tokens)
            | {"fertility": cell.measured.tokens.fertility}
            for cell in audit.cells
        ],
        "models": [asdict(each) for each in audit.models],
    }


def _row(row: Dataset) -> dict[str, str]:
    fields = ("task", "deviation", "licence", "redistribution", "processing")
    return {
        "dataset": row.name,
        "category": row.group,
        **{field: getattr(row, field) for field in fields},
    }


def _dataset(audited: AuditedDataset) -> dict[str, Any]:
    return {
        "dataset": audited.dataset.name,
        "split_rule": audited.split_rule,
        "commit": audited.commit,
        **asdict(audited.contents),
    }


def _cell(cell: AuditedCell) -> Iterable[dict[str, Any]]:
    for each in cell.measured.lengths:
        splits = {
            name: {**asdict(split), "share": split.share} for name, split in each.splits.items()
        }
        place = {"model": cell.model, "dataset": cell.dataset.name, "limit": cell.measured.limit}
        yield {**place, **asdict(each), "splits": splits}


def summary(audit: Audit) -> str:
    counts = audit.counts
    return (
        f"{counts['serious']} serious findings, {counts['warning']} warnings, "
        f"{counts['note']} notes; {len(audit.datasets)} data sets and "
        f"{len({cell.model for cell in audit.cells})} models looked at"
    )


def sections(audit: Audit) -> list[Section]:
    found = [
        _findings(audit),
        _contents(audit),
        _classes(audit),
        _lengths(audit),
        _fertility(audit),
        _terms(audit),
    ]
    return [each for each in found if each.rows]


def _findings(audit: Audit) -> Section:
    rows = [
        (each.severity, each.code, each.dataset, each.model, each.message, each.advice)
        for each in audit.findings
    ]
    return Section("Findings", ("", "code", "data set", "model", "what", "advice"), rows)


def _contents(audit: Audit) -> Section:
    header = ("data set", "split", "rows", "left out", "empty", "repeated", "in train too")
    rows = [
        (
            *(audited.dataset.name, name, str(split.rows)),
            *(str(sum(split.excluded.values())), str(split.empty)),
            str(split.repeated + split.only_nearly_repeated),
            _in_train(audited, name),
        )
        for audited in audit.datasets
        for name, split in audited.contents.splits.items()
    ]
    return Section("Rows", header, rows)


def _in_train(audited: AuditedDataset, split: str) -> str:
    """Whole rows, then parts of them such as the contexts of questions."""
    found = [
        f"{each.nearly}" if each.what == "row" else f"{each.nearly} by {each.what}"
        for each in audited.contents.shared
        if (each.earlier, each.later) == ("train", split)
    ]
    return ", ".join(found) or ("" if split == "train" else "0")


def _classes(audit: Audit) -> Section:
    rows = [
        (audited.dataset.name, name, str(len(split.classes)), _counted(audited, split.classes))
        for audited in audit.datasets
        for name, split in audited.contents.splits.items()
        if split.classes
    ]
    return Section("Classes", ("data set", "split", "n", "rows (tagging: words) of each"), rows)


def _counted(audited: AuditedDataset, classes: Mapping[str, int]) -> str:
    names = _label_names(audited.dataset)
    common = sorted(classes.items(), key=lambda each: -each[1])
    shown = ", ".join(f"{names.get(label, label)} {n}" for label, n in common[:SHOWN_CLASSES])
    more = len(common) - SHOWN_CLASSES
    return f"{shown}, and {more} more" if more > 0 else shown


def _label_names(dataset: Dataset) -> dict[str, str]:
    return dict(zip(map(str, dataset.labels), dataset.label_names, strict=False))


def _lengths(audit: Audit) -> Section:
    header = (
        *("data set", "model", "sequence", "max_length", "p95", "longest"),
        *("% cut: train", "validation", "test", "test ceiling"),
    )
    rows = [
        (
            *(cell.dataset.name, cell.model, each.sequence, str(each.max_length)),
            *(_p95(each), str(max(split.longest for split in each.splits.values()))),
            *(_share(each, split) for split in ("train", "validation", "test")),
            _number(each.ceilings["test"].score) if "test" in each.ceilings else UNKNOWN,
        )
        for cell in audit.cells
        for each in cell.measured.lengths
    ]
    return Section("Lengths in tokens", header, rows)


def _p95(found: Lengths) -> str:
    """Of the training split, where the length comes from."""
    return f"{found.splits['train'].p95:.0f}"


def _share(found: Lengths, split: str) -> str:
    return _number(found.splits[split].share) if split in found.splits else UNKNOWN


def _fertility(audit: Audit) -> Section:
    rows = [
        (each.model, *map(_number, (each.fertility, each.relative, each.unknown_rate)))
        for each in audit.models
    ]
    header = ("model", "tokens a word", "relative to the first", "% unknown tokens")
    return Section("Tokenizers", header, rows)


def _terms(audit: Audit) -> Section:
    rules = {each.dataset.name: each.split_rule for each in audit.datasets}
    rows = [
        (
            row.name,
            *(rules.get(row.name) or UNKNOWN, row.deviation or UNKNOWN),
            *(row.licence or UNKNOWN, row.redistribution or UNKNOWN, row.processing or UNKNOWN),
        )
        for row in audit.rows
    ]
    header = (
        *("data set", "splits", "departs from the rule"),
        *("licence", "redistribution", "processing"),
    )
    return Section("Splits and terms", header, rows)


def _number(value: float) -> str:
    return UNKNOWN if math.isnan(value) else f"{value:.2f}"


def html(audit: Audit) -> str:
    """No script, no font and no picture from anywhere."""
    tables = "\n".join(_table(each) for each in sections(audit))
    title = escape(f"Audit of {audit.sweep}")
    return _PAGE.format(title=title, summary=escape(summary(audit)), style=_STYLE, tables=tables)


def _table(section: Section) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in section.header)
    body = "\n".join(
        f'<tr class="{escape(row[0])}">{"".join(f"<td>{escape(each)}</td>" for each in row)}</tr>'
        for row in section.rows
    )
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    return f'<h2>{escape(section.title)}</h2>\n<div class="wide">{table}</div>'


_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 78rem; padding: 0 1rem;
  color: #1c1c1c; background: #fff; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; }
th, td { text-align: left; vertical-align: top; padding: .3rem .7rem; }
th { border-bottom: 2px solid #999; }
td { border-bottom: 1px solid #ddd; }
tr.serious td:first-child { background: #b3261e; color: #fff; }
tr.warning td:first-child { background: #f2c14e; }
tr.note td:first-child { background: #dfe6ee; }
"""
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<p>{summary}</p>
{tables}
</body>
</html>
"""

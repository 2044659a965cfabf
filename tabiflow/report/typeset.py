"""Tables as Markdown and as LaTeX."""

import re
from collections.abc import Iterable, Sequence

from tabiflow.report.tables import Table

LONG = 35
"""Rows that no page holds."""


def markdown(title: str, warnings: Iterable[str], tables: Sequence[Table]) -> str:
    """The whole report as one page."""
    parts = [f"# {_cell(title)}", *(f"**{_strong(each)}" for each in warnings)]
    for table in tables:
        parts += [f"## {_cell(table.title)}", _markdown(table), *map(_cell, table.notes)]
    return "\n\n".join(parts) + "\n"


def _strong(warning: str) -> str:
    """The first words, up to the colon, stand out."""
    head, colon, rest = _cell(warning).partition(":")
    return f"{head}{colon}**{rest}"


def _markdown(table: Table) -> str:
    rows = [
        [
            f"**{_cell(text)}**" if (place, column) in table.strong else _cell(text)
            for column, text in enumerate(row)
        ]
        for place, row in enumerate(table.rows)
    ]
    lines = [list(map(_cell, table.header)), ["---"] * len(table.header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


_MARKUP = re.compile(r"[\\`*|\[~$]|(?<!\w)_|_(?!\w)|<(?=[A-Za-z/!?])|&(?=#?\w+;)")


def _cell(text: str) -> str:
    """Text that is shown as it stands; a pipe or a line break would end the cell."""
    return _MARKUP.sub(lambda found: "\\" + found[0], " ".join(text.split()))


PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[a4paper,landscape,margin=15mm]{geometry}
\usepackage{iftex}
\iftutex\usepackage{fontspec}\else\usepackage[T1]{fontenc}\usepackage{textcomp}\fi
\usepackage{booktabs,longtable}
\setlength{\tabcolsep}{4pt}
\setlength{\parindent}{0pt}
\begin{document}
"""


def latex(title: str, warnings: Iterable[str], tables: Sequence[Table]) -> str:
    """A document of booktabs tables, one by one fit to be copied out of it."""
    parts = [rf"\section*{{{escaped(title)}}}", *(escaped(each) + r"\par" for each in warnings)]
    parts += [_latex(table) for table in tables if table.rows]
    return PREAMBLE + "\n\n".join(parts) + "\n\n\\end{document}\n"


def _latex(table: Table) -> str:
    columns = "l" * len(table.header)
    head = " & ".join(rf"\textbf{{{escaped(text)}}}" for text in table.header) + r" \\"
    lines = [_line(table, place) for place in range(len(table.rows))]
    caption = rf"\caption{{{escaped(' '.join((table.title + '.', *table.notes)))}}}"
    top, body, bottom = [r"\toprule", head, r"\midrule"], lines, r"\bottomrule"
    if len(lines) > LONG:
        open_, close = rf"\begin{{longtable}}{{{columns}}}", r"\end{longtable}"
        block = [r"{\scriptsize", open_, caption + r" \\", *top, r"\endhead", *body, bottom, close]
        return "\n".join([*block, "}"])
    open_, close = rf"\begin{{tabular}}{{{columns}}}", r"\end{tabular}"
    block = [r"\begin{table}[htbp]", r"\centering\scriptsize", caption, open_, *top, *body, bottom]
    return "\n".join([*block, close, r"\end{table}"])


def _line(table: Table, place: int) -> str:
    cells = [
        rf"\textbf{{{escaped(text)}}}" if (place, column) in table.strong else escaped(text)
        for column, text in enumerate(table.rows[place])
    ]
    if place in table.quiet:
        cells = [rf"\textit{{{cell}}}" for cell in cells]
    return " & ".join(cells) + r" \\"


SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "Δ": r"$\Delta$",
    "×": r"$\times$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
}
_SPECIAL = re.compile("|".join(map(re.escape, SPECIAL)))


def escaped(text: str) -> str:
    """Text that TeX sets as it stands."""
    return _SPECIAL.sub(lambda found: SPECIAL[found[0]], " ".join(text.split()))

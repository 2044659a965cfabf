"""The verb about data: what a sweep's data sets hold, and how far people agree about items."""

import os
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from tabiflow import ratings
from tabiflow.cli.common import FAILED, say, table
from tabiflow.errors import UserError
from tabiflow.registry import resolve
from tabiflow.spec import Sweep
from tabiflow.spec.evaluation import is_evaluation


@click.command(name="audit")
@click.argument("sweep", type=click.Path(path_type=Path), required=False)
@click.option("--strict", is_flag=True, help="Exit with 3 when a finding is serious.")
@click.option("--html", "page", type=click.Path(path_type=Path), help="Write one page here, too.")
@click.option(
    "--ratings", "rated", type=click.Path(path_type=Path), help="People's ratings: CSV or JSONL."
)
@click.option(
    "--cetvel",
    type=click.Path(path_type=Path),
    help="A checkout of the CETVEL repository: where it differs from the paper and from our rows.",
)
@click.option(
    "--choices",
    "asked",
    type=click.Path(path_type=Path),
    help="Multiple-choice questions with choices and answers: CSV, JSONL or Parquet.",
)
@click.option(
    "--validation",
    type=click.Path(path_type=Path),
    help="With --choices: where the majority baseline is chosen; its questions must not recur.",
)
@click.option("--exclude-invalid", is_flag=True, help="With --choices: go on without bad rows.")
@click.option("--levels", help="Of the ratings, from the mildest to the severest: a,b,c.")
@click.option("--json", "as_data", is_flag=True, help="One JSON object on stdout.")
def audit_verb(
    sweep: Path | None,
    strict: bool,
    page: Path | None,
    rated: Path | None,
    cetvel: Path | None,
    asked: Path | None,
    validation: Path | None,
    exclude_invalid: bool,
    levels: str | None,
    as_data: bool,
) -> int:
    """What is in the data, before anything runs; needs tokenizers only. Starts nothing."""
    if not any((sweep, rated, cetvel, asked)):
        raise UserError("nothing to audit", hint="name a sweep, or a file with --ratings")
    if asked is None and (validation is not None or exclude_invalid):
        raise UserError("--validation and --exclude-invalid go with --choices")
    if page is not None and sweep is None:
        raise UserError("--html shows a sweep's data", hint="name the sweep")
    content: dict[str, Any] = {}
    tables: list[Table | str] = []
    serious = 0
    if rated is not None:
        _ratings(rated, levels, content, tables)
    if cetvel is not None or asked is not None:
        # Templates and metrics are of no use to the other audits.
        from tabiflow.cli import benchmark

        if cetvel is not None:
            benchmark.checkout_sections(cetvel, content, tables)
        if asked is not None:
            benchmark.choices_sections(asked, validation, exclude_invalid, content, tables)
    if sweep is not None:
        serious = _sweep(sweep, page, content, tables)
    say(as_data, content, *tables)
    return FAILED if strict and serious else 0


def _sweep(file: Path, page: Path | None, content: dict[str, Any], tables: list[Any]) -> int:
    """The number of serious findings."""
    if is_evaluation(file):
        if page is not None:
            raise UserError("--html shows the data of a sweep that trains", where=str(file))
        from tabiflow.cli import benchmark

        benchmark.evaluation_sections(file, content, tables)
        return 0
    sweep = Sweep.read(file)
    grid = resolve(sweep)
    # Tokenizers come with torch, which the ratings need not wait for.
    from tabiflow.audit import audit
    from tabiflow.audit.page import as_json, html, sections, summary

    found = audit(sweep, grid)
    content |= as_json(found)
    for each in sections(found):
        tables += [table(*each), ""]
    tables.append(summary(found))
    if page is not None:
        _write(page, html(found))
        tables.append(f"wrote {page}")
    return found.counts["serious"]


def _write(file: Path, text: str) -> None:
    """Whole or not at all."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(file)) from error


def _ratings(file: Path, levels: str | None, content: dict[str, Any], tables: list[Any]) -> None:
    order = [each.strip() for each in levels.split(",")] if levels else []
    found = ratings.read(file, order)
    groups = ratings.agreement(found)
    content["ratings"] = ratings.as_json(found, groups)
    for title, header, rows in ratings.sections(groups):
        tables += [table(title, header, rows), ""]

"""Any multiple-choice set in a file, asked by the protocol of the Turkic evaluation chapter.

A row has `question`, `choices`, `answer` and perhaps `subject`. What cannot be scored is named by
its place in the file (counted from 0) and a hash of its content; scoring stops for it unless it is
excluded on purpose, and then the denominator says so. Exact duplicates of a question with its
ordered choices, within the file or in its validation file, cannot be scored either. The prompt is
known by its hash, and nothing is cut.
"""

import ast
import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabiflow import files
from tabiflow.errors import DataError, UserError
from tabiflow.generative.prompts import LETTERS, Excluded, Item, Items, digest, items
from tabiflow.generative.sandbox import place
from tabiflow.generative.templates import Template
from tabiflow.spec import BenchmarkTask

NAMED = 20
"""Most rows that one message names."""
_FIELDS = ("question", "choices", "answer")


def _task(answered: str, rule: str | None) -> BenchmarkTask:
    return BenchmarkTask.model_validate(
        {
            "name": f"choices-{answered}s",
            "column": "",
            "category": "MCQA",
            "fields": _FIELDS,
            "answered": answered,
            "options": "choices",
            "gold": "answer",
            "metric": "accuracy",
            "paper_metric": "",
            "rule": rule,
        }
    )


LETTER_TASK = _task("letter", None)
OPTION_TASK = _task("option", "sum")
_ASKED = "{{ question.strip() }}\n{{ lettered }}\n"
LETTER_TEMPLATE = Template(_ASKED + "Doğru seçeneğin harfi:")
OPTION_TEMPLATE = Template(_ASKED + "Doğru yanıt:")


@dataclass(frozen=True)
class QuestionFile:
    """A file looked at: what of it can be asked, and what a reader of its scores should know."""

    file: Path
    rows: list[dict[str, Any]]
    """As they are asked, by their place."""
    found: Items
    choices: Mapping[int, int]
    """Number of options -> rows."""
    reordered: tuple[tuple[int, int], ...]
    """Rows with the same question and choices in another order. Paraphrases are not looked for."""
    repeated: tuple[int, ...]
    """Rows of which two options are the same text."""


def read(
    file: Path,
    *,
    task: BenchmarkTask = LETTER_TASK,
    template: Template = LETTER_TEMPLATE,
    seen: "QuestionFile | None" = None,
) -> QuestionFile:
    """`seen` is the file whose rows must not come again: validation's, for test."""
    rows = _answered(list(_rows(file)), file)
    made = items(task, template, rows)
    empty = {n for n, row in enumerate(rows) if not row["question"].strip()}
    blank = [
        Excluded(each.index, each.content, "its question is empty")
        for each in made.scored
        if each.index in empty
    ]
    kept = [each for each in made.scored if each.index not in empty]
    single, double = _without_duplicates(kept, seen)
    excluded = sorted((*made.excluded, *blank, *double), key=lambda each: each.index)
    return QuestionFile(
        file=file,
        rows=rows,
        found=Items(tuple(single), tuple(excluded)),
        choices=Counter(len(each.options) for each in single),
        reordered=_reordered(single),
        repeated=tuple(e.index for e in single if len(set(e.options)) < len(e.options)),
    )


def settled(read: QuestionFile, *, exclude_invalid: bool) -> Items:
    """What is scored. Raises UserError that names the rows that cannot be."""
    if not exclude_invalid:
        complete(read.found, str(read.file))
    if not read.found.scored:
        raise UserError("no row that can be scored", where=str(read.file))
    return read.found


def complete(found: Items, where: str) -> None:
    """Raises UserError that names the rows that cannot be scored, if there are any."""
    if not found.excluded:
        return
    named = "; ".join(
        f"row {each.index} ({each.content}): {each.reason}" for each in found.excluded[:NAMED]
    )
    more = len(found.excluded) - NAMED
    raise UserError(
        f"{len(found.excluded)} of {found.rows} rows cannot be scored: {named}"
        + (f"; and {more} more" if more > 0 else ""),
        where=where,
        hint="mend them, or score the others: --exclude-invalid, `exclude_invalid: true`",
    )


def _identity(item: Item) -> str:
    """Of the question with its ordered choices: the prompt shows exactly these."""
    return digest([item.prompt, *item.options])


def _without_duplicates(
    kept: Sequence[Item], seen: QuestionFile | None
) -> tuple[list[Item], list[Excluded]]:
    known = (
        {_identity(e): f"row {e.index} of {seen.file.name}" for e in seen.found.scored}
        if (seen)
        else {}
    )
    single: list[Item] = []
    double: list[Excluded] = []
    for item in kept:
        first = known.setdefault(_identity(item), f"row {item.index}")
        if first == f"row {item.index}":
            single.append(item)
        else:
            double.append(Excluded(item.index, item.content, f"it is the same as {first}"))
    return single, double


def _reordered(single: Sequence[Item]) -> tuple[tuple[int, int], ...]:
    first: dict[str, int] = {}
    found = []
    for item in single:
        question = item.prompt.split("\nA) ")[0]
        index = first.setdefault(digest([question, *sorted(item.options)]), item.index)
        if index != item.index:
            found.append((index, item.index))
    return tuple(found)


# Which option an answer is


def _answered(rows: list[dict[str, Any]], file: Path) -> list[dict[str, Any]]:
    """Every answer as a place counted from 0; as it is where it names no option."""
    read = [(row, *_options(row["choices"])) for row in rows]
    first = _first_number(read, file)
    return [
        {
            "question": str(row["question"] or ""),
            "choices": options,
            "answer": _place(row["answer"], options or (), labels, first),
            "_subject": str(row.get("subject") or ""),
        }
        for row, options, labels in read
    ]


Read = tuple[dict[str, Any], list[str] | None, tuple[str, ...]]


def _first_number(read: Sequence[Read], file: Path) -> int | None:
    """What number the file gives the first option; None where it has no numbers.

    A 0 tells, and so does the number of the last option; otherwise no one can know.
    """
    numbers = [
        (int(row["answer"]), len(options))
        for row, options, labels in read
        if options and _is_number(row["answer"], options, labels)
    ]
    if not numbers:
        return None
    zero, last = any(n == 0 for n, _ in numbers), any(n == count for n, count in numbers)
    if zero and last:
        raise UserError(
            "some answers count from 0 and others from 1", where=str(file), hint="write letters"
        )
    if not zero and not last:
        raise UserError(
            "do its answers count from 0 or from 1?", where=str(file), hint="write letters"
        )
    return 0 if zero else 1


def _is_number(answer: Any, options: Sequence[str], labels: Sequence[str]) -> bool:
    if isinstance(answer, bool) or str(answer) in labels:
        return False
    if isinstance(answer, str) and answer in options:
        return False
    return isinstance(place(answer), int) and str(answer).strip().isdecimal()


def _place(answer: Any, options: Sequence[str], labels: Sequence[str], first: int | None) -> Any:
    if _is_number(answer, options, labels):
        return int(answer) - (first or 0)
    word = str(answer).strip()
    known = list(labels) or list(LETTERS[: len(options)])
    named = known.index(word.upper()) if word.upper() in known else None
    as_text = options.index(word) if word in options else None
    if named is not None and as_text not in (None, named):
        return f"{word}, which is a letter and another option's text"
    return answer if named is None and as_text is None else as_text if named is None else named


def _options(value: Any) -> tuple[list[str] | None, tuple[str, ...]]:
    """The options and their labels, if the row gives them."""
    if isinstance(value, str):
        value = _listed(value)
    if isinstance(value, Mapping) and {"text", "label"} <= value.keys():
        return _texts(value["text"]), tuple(str(each).upper() for each in value["label"] or ())
    if isinstance(value, Mapping):
        given = {str(key).upper(): text for key, text in value.items() if text is not None}
        return _texts(list(given.values())), tuple(given)
    return (_texts(value), ()) if isinstance(value, list | tuple) else (None, ())


def _texts(values: Any) -> list[str]:
    return ["" if each is None else str(each).strip() for each in values or ()]


def _listed(text: str) -> Any:
    """A list as JSON or Python writes it; itself where it is none."""
    if not text.strip():
        return []
    for reader in (json.loads, ast.literal_eval):
        try:
            return reader(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return text


# Rows of a file


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    if file.suffix not in _READERS:
        raise UserError("questions are .csv, .jsonl or .parquet", where=str(file))
    try:
        yield from _READERS[file.suffix](file)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", where=str(file)) from error


def _parquet(file: Path) -> Iterator[dict[str, Any]]:
    yield from files.read(file, _FIELDS, ["subject"]).to_pylist()


def _jsonl(file: Path) -> Iterator[dict[str, Any]]:
    """Line by line: options are numbers in one row and words in the next."""
    for record in files.records(file):
        files.require(_FIELDS, list(record), str(file))
        yield record


_OPTION_COLUMN = re.compile(r"(?:(?:choice|option)[_ ]?)?([A-Za-z]|\d)", re.IGNORECASE)


def _csv(file: Path) -> Iterator[dict[str, Any]]:
    """Choices as a list in one column, or a column each: `A`, `B`, ... or `choice1`, ..."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            present = list(reader.fieldnames or ())
            columns = [name for name in present if _OPTION_COLUMN.fullmatch(name)]
            columns = [] if "choices" in present else columns
            required = ("question", "answer", *(() if columns else ("choices",)))
            files.require(required, present, str(file))
            for row in reader:
                if None in row or None in row.values():
                    raise DataError("its columns are not the header's", where=_line(file, reader))
                yield row | {"choices": _from_columns(row, columns) if columns else row["choices"]}
    except UnicodeDecodeError as error:
        raise DataError("not UTF-8 text", where=str(file)) from error
    except csv.Error as error:
        raise DataError(f"not CSV: {error}", where=_line(file, reader)) from error


def _line(file: Path, reader: "csv.DictReader[str]") -> str:
    return f"{file}:{reader.line_num}"


def _from_columns(row: Mapping[str, str], columns: Sequence[str]) -> list[str]:
    """Rows with fewer options leave the last columns empty."""
    texts = [row[name].strip() for name in sorted(columns, key=str.lower)]
    while texts and not texts[-1]:
        texts.pop()
    return texts


_READERS = {".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}

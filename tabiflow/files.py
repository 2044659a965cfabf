"""Local Parquet and JSON Lines files -> Arrow tables, every fault with its place in the file.

Knows formats and columns; not what the columns mean.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tabiflow.errors import DataError, near

_JSON_TYPES: dict[type | None, str] = {
    str: "text",
    int: "a whole number",
    float: "a fraction",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def read(file: Path, columns: Sequence[str], optional: Sequence[str] = ()) -> pa.Table:
    """The named columns, and those of the optional ones that are there."""
    try:
        if file.suffix == ".parquet":
            return _read_parquet(file, columns, optional)
        return _read_jsonl(file, columns, optional)
    except OSError as error:
        raise _unreadable(file, error) from error


def count(file: Path) -> int:
    """Rows, without looking at what they hold."""
    try:
        if file.suffix == ".parquet":
            with _parquet(file) as opened:
                return int(opened.metadata.num_rows)
        with file.open("rb") as lines:
            return sum(bool(line.strip()) for line in lines)
    except OSError as error:
        raise _unreadable(file, error) from error


def require(columns: Sequence[str], present: Sequence[str], where: str) -> None:
    """Raises DataError for the first column that is missing."""
    for column in columns:
        if column not in present:
            raise DataError(
                f"no column `{column}`; it has {', '.join(present)}",
                where=where,
                hint=near(column, present),
            )


def _unreadable(file: Path, error: OSError) -> DataError:
    return DataError(f"cannot be read: {error.strerror or _line(error)}", where=str(file))


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _parquet(file: Path) -> parquet.ParquetFile:
    try:
        return parquet.ParquetFile(file)
    except pa.ArrowException as error:
        raise DataError(f"not a Parquet file: {_line(error)}", where=str(file)) from error


def _read_parquet(file: Path, columns: Sequence[str], optional: Sequence[str]) -> pa.Table:
    with _parquet(file) as opened:
        present = opened.schema_arrow.names
        require(columns, present, str(file))
        wanted = [*columns, *(column for column in optional if column in present)]
        try:
            table = opened.read(columns=wanted)
            # Arrow takes bytes on trust; text that is not UTF-8 would only fail much later.
            table.validate(full=True)
        except pa.ArrowException as error:
            raise DataError(f"damaged: {_line(error)}", where=str(file)) from error
    return table


def _read_jsonl(file: Path, columns: Sequence[str], optional: Sequence[str]) -> pa.Table:
    # Not Arrow's reader: it takes text that looks like a date for one.
    wanted = (*columns, *optional)
    values: dict[str, list[Any]] = {column: [] for column in wanted}
    present: dict[str, None] = {}
    rows = 0
    for record in records(file):
        rows += 1
        present |= dict.fromkeys(record)
        for column in wanted:
            values[column].append(record.get(column))
    if rows:
        require(columns, list(present), str(file))
    kept = [column for column in wanted if column in present or column in columns]
    return pa.table({column: _array(file, column, values[column]) for column in kept})


def records(file: Path) -> Iterator[dict[str, Any]]:
    """The lines of a JSON Lines file, whatever types they mix. Raises OSError as it comes."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            except UnicodeDecodeError as error:
                raise DataError("not UTF-8 text", where=f"{file}:{number}") from error
            except ValueError as error:
                raise DataError(f"not JSON: {_line(error)}", where=f"{file}:{number}") from error
            if not isinstance(record, dict):
                raise DataError("not a JSON object", where=f"{file}:{number}")
            yield record


def _array(file: Path, column: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        reason = _mixed(column, values) or f"column `{column}`: {_line(error)}"
        raise DataError(reason, where=str(file)) from error


def _mixed(column: str, values: list[Any]) -> str | None:
    """Where a column first holds another type than before, in JSON's words."""
    first = next((type(value) for value in values if value is not None), None)
    for row, value in enumerate(values, 1):
        if value is not None and type(value) is not first:
            now, before = (_JSON_TYPES.get(each, "a value") for each in (type(value), first))
            return f"row {row}: `{column}` is {now}, but {before} before"
    return None

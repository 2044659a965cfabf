"""Writes the example's data sets: small, made from templates, the same bytes every time.

They show that a whole sweep works, within seconds and without a download. They are no measure of
anything else: a model that does well here has learnt the templates. `python -m
tabiflow.example.generate` rewrites the files under `data/`.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

from tabiflow.example import data_folder
from tabiflow.example.templates import MAKERS, Row
from tabiflow.spec import TaskKind

SIZES: Mapping[str, int] = {"train": 288, "validation": 80, "test": 120}
SEED = 25
INPUTS = ("text", "premise", "tokens", "sentence1", "sentence2", "context", "anchor")
"""What makes two rows the same, whatever their answers."""


def splits(kind: TaskKind) -> dict[str, list[Row]]:
    """A kind's rows by split, none of whose inputs stands in two."""
    groups = _groups(kind)
    made: dict[str, list[Row]] = {}
    for split, size in SIZES.items():
        rows: list[Row] = []
        while len(rows) < size:
            rows += next(groups)
        made[split] = rows[:size]
    return made


def files(kind: TaskKind) -> dict[str, str]:
    """File name -> content."""
    return {
        f"{split}.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        for split, rows in splits(kind).items()
    }


def write(folder: Path, kind: TaskKind) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files(kind).items():
        (folder / name).write_text(content, encoding="utf-8")


def _groups(kind: TaskKind) -> Iterator[list[Row]]:
    pick = Random(f"{kind} {SEED}")
    seen: set[str] = set()
    while True:
        group = MAKERS[kind](pick)
        key = str([group[0][column] for column in INPUTS if column in group[0]])
        if key not in seen:
            seen.add(key)
            yield group


if __name__ == "__main__":
    for kind in MAKERS:
        write(data_folder(kind), kind)

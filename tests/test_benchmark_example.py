"""The embedded example of the generative benchmark: rows that can be asked, of every category."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tabiflow.errors import DataError
from tabiflow.example import benchmark_folder
from tabiflow.generative.metrics import SCORERS
from tabiflow.generative.origin import opened
from tabiflow.generative.prompts import items, rotations
from tabiflow.generative.templates import TEMPLATES
from tabiflow.registry.cetvel import CATEGORIES, task

NAMES = sorted(folder.name for folder in benchmark_folder().iterdir() if folder.is_dir())


def test_every_category_has_a_task() -> None:
    assert {task(name).category for name in NAMES} == set(CATEGORIES)


@pytest.mark.parametrize("name", NAMES)
def test_its_rows_can_be_asked(name: str) -> None:
    data = opened(task(name), "example")
    for rows in (data.test, data.validation):
        found = items(task(name), TEMPLATES[name], rows)
        assert all("-1" in each.reason for each in found.excluded)
        assert all(item.prompt and "{" not in item.prompt for item in found.scored)
        assert len({item.hash for item in found.scored}) == len(found.scored)


@pytest.mark.parametrize(
    "name", [name for name in NAMES if task(name).answered in ("letter", "written_letter")]
)
def test_its_options_can_be_shown_in_every_order(name: str) -> None:
    for index, row in enumerate(opened(task(name), "example").test):
        turned = rotations(task(name), TEMPLATES[name], index, row)
        assert len({item.options[item.gold or 0] for item in turned}) == 1


@pytest.mark.parametrize("name", [name for name in NAMES if task(name).answered == "text"])
def test_its_references_score_full_marks(name: str) -> None:
    found = items(task(name), TEMPLATES[name], opened(task(name), "example").test)
    scores = SCORERS[task(name).metric](found.scored, [e.references[0] for e in found.scored])
    assert scores.figures[task(name).metric] == pytest.approx(100)


def test_a_folder_of_ones_own_is_read_with_its_subjects(tmp_path: Path) -> None:
    folder = tmp_path / "turkishmmlu"
    folder.mkdir()
    row = {"question": "Kaç?", "choices": ["bir", "iki"], "answer": "A", "subject": "Matematik"}
    parquet.write_table(pa.Table.from_pylist([row]), folder / "test.parquet")
    found = opened(task("turkishmmlu"), tmp_path)
    (item,) = items(task("turkishmmlu"), TEMPLATES["turkishmmlu"], found.test).scored
    assert item.subject == "Matematik" and found.validation == []


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no test rows; put test\.jsonl"):
        opened(task("ironytr"), tmp_path)
    (tmp_path / "ironytr").mkdir()
    (tmp_path / "ironytr" / "test.jsonl").write_text(json.dumps({"text": "a", "labl": 1}))
    with pytest.raises(DataError, match="did you mean `labl`"):
        opened(task("ironytr"), tmp_path)

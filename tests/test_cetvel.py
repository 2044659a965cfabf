"""CETVEL's rows are whole, its published tables are typed right, and what follows from them."""

import math
import re

import pytest

from tabiflow.errors import UserError
from tabiflow.generative.published import derivations, inequalities, standings
from tabiflow.generative.sandbox import check, check_expression
from tabiflow.generative.templates import TEMPLATES
from tabiflow.published.cetvel import cetvel
from tabiflow.registry.cetvel import CATEGORIES, TASKS, known_prompts, task
from tabiflow.spec import BenchmarkTask

PUBLISHED = cetvel()
DERIVED = {each.column: each for each in derivations(PUBLISHED, TASKS)}
GINI = inequalities(PUBLISHED)
every = pytest.mark.parametrize("row", TASKS, ids=lambda row: row.name)


def test_every_column_of_the_tables_has_a_row() -> None:
    assert len(TASKS) == 27
    assert {row.column for row in TASKS} | {"PLU"} == set(PUBLISHED.columns)
    assert len({row.name for row in TASKS}) == 27
    assert tuple(dict.fromkeys(row.category for row in TASKS)) == CATEGORIES


@every
def test_a_row_reads_its_own_fields_only(row: BenchmarkTask) -> None:
    for expression in (row.options, row.gold, row.source):
        if isinstance(expression, str) and expression:
            check_expression(expression, row.fields)


@every
def test_a_task_has_a_prompt_of_ours(row: BenchmarkTask) -> None:
    template = TEMPLATES[row.name]
    check(template.prompt, [*row.fields, "lettered"])
    assert template.prompt == template.prompt.rstrip()
    assert ("lettered" in template.prompt) == (row.answered in ("letter", "written_letter"))
    assert template.hash != known_prompts().get(row.name) and not template.comparable


@every
def test_classes_have_as_many_words_as_there_are(row: BenchmarkTask) -> None:
    words = TEMPLATES[row.name].continuations
    assert (
        not isinstance(row.options, tuple)
        or row.answered == "text"
        or (isinstance(words, tuple) and len(words) == len(row.options))
    )


@every
def test_generation_is_the_papers(row: BenchmarkTask) -> None:
    if row.generation is not None:
        assert row.generation.max_tokens == 64
        assert row.generation.beams == (5 if row.category in ("SUM", "MT", "GEC") else 1)


def test_an_unknown_task_gets_a_near_name() -> None:
    assert task("xcopa_tr").rows == 500
    with pytest.raises(UserError, match="did you mean `xcopa_tr`"):
        task("xcopa-tr")


def test_the_tables_hold_33_models_each() -> None:
    assert len(PUBLISHED.models) == 33
    for table in PUBLISHED.results:
        assert set(table.scores) == set(PUBLISHED.models)
    assert len(PUBLISHED.scores("Turna-1B")) == 28 and PUBLISHED.scores("GPT-4") == {}


@pytest.mark.parametrize(
    ("model", "column", "score"),
    [
        ("Llama-3.3-70B-Instruct", "Proverbs", 92.5),
        ("Cere-Llama-3-8B", "TQUAD", 49.2),
        ("Ministral-2410-8B-Instruct", "GECTurk", 39.1),
        ("Qwen2.5-0.5B", "XCOPA", 54.8),
        ("Qwen2.5-1.5B-Instruct", "XQUAD", 16.5),
        ("Aya-101-13B", "MLSum", 0.3),
    ],
)
def test_a_printed_cell(model: str, column: str, score: float) -> None:
    assert PUBLISHED.scores(model)[column] == score


@pytest.mark.parametrize("column", ["PLU", "QA", "TC", "NLI", "SUM", "MT", "GEC", "total"])
def test_an_average_reproduces_within_a_tenth(column: str) -> None:
    assert DERIVED[column].reproduces and DERIVED[column].worst <= 0.1


def test_the_multiple_choice_average_is_reported_as_not_reproducing() -> None:
    found = DERIVED["MCQA"]
    assert not found.reproduces
    assert (found.beyond, found.worst) == (32, pytest.approx(7.654, abs=1e-3))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("GEC", 0.4576),
        ("MT", 0.4222),
        ("QA", 0.3689),
        ("SUM", 0.1923),
        ("TC", 0.0827),
        ("MCQA", 0.0782),
        ("NLI", 0.0273),
    ],
)
def test_gini_of_a_printed_column(column: str, value: float) -> None:
    found = GINI[column]
    assert found.value == pytest.approx(value, abs=1e-4)
    assert found.interval.low < found.value < found.interval.high


def test_our_models_stand_among_the_published_ones() -> None:
    ours = {"ours": {row.column: 34.0 for row in TASKS}, "half": {"GECTurk": 45.0}}
    found = standings(PUBLISHED, TASKS, ours)
    assert set(found) == {"overall", *CATEGORIES}
    names = [each.model for each in found["overall"]]
    assert names[:3] == ["Llama-3.3-70B-Instruct", "ours", "Aya-Expanse-32B"]
    assert names[-1] == "half" and math.isnan(found["overall"][-1].average)
    assert [each.model for each in found["GEC"]][:2] == ["Cere-Llama-3-8B", "half"]
    assert sum(each.published for each in found["NLI"]) == 33


def test_hashes_of_known_prompts_are_hashes_of_known_tasks() -> None:
    names = {row.name for row in TASKS}
    assert set(known_prompts()) <= names and len(known_prompts()) == 24
    assert all(re.fullmatch("[0-9a-f]{16}", each) for each in known_prompts().values())

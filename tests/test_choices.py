"""Multiple-choice sets in files: every form of a row, every fault by its place, no guess."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from terminal import Terminal, opened

from tabiflow.errors import CellError, UserError
from tabiflow.generative.choices import (
    LETTER_TEMPLATE,
    OPTION_TASK,
    OPTION_TEMPLATE,
    QuestionFile,
    read,
    settled,
)

Row = dict[str, Any]


def question(n: int, answer: Any = "B", choices: Any = ("su", "taş", "ev", "yol")) -> Row:
    return {
        "question": f"Soru {n}?",
        "choices": list(choices) if isinstance(choices, tuple) else choices,
        "answer": answer,
        "subject": "Tarih" if n % 2 else "Fizik",
    }


def jsonl(folder: Path, rows: list[Row], name: str = "sorular.jsonl") -> Path:
    file = folder / name
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return file


def golds(found: QuestionFile) -> list[int | None]:
    return [item.gold for item in found.found.scored]


def reasons(found: QuestionFile) -> dict[int, str]:
    return {each.index: each.reason for each in found.found.excluded}


def chapter() -> list[Row]:
    """799 rows of which 362 and 390 have no choices."""
    return [
        question(n, choices=() if n in (362, 390) else ("a", "b", "c", "d")) for n in range(799)
    ]


def test_rows_that_cannot_be_scored_stop_the_run_and_are_named(tmp_path: Path) -> None:
    found = read(jsonl(tmp_path, chapter()))
    with pytest.raises(UserError) as caught:
        settled(found, exclude_invalid=False)
    said = str(caught.value)
    assert "2 of 799 rows cannot be scored: row 362 (" in said
    assert "row 390 (" in said and said.count("it has no options") == 2
    assert "--exclude-invalid" in said


def test_excluded_on_purpose_they_leave_797(tmp_path: Path) -> None:
    found = settled(read(jsonl(tmp_path, chapter())), exclude_invalid=True)
    assert (len(found.scored), found.rows) == (797, 799)
    assert [each.index for each in found.excluded] == [362, 390]


def test_letters_are_scored_or_whole_options(tmp_path: Path) -> None:
    file = jsonl(tmp_path, [question(0)])
    (letter,) = read(file).found.scored
    (option,) = read(file, task=OPTION_TASK, template=OPTION_TEMPLATE).found.scored
    assert letter.prompt.startswith("Soru 0?\nA) su\nB) taş\nC) ev\nD) yol\n")
    assert letter.continuations == (" A", " B", " C", " D")
    assert (
        option.continuations == (" su", " taş", " ev", " yol") and letter.gold == option.gold == 1
    )


@pytest.mark.parametrize(
    ("answers", "places"),
    [
        (["A", "d", " c "], [0, 3, 2]),
        (["su", "yol", "ev"], [0, 3, 2]),
        ([0, 3, 2], [0, 3, 2]),
        ([1, 4, 3], [0, 3, 2]),
        (["0", "3", "2"], [0, 3, 2]),
        (["1", "4", "3"], [0, 3, 2]),
    ],
)
def test_an_answer_is_a_letter_a_number_or_an_option(
    tmp_path: Path, answers: list[Any], places: list[int]
) -> None:
    rows = [question(n, answer) for n, answer in enumerate(answers)]
    assert golds(read(jsonl(tmp_path, rows))) == places


@pytest.mark.parametrize(
    ("answers", "message"),
    [([1, 2], "count from 0 or from 1"), ([0, 4], "others from 1")],
)
def test_numbers_that_could_mean_two_things_are_not_guessed(
    tmp_path: Path, answers: list[int], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        read(jsonl(tmp_path, [question(n, each) for n, each in enumerate(answers)]))


def test_numbers_as_options_are_texts(tmp_path: Path) -> None:
    rows = [question(0, "6", ("4", "5", "6")), question(1, "4", ("4", "5", "6"))]
    assert golds(read(jsonl(tmp_path, rows))) == [2, 0]


@pytest.mark.parametrize(
    "choices",
    [
        {"A": "su", "B": "taş"},
        {"text": ["su", "taş"], "label": ["A", "B"]},
        '["su", "taş"]',
        "['su', 'taş']",
    ],
)
def test_choices_come_in_many_forms(tmp_path: Path, choices: Any) -> None:
    (item,) = read(jsonl(tmp_path, [question(0, "B", choices)])).found.scored
    assert (item.options, item.gold) == (("su", "taş"), 1)


def test_one_row_has_numbers_and_the_next_has_words(tmp_path: Path) -> None:
    rows = [question(0, "B", [4, 5]), question(1, "A", ["dört", "beş"]), question(2, 1.5, ["a"])]
    found = read(jsonl(tmp_path, rows))
    assert [item.options for item in found.found.scored] == [("4", "5"), ("dört", "beş")]
    assert reasons(found) == {2: "it has 1 option"}


def test_a_label_says_which_choice_it_is(tmp_path: Path) -> None:
    choices = {"text": ["su", "taş"], "label": ["2", "1"]}
    assert golds(read(jsonl(tmp_path, [question(0, "1", choices)]))) == [1]


@pytest.mark.parametrize(
    "text",
    [
        'question,choices,answer\nKaç?,"[""bir"", ""iki""]",B\n',
        "question,A,B,C,answer\nKaç?,bir,iki,,B\n",
        "question,choice1,choice2,answer\nKaç?,bir,iki,iki\n",
        "question,option_a,option_b,answer\nKaç?,bir,iki,b\n",
    ],
)
def test_csv_has_a_list_or_a_column_a_choice(tmp_path: Path, text: str) -> None:
    file = tmp_path / "s.csv"
    file.write_text(text, encoding="utf-8")
    (item,) = read(file).found.scored
    assert (item.options, item.gold) == (("bir", "iki"), 1)


def test_parquet_says_the_same_as_jsonl(tmp_path: Path) -> None:
    rows = [question(n, choices=() if n == 2 else ("a", "b")) for n in range(4)]
    file = tmp_path / "s.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), file)
    assert read(file).found == read(jsonl(tmp_path, rows)).found


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (question(1, choices=None), "its options are no list"),
        (question(1, choices=("tek",)), "it has 1 option"),
        (question(1, choices=("a", " ")), "an option is empty"),
        (question(1, "E"), "its answer 'E' is none of the 4 options"),
        (question(1, None), "its answer None is none of the 4 options"),
        (question(1, "A", ("B", "A")), "a letter and another option's text"),
        (question(1) | {"question": " "}, "its question is empty"),
        (question(1) | {"question": None}, "its question is empty"),
        (question(0), "it is the same as row 0"),
    ],
)
def test_a_fault_is_named_with_its_row(tmp_path: Path, row: Row, reason: str) -> None:
    found = read(jsonl(tmp_path, [question(0), row, question(2)]))
    assert list(reasons(found)) == [1] and reason in reasons(found)[1]


def test_a_question_of_validation_cannot_be_scored_again(tmp_path: Path) -> None:
    seen = read(jsonl(tmp_path, [question(7), question(8)], "dev.jsonl"))
    found = read(jsonl(tmp_path, [question(1), question(8)]), seen=seen)
    assert reasons(found) == {1: "it is the same as row 1 of dev.jsonl"}


def test_the_same_choices_in_another_order_are_told_and_kept(tmp_path: Path) -> None:
    rows = [
        question(0),
        question(0, "A", ("taş", "su", "ev", "yol")),
        question(2, choices=("a", "a")),
    ]
    found = read(jsonl(tmp_path, rows))
    assert found.reordered == ((0, 1),) and found.repeated == (2,)
    assert len(found.found.scored) == 3


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.csv", "question,choices\na,b\n", "no column `answer`"),
        ("s.csv", "question,choices,answer\na\n", "s.csv:2"),
        ("s.csv", "question,choices,answer\n", "no row that can be scored"),
        ("s.jsonl", '{"question": 1\n', "s.jsonl:1: not JSON"),
        ("s.jsonl", '{"question": "a", "answer": "A"}\n', "no column `choices`"),
        ("s.parquet", "x", "not a Parquet file"),
        ("s.txt", "x", "questions are .csv, .jsonl or .parquet"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises((UserError, CellError)) as caught:
        settled(read(tmp_path / name), exclude_invalid=True)
    assert message in str(caught.value)


def test_the_prompts_hash_is_frozen() -> None:
    assert LETTER_TEMPLATE.hash == "c739a0578407cdeb"


@pytest.fixture
def terminal(
    tmp_path: Path,
    ledger_template: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Terminal:
    return opened(tmp_path, ledger_template, capsys, monkeypatch)


def test_the_verb_stops_and_names_both_rows(tmp_path: Path, terminal: Terminal) -> None:
    said = terminal("audit", "--choices", jsonl(tmp_path, chapter()))
    assert said.code == 2 and "row 362 (" in said.err and "row 390 (" in said.err


def test_the_verb_counts_what_is_left_and_its_baselines(tmp_path: Path, terminal: Terminal) -> None:
    validation = jsonl(tmp_path, [question(n, "C") for n in range(900, 940)], "dev.jsonl")
    arguments = ("--choices", jsonl(tmp_path, chapter()), "--validation", validation)
    found = terminal.json("audit", *arguments, "--exclude-invalid")["choices"]
    assert (found["rows"], found["scored"], found["uniform"]) == (799, 797, 25.0)
    assert (found["majority"], found["majority_accuracy"]) == ("C", 0.0)
    assert found["subjects"] == {"Fizik": 398, "Tarih": 399}
    assert "797 of 799 rows can be scored" in terminal("audit", *arguments, "--exclude-invalid").out

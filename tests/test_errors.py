"""Errors are one line for a person, whole across process borders, with a near name."""

import pickle

import pytest

from tabiflow import errors
from tabiflow.errors import SpecError, TabiflowError, near

KINDS = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, TabiflowError)
]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (SpecError("wrong"), "wrong"),
        (SpecError("wrong", where="a.yaml:3"), "a.yaml:3: wrong"),
        (SpecError("wrong", hint="mend it"), "wrong; mend it"),
        (SpecError("wrong", where="a.yaml", hint="mend it"), "a.yaml: wrong; mend it"),
        (SpecError("two\nlines\r\nand more"), "two lines and more"),
    ],
)
def test_an_error_is_one_line(error: SpecError, line: str) -> None:
    assert str(error) == line


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_crosses_processes_whole(kind: type[TabiflowError]) -> None:
    again = pickle.loads(pickle.dumps(kind("wrong", where="a.yaml:3", hint="mend it")))

    assert type(again) is kind
    assert (again.message, again.where, again.hint) == ("wrong", "a.yaml:3", "mend it")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("berturkk", "did you mean `BERTurk`?"),
        ("BERTURK", "did you mean `BERTurk`?"),
        ("tabi-bert", "did you mean `TabiBERT`?"),
        ("xquad", None),
        ("", None),
    ],
)
def test_near_names_are_found_in_any_case(name: str, hint: str | None) -> None:
    assert near(name, ["BERTurk", "TabiBERT"]) == hint


def test_nothing_is_near_where_nothing_is_known() -> None:
    assert near("berturk", []) is None

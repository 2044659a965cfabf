"""Every mistake of a YAML file is one line that says where it stands."""

from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from tabiflow.errors import SpecError
from tabiflow.source import Source


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int = Field(1, gt=0)
    kind: Literal["long", "short"] = "long"


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    inner: Inner = Inner()
    rows: tuple[Inner, ...] = ()
    either: str | int = ""
    pair: tuple[float, float] = (0.0, 1.0)


def _read(folder: Path, text: str | bytes) -> Source:
    file = folder / "file.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return Source.read(file)


def _refused(folder: Path, text: str | bytes) -> str:
    """The error of a file, without the folder."""
    with pytest.raises(SpecError) as caught:
        source = _read(folder, text)
        source.validate(Outer, source.plain)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{folder}/")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("5e-6", 5e-6),
        ("5E-6", 5e-6),
        ("1e-5", 0.00001),
        (".5", 0.5),
        ("1e5", 100000.0),
        ("010", 10),
        ("1_000", 1000),
        ("no", "no"),
        ("yes", "yes"),
        ("off", "off"),
        ("1:30", "1:30"),
        ("'5e-6'", "5e-6"),
        ("null", None),
        ("", None),
        ("[1, 2.5, a]", [1, 2.5, "a"]),
        ("true", "true"),
    ],
)
def test_values_are_those_of_yaml_1_2(tmp_path: Path, written: str, value: object) -> None:
    plain = _read(tmp_path, f"key: {written}\n").plain["key"]

    assert plain == value
    assert type(plain) is type(value)


def test_plain_content_is_of_plain_types(tmp_path: Path) -> None:
    plain = _read(tmp_path, "a: {b: [0x1F, 'c', 5e-6]}\n1: |\n  text\n").plain

    assert plain == {"a": {"b": [31, "c", 5e-6]}, "1": "text\n"}
    assert {type(each) for each in plain["a"]["b"]} == {int, str, float}


LINES = """\
name: x
inner:
  # a comment
  size: 3
rows:
  - {size: 1}
  -
    size: 2
flow: [1,
  2]
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ((), 1),
        (("name",), 1),
        (("inner",), 2),
        (("inner", "size"), 4),
        (("inner", "absent"), 2),
        (("absent",), 1),
        (("rows", 0), 6),
        (("rows", 1, "size"), 8),
        (("rows", 1, "tag of a union", "size"), 8),
        (("rows", 7), 5),
        (("flow", 1), 10),
        (("name", "deeper"), 1),
    ],
)
def test_a_place_has_its_line(tmp_path: Path, place: tuple[str | int, ...], line: int) -> None:
    assert _read(tmp_path, LINES).where(*place) == f"{tmp_path}/file.yaml:{line}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: 2\na: 3\n", 'file.yaml:3: not valid YAML: .*duplicate key "a"'),
        ("a: {b: [1, 2]}\na: 3\n", 'file.yaml:2: not valid YAML: .*duplicate key "a"$'),
        ("{a: [b]}: 1\n", "file.yaml: not valid YAML: unhashable type"),
        ("a:\n\tb: 1\n", "file.yaml:2: not valid YAML: .*cannot start any token"),
        ("a: 1\n  b: 2\n", "file.yaml:2: not valid YAML: mapping values are not allowed here"),
        ("a: [1, 2\nb: 3\n", "file.yaml:2: not valid YAML: .*expected ',' or ']'"),
        ("a: 'x\nb: 2\n", "file.yaml:3: not valid YAML: .*unexpected end of stream"),
        ("a: 1\nb: *nope\n", "file.yaml:2: not valid YAML: .*undefined alias 'nope'"),
        ("a: 1\n---\nb: 1\n", "file.yaml:2: not valid YAML: .*another document"),
        ("a: 2024-13-45\n", "file.yaml: not valid YAML: month must be in 1..12"),
        ("a: !!int ten\n", "file.yaml: not valid YAML: invalid literal"),
        ("a: \x00b\n", "file.yaml: not valid YAML: unacceptable character"),
        (b"\x89PNG\xff\x00", "file.yaml: cannot be read: not UTF-8 text"),
        ("", "file.yaml:1: is not a mapping of keys to values"),
        ("- a\n- b\n", "file.yaml:1: is not a mapping of keys to values"),
        ("only words\n", "file.yaml:1: is not a mapping of keys to values"),
    ],
)
def test_what_is_not_a_mapping_in_yaml_is_refused(
    tmp_path: Path, text: str | bytes, told: str
) -> None:
    with pytest.raises(SpecError, match=told):
        _read(tmp_path, text)


def test_a_missing_file_and_a_folder_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"absent.yaml: cannot be read: No such file"):
        Source.read(tmp_path / "absent.yaml")
    with pytest.raises(SpecError, match=r"cannot be read: Is a directory"):
        Source.read(tmp_path)


def test_a_byte_order_mark_and_windows_lines_are_read(tmp_path: Path) -> None:
    source = _read(tmp_path, b"\xef\xbb\xbfname: x\r\nrows: []\r\n")

    assert source.plain == {"name": "x", "rows": []}
    assert source.where("rows").endswith(":2")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("inner: {}\n", "file.yaml:1: `name` is missing"),
        ("name: x\nnam: y\n", "file.yaml:2: unknown key `nam`; did you mean `name`?"),
        ("nam: y\n", "file.yaml:1: unknown key `nam`; did you mean `name`?"),
        ("name: x\nsize: 3\n", "file.yaml:2: unknown key `size`; it belongs under `inner`"),
        ("name: x\nzzz: 3\n", "file.yaml:2: unknown key `zzz`"),
        ('name: x\n"a\\nb": 3\n', "file.yaml:2: unknown key `a b`"),
        ("name: x\n5: 3\n", "file.yaml:2: unknown key `5`"),
        (
            "name: x\ninner:\n  sise: 3\n",
            "file.yaml:3: unknown key `sise`; did you mean `size`?",
        ),
        (
            "name: x\nrows:\n  - size: 1\n  - {sze: 1}\n",
            "file.yaml:4: unknown key `sze`; did you mean `size`?",
        ),
        ("name: 5\n", "file.yaml:1: `name`: must be text, not 5; put it in quotes"),
        ("name: 2024-01-01\n", 'file.yaml:1: `name`: must be text, not "2024-01-01"; put it'),
        ("name: {{ x }}\n", "file.yaml:1: `name`: must be text, not "),
        ("name:\n", "file.yaml:1: `name`: must be text, not nothing"),
        ("name: x\ninner:\n  size: 0\n", "file.yaml:3: `size`: must be above 0, not 0"),
        ("name: x\ninner: {size: 1.5}\n", "file.yaml:2: `size`: must be a whole number, not 1.5"),
        ("name: x\ninner: {size: true}\n", "file.yaml:2: `size`: must be a whole number, not"),
        ("name: x\ninner: {size: many}\n", 'file.yaml:2: `size`: must be a whole number, not "m'),
        (
            "name: x\ninner: {kind: shorter}\n",
            "file.yaml:2: `kind`: must be 'long' or 'short', not \"shorter\"; did you mean `short`",
        ),
        ("name: x\ninner: 5\n", "file.yaml:2: `inner`: must be a mapping of keys to values, not 5"),
        ("name: x\nrows: 5\n", "file.yaml:2: `rows`: must be a list, not 5"),
        ("name: x\nrows: {size: 1}\n", "file.yaml:2: `rows`: must be a list, not"),
        ("name: x\nrows:\n  - 5\n", "file.yaml:3: `rows`: must be a mapping of keys to values"),
        (
            "name: x\neither: 0.5\n",
            "file.yaml:2: `either`: must be text or a whole number, not 0.5; put it in quotes",
        ),
        ("name: x\npair: [1]\n", "file.yaml:2: `pair`: must be longer, not [1]"),
        ("name: x\npair: [1, 2, 3]\n", "file.yaml:2: `pair`: must be no longer than 2"),
        ("name: x\npair:\n  - 1\n  - x\n", 'file.yaml:4: `pair`: must be a number, not "x"'),
    ],
)
def test_a_mistake_is_said_where_it_stands(tmp_path: Path, text: str, told: str) -> None:
    assert _refused(tmp_path, text).startswith(told)


def test_long_values_are_not_repeated(tmp_path: Path) -> None:
    assert _refused(tmp_path, f"name: {list(range(99))}\n") == "file.yaml:1: `name`: must be text"


def test_values_that_are_merged_in_are_found(tmp_path: Path) -> None:
    text = "name: x\nrows:\n  - &first {size: 1}\n  -\n    <<: *first\n    kind: odd\n"

    assert _read(tmp_path, text).where("rows", 1, "size").endswith(":5")
    assert _refused(tmp_path, text).startswith("file.yaml:6: `kind`: must be 'long' or 'short'")

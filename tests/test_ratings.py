"""Ratings of people, from both layouts of a file to votes, intervals and kappa."""

import json
import math
from pathlib import Path

import pytest
from terminal import Terminal, opened

from tabiflow import ratings
from tabiflow.errors import UserError

WIDE = """\
item,type,ayse,can,ece
1,code,adequate,adequate,adequate
2,code,adequate,minor,changed
3,text,minor,minor,adequate
4,text,changed,changed,adequate
"""


def file(folder: Path, text: str, name: str = "ratings.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def as_long(text: str) -> str:
    header, *lines = (line.split(",") for line in text.splitlines())
    records = [
        {"item": int(line[0]), "type": line[1], "rater": rater, "rating": rating}
        for line in lines
        for rater, rating in zip(header[2:], line[2:], strict=True)
    ]
    return "\n".join(json.dumps(record) for record in records)


def test_the_majority_decides_and_a_tie_goes_to_the_severest(tmp_path: Path) -> None:
    every, code, text = ratings.agreement(ratings.read(file(tmp_path, WIDE)))
    assert [each.items for each in every.levels] == [1, 1, 2]
    assert every.tied == 1 and [each.items for each in code.levels] == [1, 0, 1]
    assert (every.type, code.type, text.type) == ("all", "code", "text")


def test_one_row_an_item_and_one_a_rating_say_the_same(tmp_path: Path) -> None:
    wide = ratings.read(file(tmp_path, WIDE))
    assert ratings.read(file(tmp_path, as_long(WIDE), "ratings.jsonl")) == wide


def test_the_papers_audit_comes_out_as_printed(tmp_path: Path) -> None:
    votes = ["adequate"] * 92 + ["minor"] * 16 + ["changed"] * 12
    lines = [f"{item},{vote},{vote},{vote}" for item, vote in enumerate(votes)]
    (every,) = ratings.agreement(ratings.read(file(tmp_path, "\n".join(["item,a,b,c", *lines]))))
    changed = every.borders[-1].share
    assert (changed.items, round(changed.share, 1)) == (12, 10.0)
    assert (round(changed.low, 1), round(changed.high, 1)) == (5.8, 16.7)
    assert every.kappa == every.borders[0].kappa == 1.0


def test_kappa_is_that_of_a_case_by_hand(tmp_path: Path) -> None:
    """Pairs that agree: 3, 0, 1, 1 of 3. Shares of the levels: 6, 3, 3 of 12."""
    every = ratings.agreement(ratings.read(file(tmp_path, WIDE)))[0]
    observed, chance = (3 + 0 + 1 + 1) / 12, (36 + 9 + 9) / 144
    assert every.kappa == pytest.approx((observed - chance) / (1 - chance))


def test_items_without_every_rating_have_a_vote_but_no_part_in_kappa(tmp_path: Path) -> None:
    every = ratings.agreement(ratings.read(file(tmp_path, WIDE + "5,text,,minor,minor\n")))[0]
    whole = ratings.agreement(ratings.read(file(tmp_path, WIDE)))[0]
    assert (every.items, every.fully_rated) == (5, 4) and every.kappa == whole.kappa


def test_one_rater_agrees_with_nobody(tmp_path: Path) -> None:
    every = ratings.agreement(ratings.read(file(tmp_path, "item,a\n1,minor\n2,adequate\n")))[0]
    assert every.items == 2 and math.isnan(every.kappa)


def test_numbers_are_levels_in_their_order(tmp_path: Path) -> None:
    found = ratings.read(file(tmp_path, '{"item": 1, "a": 10, "b": 2.0, "c": 1}', "r.jsonl"))
    assert found.levels == ("1", "2", "10")


def test_numbers_written_as_fractions_are_the_same_levels_and_gaps_none(tmp_path: Path) -> None:
    text = "item,a,b,c\n1,1,1.0,2\n2,2,nan,2.0\n"
    found = ratings.read(file(tmp_path, text), ("1", "2.0"))
    assert found == ratings.read(file(tmp_path, text))
    assert found.levels == ("1", "2") and found.votes["", "2"] == {"a": "2", "c": "2"}
    pandas = '{"item": 1, "a": 2.0, "b": NaN}'
    assert ratings.read(file(tmp_path, pandas, "r.jsonl")).raters == ("a",)


@pytest.mark.parametrize(
    ("name", "text", "levels", "message"),
    [
        ("r.csv", "item,a,b\n1,good,bad\n", (), "how severe are bad, good?"),
        ("r.csv", "item,a,b\n1,good,odd\n", ("good", "bad"), "r.csv:2: rating `odd` is none of"),
        ("r.csv", "item,a,b\n1,1,2\n1,1,2\n", (), "r.csv:3: `a` rates item `1` twice"),
        ("r.csv", "thing,a\n1,2\n", (), "r.csv:2: no `item`"),
        ("r.csv", "item,a,b\n1,2\n", (), "r.csv:2: 3 columns are named"),
        ("r.csv", "item,type\n1,x\n", (), "r.csv:2: no rater"),
        ("r.csv", "item,a\n", (), "no rating in it"),
        ("r.csv", "item,a, a\n1,1,2\n", (), "r.csv:1: 2 columns are called `a`"),
        ("r.csv", "item,a,note\n1,minor,fine\n", (), "every column but `item` and `type` is"),
        ("r.jsonl", '{"item": 1, "a": 2}\n[1]\n', (), "r.jsonl:2: not a JSON object"),
        ("r.jsonl", "{", (), "r.jsonl:1: not JSON"),
        ("r.txt", "", (), "ratings are .csv or .jsonl"),
    ],
)
def test_a_file_that_cannot_be_read_says_where(
    name: str, text: str, levels: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        ratings.read(file(tmp_path, text, name), levels)
    assert message in str(caught.value)


def test_a_file_that_is_not_there_or_no_text_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        ratings.read(tmp_path / "none.csv")
    (tmp_path / "r.csv").write_bytes(b"item,a\n\xff\xfe,1\n")
    with pytest.raises(UserError, match="not UTF-8"):
        ratings.read(tmp_path / "r.csv")


@pytest.fixture
def terminal(
    tmp_path: Path,
    ledger_template: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Terminal:
    return opened(tmp_path, ledger_template, capsys, monkeypatch)


def test_the_verb_takes_ratings_without_a_sweep(terminal: Terminal, tmp_path: Path) -> None:
    path = file(tmp_path, WIDE)
    groups = terminal.json("audit", "--ratings", path)["ratings"]["groups"]
    assert [each["type"] for each in groups] == ["all", "code", "text"]
    assert "Fleiss' kappa" in terminal("audit", "--ratings", path).out
    swapped = terminal.json("audit", "--ratings", path, "--levels", "changed,minor,adequate")
    assert swapped["ratings"]["groups"][0]["levels"][0]["level"] == "changed"


def test_the_verb_asks_for_something_to_audit(terminal: Terminal) -> None:
    said = terminal("audit")
    assert said.code == 2 and "nothing to audit" in said.err

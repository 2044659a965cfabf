"""How much another length cuts off, measured for a report: the shares of Table 14."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from samples import sample
from studies import known, scored, written
from transformers import AutoTokenizer

from tabiflow.plan import Plan
from tabiflow.published import tabibench
from tabiflow.registry import resolve
from tabiflow.report.ablation import CutShare
from tabiflow.report.capped import cut_table
from tabiflow.report.content import Row, report
from tabiflow.report.cutting import cut_shares
from tabiflow.selection import planned
from tabiflow.spec import Sweep
from tests.tiny import tiny_model

SPLITS = ("train", "validation", "test")
LENGTH = 20
TQUAD = (Row("tquad", "TQuAD"),)


def shortened(folder: Path, **changes: Any) -> Plan:
    """The winner on a small question answering set, asked for at another length."""
    (folder / "qa").mkdir()
    for seed, split in enumerate(SPLITS):
        lines = (json.dumps(row) for row in sample("qa", 40, seed).drop(["row"]).to_pylist())
        (folder / "qa" / f"{split}.jsonl").write_text("\n".join(lines))
    tiny_model(folder / "bert", "bert")
    found = [{"name": "qa", "path": "qa", "task": "qa"}]
    search = [{"datasets": found, "space": {"learning_rate": 1e-5}}]
    base = Sweep.read(written(folder, models=[{"name": "bert", "path": "bert"}], search=search))
    wanted = [{"datasets": ["qa"], "space": {"winners_of": "study"}}]
    content = {"models": ["bert"], "search": wanted, "protocol": {"max_length": LENGTH}, **changes}
    (folder / "short.yaml").write_text(json.dumps({"name": "short", **content}))
    sweep = Sweep.read(folder / "short.yaml")
    trials = planned(base, resolve(base), {}).trials
    return planned(sweep, resolve(sweep), known(scored(trials, 1.0)))


def test_shares_are_those_of_the_tokenizer_itself(tmp_path: Path) -> None:
    shares = cut_shares(shortened(tmp_path))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "bert")
    for seed, split in enumerate(SPLITS):
        rows = sample("qa", 40, seed).to_pylist()
        longer = [
            len(tokenizer(row["question"], row["context"])["input_ids"]) > LENGTH for row in rows
        ]
        assert 0 < sum(longer) < 40
        [mine] = [each for each in shares if each.split == split]
        assert (mine.share, mine.rows, mine.limit) == (100 * sum(longer) / 40, 40, LENGTH)


def test_a_protocol_that_leaves_the_length_alone_cuts_nothing_new(tmp_path: Path) -> None:
    assert cut_shares(shortened(tmp_path, protocol={"epochs": 1})) == ()


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    plan = shortened(tmp_path)
    (tmp_path / "qa" / "train.jsonl").write_text("not JSON")
    shares = cut_shares(plan)
    assert [each.share != each.share for each in shares] == [True] * 3
    table = cut_table(report(plan, (), {}, cuts=shares), tabibench())
    assert table.rows == (("bert", "qa", "–", "–", "–", "–"),)


def test_tquad_at_512_stands_below_the_printed_table_14(tmp_path: Path) -> None:
    mine = [
        CutShare("bert", "tquad", "text", split, 512, 9, share)
        for split, share in zip(SPLITS, (1.0, 2.0, 3.0), strict=True)
    ]
    content = report(shortened(tmp_path), (), {}, cuts=mine)
    table = cut_table(replace(content, datasets=TQUAD), tabibench())
    rows = {row[0]: row[3:] for row in table.rows}
    assert table.title.startswith("Table 14: ") and table.quiet == frozenset(range(5))
    assert rows["mmBERT (published)"] == ("24.32", "25.35", "14.96")
    assert rows["bert"] == ("1.00", "2.00", "3.00")

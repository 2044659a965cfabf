"""The embedded example from plan to report, against what guessing would reach."""

import json
import math
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from sklearn.metrics import f1_score

from tabiflow.example import data_folder

SWEEP = Path(__file__).parent.parent / "sweeps" / "quickstart.yaml"
MARGIN = 10.0
"""Points above guessing that every winner must reach on test."""


def said(folder: Path, *arguments: str) -> Any:
    command = [sys.executable, "-c", "from tabiflow.cli import main; main()"]
    done = subprocess.run(
        [*command, *arguments, "--json"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def rows(name: str, split: str) -> list[dict[str, Any]]:
    lines = (data_folder(name) / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def majority(name: str) -> float:
    """Macro-F1 of the training split's most frequent class."""
    ((label, _),) = Counter(row["label"] for row in rows(name, "train")).most_common(1)
    gold = [row["label"] for row in rows(name, "test")]
    return 100 * float(f1_score(gold, [label] * len(gold), average="macro", zero_division=0))


def majority_tag() -> float:
    ((tag, _),) = Counter(t for row in rows("pos", "train") for t in row["tags"]).most_common(1)
    gold = [t for row in rows("pos", "test") for t in row["tags"]]
    return 100 * sum(each == tag for each in gold) / len(gold)


def random_span() -> float:
    """Token F1 of a run of one to three words of the context, drawn at random."""
    draw = random.Random(1)
    return 100 * fmean(_overlap(row, draw) for row in rows("qa", "test") for _ in range(50))


def _overlap(row: dict[str, Any], draw: random.Random) -> float:
    words = row["context"].split()
    start = draw.randrange(len(words))
    guess = Counter(words[start : start + draw.randint(1, 3)])
    gold = Counter(row["answers"]["text"][0].split())
    shared = (guess & gold).total()
    return 2 * shared / (guess.total() + gold.total())


def random_ranking() -> float:
    """NDCG@10 of a shuffled corpus."""
    draw, found = random.Random(1), rows("retrieval", "test")
    corpus = sorted({row["positive"] for row in found})
    relevant: dict[str, set[str]] = {}
    for row in found:
        relevant.setdefault(row["anchor"], set()).add(row["positive"])
    return 100 * fmean(
        _ndcg(draw.sample(corpus, k=10), wanted) for wanted in relevant.values() for _ in range(20)
    )


def _ndcg(ranked: list[str], wanted: set[str]) -> float:
    gains = [1 / math.log2(place + 2) for place in range(10)]
    best = sum(gains[: len(wanted)])
    return sum(gain for gain, each in zip(gains, ranked, strict=True) if each in wanted) / best


@pytest.mark.slow
def test_the_example_runs_in_minutes_and_its_winners_beat_guessing(tmp_path: Path) -> None:
    started = time.monotonic()
    sweep = str(SWEEP)
    plan = said(tmp_path, "plan", sweep)
    assert plan["trials"] >= 6 * 2 * 4 and len(plan["datasets"]) >= 6 and len(plan["models"]) == 2
    assert said(tmp_path, "sweep", sweep)["counts"]["done"] == plan["trials"]
    assert len(said(tmp_path, "select", sweep)["winners"]) == plan["cells"]
    said(tmp_path, "confirm", sweep)
    scores = said(tmp_path, "report", sweep)["scores"]
    seconds = time.monotonic() - started

    guessed = {
        "example-classification": majority("classification"),
        "example-nli": majority("nli"),
        "example-ner": 0.0,  # tagging everything as outside finds no entity
        "example-pos": majority_tag(),
        "example-sts": 30.0 - MARGIN,
        "example-qa": random_span(),
        "example-retrieval": random_ranking(),
    }
    assert len(scores) == plan["cells"] == 2 * len(guessed)
    for score in scores:
        print(score["model"], score["dataset"], score["test"], guessed[score["dataset"]])
        assert score["test"] >= guessed[score["dataset"]] + MARGIN
    print(f"{seconds:.0f} s")
    assert seconds < 240

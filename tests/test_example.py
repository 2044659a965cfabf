"""The embedded example: its files, its morphology, its encoders."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoTokenizer

from tabiflow.casing import turkish_lower
from tabiflow.example import data_folder
from tabiflow.example.generate import INPUTS, SIZES, files, splits
from tabiflow.example.models import build, built_model
from tabiflow.example.templates import MAKERS, Row
from tabiflow.example.turkish import capital, suffixed, upper
from tabiflow.registry import dataset_files, local
from tabiflow.registry.datasets import DATASETS
from tabiflow.registry.models import MODELS
from tabiflow.spec import TaskKind

every_kind = pytest.mark.parametrize("kind", MAKERS)


def shipped(kind: TaskKind, split: str) -> list[Row]:
    lines = (data_folder(kind) / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@every_kind
def test_the_shipped_files_are_what_the_generator_writes(kind: TaskKind) -> None:
    written = {
        file.name: file.read_text(encoding="utf-8") for file in data_folder(kind).glob("*.jsonl")
    }
    assert written == files(kind)


@every_kind
def test_the_row_holds_the_hash_of_the_shipped_files(kind: TaskKind) -> None:
    row = next(row for row in DATASETS if row.build == kind)
    found = dataset_files(data_folder(kind))
    assert row.revision == local.revision(data_folder(kind), list(found.values()))


@every_kind
def test_the_row_tells_sizes_and_labels_truly(kind: TaskKind) -> None:
    row = next(row for row in DATASETS if row.build == kind)
    made = splits(kind)
    assert {split: len(rows) for split, rows in made.items()} == row.sizes == SIZES
    for rows in made.values():
        assert labels_of(rows) <= set(row.labels)
    assert labels_of(made["train"]) == set(row.labels)


def labels_of(rows: list[Row]) -> set[str]:
    tags = {tag for row in rows for tag in row.get("tags", ())}
    return tags | {row["label"] for row in rows if "label" in row}


@every_kind
def test_no_input_stands_in_two_splits(kind: TaskKind) -> None:
    inputs = [
        {str([row[column] for column in INPUTS if column in row]) for row in rows}
        for rows in splits(kind).values()
    ]
    assert len(set.union(*inputs)) == sum(map(len, inputs))


@pytest.mark.parametrize("split", SIZES)
def test_every_answer_stands_where_it_says(split: str) -> None:
    for row in shipped("qa", split):
        text, start = row["answers"]["text"][0], row["answers"]["answer_start"][0]
        assert row["context"][start:].startswith(text)


@pytest.mark.parametrize("split", SIZES)
@pytest.mark.parametrize("kind", ["ner", "pos"])
def test_every_word_has_its_tag(kind: TaskKind, split: str) -> None:
    assert all(len(row["tokens"]) == len(row["tags"]) for row in shipped(kind, split))


@pytest.mark.parametrize("split", SIZES)
@pytest.mark.parametrize("kind", ["classification", "nli"])
def test_no_class_is_a_majority(kind: TaskKind, split: str) -> None:
    counts = Counter(row["label"] for row in shipped(kind, split))
    assert len(counts) == 3
    assert max(counts.values()) < 0.5 * counts.total()


def test_some_queries_have_two_passages() -> None:
    anchors = Counter(row["anchor"] for row in shipped("retrieval", "test"))
    assert set(anchors.values()) == {1, 2}


@pytest.mark.parametrize(
    ("stem", "pattern", "link", "form"),
    [
        ("İzmir", "DA", "'", "İzmir'de"),
        ("Iğdır", "DA", "'", "Iğdır'da"),
        ("Trabzon", "DA", "'", "Trabzon'da"),
        ("Yıldız Havayolları", "DA", "'", "Yıldız Havayolları'da"),
        ("Işık", "DAn", "'", "Işık'tan"),
        ("Gülşen", "I", "'", "Gülşen'i"),
        ("Ömer Koç", "I", "'", "Ömer Koç'u"),
        ("oku", "mAdI", "", "okumadı"),
        ("gül", "DI", "", "güldü"),
    ],
)
def test_suffixes_follow_the_vowels_before_them(
    stem: str, pattern: str, link: str, form: str
) -> None:
    assert suffixed(stem, pattern, link) == form


def test_capitals_keep_their_dots() -> None:
    assert upper("ılık iyi") == "ILIK İYİ"
    assert capital("istanbul") == "İstanbul"


RECIPES = ("bert", "modernbert")
BUILD = f"""
from tabiflow.example.models import built_model
for recipe in {RECIPES}:
    built_model(recipe)
"""


@pytest.fixture(scope="module", params=RECIPES)
def recipe(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def folder(recipe: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe's model, built in this process."""
    folder = tmp_path_factory.mktemp("example") / recipe
    build(recipe, folder)
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that two processes have filled at the same time."""
    cache = tmp_path_factory.mktemp("cache")
    environment = {**os.environ, "TABIFLOW_CACHE": str(cache)}
    command = [sys.executable, "-c", BUILD]
    racing = [subprocess.Popen(command, env=environment) for _ in range(2)]
    assert [process.wait() for process in racing] == [0, 0]
    return cache


def test_processes_that_race_build_one_folder_a_recipe(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABIFLOW_CACHE", str(cache))
    built = {built_model(recipe) for recipe in RECIPES}
    assert set((cache / "example").iterdir()) == built


def test_every_process_builds_the_same_bytes(
    recipe: str, folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABIFLOW_CACHE", str(cache))
    for file in built_model(recipe).iterdir():
        assert file.read_bytes() == (folder / file.name).read_bytes()


def test_a_build_leaves_random_numbers_alone(tmp_path: Path) -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    build("bert", tmp_path / "bert")
    assert torch.equal(torch.rand(1), expected)


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    blocked = tmp_path / "model"
    blocked.write_text("in the way")
    with pytest.raises(OSError):
        build("bert", blocked)
    assert list(tmp_path.iterdir()) == [blocked]


def test_only_the_bert_is_uncased_and_leaves_lower_casing_to_its_row(
    recipe: str, folder: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    lowered = tokenizer.tokenize(turkish_lower("İzmir Işık"))
    assert ("[UNK]" in tokenizer.tokenize("İzmir Işık")) == (recipe == "bert")
    assert (lowered == ["izmir", "ışık"]) == (recipe == "bert")


def test_only_the_bert_has_token_types(recipe: str, folder: Path) -> None:
    encoded = AutoTokenizer.from_pretrained(folder)("evde", "sokakta")
    assert ("token_type_ids" in encoded) == (recipe == "bert")


def test_a_built_encoder_is_tiny_and_takes_its_rows_limit(recipe: str, folder: Path) -> None:
    row = next(row for row in MODELS if row.build == recipe)
    config = AutoConfig.from_pretrained(folder)
    assert config.max_position_embeddings == row.context
    assert (folder / "model.safetensors").stat().st_size < 1_000_000

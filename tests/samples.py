"""Small tables of every kind of task, learnable by a tiny encoder, and trials on them."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tabiflow.data import Schema
from tabiflow.encoding import text_encoder
from tabiflow.protocol import Params, Protocol
from tabiflow.registry import dataset_files, local
from tabiflow.runners import Job
from tabiflow.spec import Dataset, Model, TaskKind
from tabiflow.tasks import TASKS
from tabiflow.training import Material
from tabiflow.trial import Trial
from tests.tiny import LINES, Architecture, tiny_model

WORDS = sorted({word for line in LINES for word in line.split()})
GOOD, BAD = ("güzel", "hızlıydı", "kazandı"), ("berbat", "istiyorum", "almayın")
TAGS = ("B-PER", "I-PER", "O")
LABELS: Mapping[TaskKind, tuple[str, ...]] = {
    "classification": ("bad", "good"),
    "nli": ("entailment", "neutral"),
    "ner": TAGS,
    "pos": TAGS,
}


def sample(kind: TaskKind, rows: int, seed: int = 0) -> pa.Table:
    """Canonical rows of one split; lengths differ widely, as those of real texts do."""
    draw = random.Random(f"{kind} {seed}")
    made = [_ROWS[kind](draw, index) for index in range(rows)]
    return pa.Table.from_pylist([{**row, "row": index} for index, row in enumerate(made)])


def schema(kind: TaskKind) -> Schema:
    return Schema(LABELS.get(kind, ()), (0.0, 5.0) if kind == "sts" else None)


def material(kind: TaskKind, folder: Path, rows: int = 40, validation: int = 24) -> Material:
    """Encoded splits for the model in `folder`, without a file or a cache between."""
    task, settings, known = TASKS[kind], Protocol(), schema(kind)
    text = text_encoder(row_of(folder))
    train = sample(kind, rows)
    lengths = task.lengths(train, text, settings)
    parts = [
        task.encode(table, text, known, lengths, settings, training=training)
        for table, training in ((train, True), (sample(kind, validation, seed=1), False))
    ]
    return Material(task, known, *parts)


def row_of(folder: Path) -> Model:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return Model(name=folder.name, path=folder, revision=local.revision(folder, files))


def job(
    folder: Path,
    kind: TaskKind = "classification",
    architecture: Architecture = "bert",
    params: Mapping[str, Any] | None = None,
    **protocol: Any,
) -> Job:
    """A trial of a sweep, with its model and its data set written to `folder`."""
    model = folder / architecture
    if not model.exists():
        tiny_model(model, architecture)
    dataset = _written(folder / kind, kind)
    fields = {"learning_rate": 3e-3, "batch_size": 8, **(params or {})}
    row = row_of(model)
    trial = Trial(
        model=row.name,
        dataset=dataset.name,
        model_identity=row.identity,
        dataset_identity=dataset.identity,
        params=Params(**fields),
        protocol=Protocol(**{"epochs": 3, **protocol}),
    )
    return Job(trial, 1, row, dataset)


def _written(folder: Path, kind: TaskKind) -> Dataset:
    folder.mkdir(exist_ok=True)
    for seed, (split, rows) in enumerate({"train": 40, "validation": 24, "test": 20}.items()):
        lines = [json.dumps(row) for row in sample(kind, rows, seed).drop(["row"]).to_pylist()]
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
    files = list(dataset_files(folder).values())
    return Dataset(
        name=kind,
        path=folder,
        revision=local.revision(folder, files),
        task=kind,
        labels=LABELS.get(kind, ()),
        label_range=schema(kind).label_range,
    )


def _words(draw: random.Random, least: int = 2, most: int = 30) -> list[str]:
    return draw.choices(WORDS, k=round(least * (most / least) ** draw.random()))


def _classification(draw: random.Random, index: int) -> dict[str, Any]:
    # Gradients of equally many rows of two classes would cancel to rounding noise.
    good = index % 4 == 1
    words = [*_words(draw), draw.choice(GOOD if good else BAD)]
    draw.shuffle(words)
    return {"text": " ".join(words), "label": "good" if good else "bad"}


def _nli(draw: random.Random, index: int) -> dict[str, Any]:
    premise = _words(draw, most=15)
    same = index % 2 == 0
    hypothesis = premise[: len(premise) // 2 + 1] if same else _words(draw, most=8)
    label = "entailment" if same else "neutral"
    return {"premise": " ".join(premise), "hypothesis": " ".join(hypothesis), "label": label}


def _tagging(draw: random.Random, index: int) -> dict[str, Any]:
    tokens = [*_words(draw), *draw.choice((["Ahmet"], ["Mustafa", "Kemal"])), *_words(draw)]
    tags = {"Ahmet": "B-PER", "Mustafa": "B-PER", "Kemal": "I-PER"}
    return {"tokens": tokens, "tags": [tags.get(token, "O") for token in tokens]}


def _sts(draw: random.Random, index: int) -> dict[str, Any]:
    first = _words(draw, least=4, most=15)
    kept = draw.randrange(6)
    second = first[: kept * len(first) // 5] + draw.choices(WORDS, k=5 - kept)
    return {"sentence1": " ".join(first), "sentence2": " ".join(second), "score": float(kept)}


def _qa(draw: random.Random, index: int) -> dict[str, Any]:
    before, year = " ".join(_words(draw, most=8)), str(draw.randrange(1881, 1999))
    answers = {"text": [year], "answer_start": [len(before) + 1]}
    context = f"{before} {year} {' '.join(_words(draw, most=8))}"
    return {
        "id": str(index),
        "context": context,
        "question": "Selanik'te doğdu",
        "answers": answers,
    }


def _retrieval(draw: random.Random, index: int) -> dict[str, Any]:
    topic = draw.sample(WORDS, 3)
    anchor, positive = [*topic, *_words(draw, most=6)], [*topic[::-1], *_words(draw, most=20)]
    return {"anchor": f"{' '.join(anchor)} {index}", "positive": f"{' '.join(positive)} {index}"}


_ROWS = {
    "classification": _classification,
    "nli": _nli,
    "ner": _tagging,
    "pos": _tagging,
    "sts": _sts,
    "qa": _qa,
    "retrieval": _retrieval,
}

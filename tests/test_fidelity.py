"""The benchmark's protocol from files to scores: what each rule asks for, seen from end to end.

Every walk is load, encode, decode, score, with the outputs of a model that is never wrong; each
data set's validation split lacks a class that its training split has.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
import torch
from test_tasks import PERFECT
from tiny import LINES, tiny_model

from tabiflow import data
from tabiflow.encoding import Encoded, TextEncoder, text_encoder
from tabiflow.protocol import Protocol
from tabiflow.spec import Dataset, Model, TaskKind
from tabiflow.tasks import TASKS, Scores, sequences
from tabiflow.trial import Opening

KINDS = get_args(TaskKind)
SETTINGS = Protocol()
OPENING = Opening(trial="0" * 12, who="a test", at="2026-01-01T00:00:00Z", code="-")
CONTEXT = "İSTANBUL'un Iğdır'a uzaklığı İKİ günlük yoldur ve kedi IŞIKTA uyuyor ."
ANSWERS = ("Iğdır'a", "İKİ günlük", "İSTANBUL'un", "IŞIKTA")
SENTENCE = ["Ahmet", "Ankara", "ve", "Ayşe", "güzel", "."]
TAGS = ["B-PER", "B-LOC", "O", "B-PER", "O", "O"]
PARTS = ["NOUN", "NOUN", "CCONJ", "NOUN", "ADJ", "PUNCT"]


def _labelled(*labels: Any, **texts: str) -> list[dict[str, Any]]:
    return [
        {name: f"{text} {row}" for name, text in texts.items()} | {"label": label}
        for row, label in enumerate(labels)
    ]


def _answered(*answers: str) -> list[dict[str, Any]]:
    return [
        {
            "id": str(row),
            "context": CONTEXT,
            "question": "Ne kadar ?",
            "answers": {"text": [answer], "answer_start": [CONTEXT.index(answer)]},
        }
        for row, answer in enumerate(answers)
    ]


def _tagged(tags: list[str], *absent: str) -> list[dict[str, Any]]:
    """The sentence, and without the words that have one of the absent tags."""
    kept = [pair for pair in zip(SENTENCE, tags, strict=True) if pair[1] not in absent]
    words, rest = zip(*kept, strict=True)
    return [{"tokens": words, "tags": rest}, {"tokens": words[:3], "tags": rest[:3]}]


def _scored(*scores: float) -> list[dict[str, Any]]:
    return [
        {"sentence1": f"Kedi {row}", "sentence2": f"Köpek {row}", "score": score}
        for row, score in enumerate(scores)
    ]


def _paired(*pairs: str) -> list[dict[str, Any]]:
    return [dict(zip(("anchor", "positive"), pair.split(">"), strict=True)) for pair in pairs]


SPLITS: Mapping[TaskKind, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "classification": (
        _labelled("a", "b", "c", "a", text="film"),
        _labelled("b", "a", "b", text="ürün"),
    ),
    "nli": (
        _labelled(0, 1, 2, -1, 2, -1, premise="p", hypothesis="h"),
        _labelled(2, 0, -1, premise="q", hypothesis="i"),
    ),
    "ner": (_tagged(TAGS), _tagged(TAGS, "B-LOC")),
    "pos": (_tagged(PARTS), _tagged(PARTS, "CCONJ")),
    "sts": (_scored(0, 5, 2.5, 1), _scored(1, 4, 3)),
    "qa": (_answered(*ANSWERS), _answered(*ANSWERS[1:])),
    "retrieval": (
        _paired("film>Güzel", "kargo>Hızlı", "film>Uzun"),
        _paired("film>İyi", "film>Kötü", "kargo>Yavaş"),
    ),
}
"""Training and validation rows; test is like validation."""
FIELDS: Mapping[str, dict[str, Any]] = {
    "nli": {"labels": (0, 1, 2)},
    "sts": {"label_range": (0, 5)},
}


def written(folder: Path, kind: TaskKind, train: Sequence[Any], other: Sequence[Any]) -> Dataset:
    folder.mkdir(exist_ok=True)
    for split, rows in (("train", train), ("validation", other), ("test", other)):
        lines = (json.dumps(row, ensure_ascii=False) for row in rows)
        (folder / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return Dataset(name=kind, path=folder, task=kind, **FIELDS.get(kind, {}))


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TextEncoder]:
    folder = tmp_path_factory.mktemp("models")
    cased = tiny_model(folder / "bert", "bert", context=128)
    other = tiny_model(folder / "modernbert", "modernbert", context=128)
    return {
        "cased": text_encoder(Model(name="bert", path=cased)),
        "uncased": text_encoder(Model(name="bert", path=cased, lowercase="turkish")),
        "bytes": text_encoder(Model(name="modernbert", path=other)),
    }


def walked(
    dataset: Dataset,
    text: TextEncoder,
    split: str = "validation",
    outputs: Callable[[Encoded], torch.Tensor] | None = None,
) -> Scores:
    """A split's scores, from its file to the metric."""
    loaded, task = data.load(dataset, {}), TASKS[dataset.task]
    opened = data.load_test(dataset, {}, OPENING).rows if split == "test" else loaded.validation
    lengths = task.lengths(loaded.train, text, SETTINGS)
    # No length may cut here: what a cut costs is for the audit to say.
    lengths = dict.fromkeys(lengths, text.limit)
    encoded = task.encode(opened, text, loaded.schema, lengths, SETTINGS, training=False)
    made = (outputs or PERFECT[dataset.task])(encoded)
    decoded = task.decode(made, encoded, np.arange(task.rows(encoded)))
    return task.score(decoded, encoded, loaded.schema)


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("encoder", ["cased", "uncased", "bytes"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_perfect_model_scores_100_where_validation_lacks_a_class(
    kind: TaskKind, encoder: str, split: str, texts: dict[str, TextEncoder], tmp_path: Path
) -> None:
    dataset = written(tmp_path / kind, kind, *SPLITS[kind])
    scores = walked(dataset, texts[encoder], split)
    assert scores.headline == pytest.approx(100, abs=1e-9)
    assert len(scores.references) > 0


@pytest.mark.parametrize(
    ("kind", "column", "absent"),
    [("classification", "label", "c"), ("ner", "tags", "B-LOC"), ("pos", "tags", "CCONJ")],
)
def test_the_schema_is_by_name_and_the_same_in_every_split(
    kind: TaskKind, column: str, absent: str, tmp_path: Path
) -> None:
    loaded = data.load(written(tmp_path / kind, kind, *SPLITS[kind]), {})
    held = loaded.validation[column]
    names = pa.compute.list_flatten(held) if column == "tags" else held
    assert absent in loaded.schema.labels and absent not in names.to_pylist()
    assert set(names.to_pylist()) < set(loaded.schema.labels)


def test_pairs_without_a_label_are_left_out_and_counted(tmp_path: Path) -> None:
    loaded = data.load(written(tmp_path / "nli", "nli", *SPLITS["nli"]), {})
    assert (loaded.train.num_rows, loaded.validation.num_rows) == (4, 2)
    assert loaded.excluded["no label"] == 3
    assert set(loaded.schema.labels) == {"0", "1", "2"}


def test_similarities_are_clipped_to_the_range_of_the_data_set(
    texts: dict[str, TextEncoder], tmp_path: Path
) -> None:
    dataset = written(tmp_path / "sts", "sts", *SPLITS["sts"])
    scores = walked(dataset, texts["cased"], outputs=lambda _: torch.tensor([-7.0, 9.0, 3.0]))
    assert list(scores.predictions) == [0.0, 5.0, 3.0]
    wider = dataset.model_copy(update={"label_range": (-8.0, 8.0)})
    scores = walked(wider, texts["cased"], outputs=lambda _: torch.tensor([-7.0, 9.0, 3.0]))
    assert list(scores.predictions) == [-7.0, 8.0, 3.0]


@pytest.mark.parametrize("kind", ["classification", "nli", "sts", "qa", "retrieval"])
def test_lengths_are_the_training_splits_95th_percentile_under_each_tokenizer(
    kind: TaskKind, texts: dict[str, TextEncoder], tmp_path: Path
) -> None:
    rows = [_longer(kind, 1 + row % 20) for row in range(40)]
    first = written(tmp_path / "short", kind, rows, rows[:4])
    second = written(tmp_path / "long", kind, rows, [_longer(kind, 40)] * 4)
    found = {}
    for name in ("cased", "bytes"):
        loaded = [data.load(each, {}) for each in (first, second)]
        of_both = [TASKS[kind].lengths(each.train, texts[name], SETTINGS) for each in loaded]
        assert of_both[0] == of_both[1] == _expected(kind, rows, texts[name])
        found[name] = of_both[0]
    assert found["cased"] != found["bytes"]


COLUMNS: Mapping[TaskKind, tuple[tuple[str, ...], ...]] = {
    "classification": (("text",),),
    "nli": (("premise", "hypothesis"),),
    "sts": (("sentence1", "sentence2"),),
    "qa": (("question", "context"),),
    "retrieval": (("anchor",), ("positive",)),
}


def _longer(kind: TaskKind, words: int) -> dict[str, Any]:
    """A row whose texts have so many words."""
    row = dict(SPLITS[kind][0][words % 2])
    for column in (each for group in COLUMNS[kind] for each in group):
        row[column] = " ".join([row[column], *([LINES[0].split()[1]] * words)])
    return row


def _expected(kind: TaskKind, rows: list[dict[str, Any]], text: TextEncoder) -> dict[str, int]:
    names = COLUMNS[kind] if kind == "retrieval" else ("text",)
    expected = {}
    for group, name in zip(COLUMNS[kind], names, strict=True):
        tokens = [len(text.tokenizer(*(row[column] for column in group)).input_ids) for row in rows]
        eights = -(-np.percentile(tokens, 95) // 8)
        expected[name if isinstance(name, str) else name[0]] = min(text.limit, int(8 * eights))
    return expected


def test_tagging_takes_the_models_limit(texts: dict[str, TextEncoder], tmp_path: Path) -> None:
    loaded = data.load(written(tmp_path / "pos", "pos", *SPLITS["pos"]), {})
    for text in texts.values():
        assert TASKS["pos"].lengths(loaded.train, text, SETTINGS) == {"text": 128}


def test_words_are_scored_with_the_published_figure_beside(
    texts: dict[str, TextEncoder], tmp_path: Path
) -> None:
    dataset = written(tmp_path / "pos", "pos", *SPLITS["pos"])

    def all_nouns(encoded: Encoded) -> torch.Tensor:
        labels = data.load(dataset, {}).schema.labels
        outputs = torch.zeros(*PERFECT["pos"](encoded).shape[:2], len(labels))
        outputs[..., labels.index("NOUN")] = 1
        return outputs

    scores = walked(dataset, texts["cased"], outputs=all_nouns)
    # Six of eight words are nouns. As chunks, gold has four and the prediction two: neighbouring
    # nouns are one chunk, so that only the second sentence's is right.
    assert scores.headline == pytest.approx(100 * 6 / 8)
    assert scores.metrics["published_f1"] == pytest.approx(100 * 2 * 1 / (2 + 4))


@pytest.mark.parametrize("split", ["validation", "test"])
def test_all_positives_of_a_query_are_relevant_in_validation_as_in_test(
    split: str, texts: dict[str, TextEncoder], tmp_path: Path
) -> None:
    dataset = written(tmp_path / "retrieval", "retrieval", *SPLITS["retrieval"])
    scores = walked(dataset, texts["cased"], split)
    # Two queries over three documents: the first has two relevant ones, the second one.
    assert [list(each) for each in scores.predictions] == [[1, 2], [1]]
    assert list(scores.references) == [2, 1]


def test_turkish_casing_keeps_the_answers_where_they_are(
    texts: dict[str, TextEncoder], tmp_path: Path
) -> None:
    dataset = written(tmp_path / "qa", "qa", *SPLITS["qa"])
    scores = walked(dataset, texts["uncased"])
    assert [each["prediction_text"] for each in scores.predictions] == list(ANSWERS[1:])


def test_an_answer_that_is_cut_is_wrong_and_not_absent(
    texts: dict[str, TextEncoder], tmp_path: Path
) -> None:
    loaded = data.load(written(tmp_path / "qa", "qa", *SPLITS["qa"]), {})
    task, text = TASKS["qa"], texts["cased"]
    encoded = task.encode(
        loaded.validation, text, loaded.schema, {"text": 24}, SETTINGS, training=False
    )
    outputs = torch.zeros(task.rows(encoded), 24, 2)
    decoded = task.decode(outputs, encoded, np.arange(task.rows(encoded)))
    scores = task.score(decoded, encoded, loaded.schema)
    assert scores.headline < 100 and len(scores.references) == 3
    assert sequences.ragged(encoded, "input_ids").lengths.max() <= 24

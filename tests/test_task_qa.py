"""Answers as spans: windows, offsets, the best span."""

from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from rows import CONTEXT, ROWS
from tiny import tiny_model

from tabiflow.data import Schema
from tabiflow.encoding import Encoded, TextEncoder, text_encoder
from tabiflow.protocol import Protocol
from tabiflow.spec import Model
from tabiflow.tasks import TASKS, Scores, qa, sequences

QA = TASKS["qa"]
LONG = " ".join([CONTEXT] * 3)


@pytest.fixture(scope="module", params=["bert", "modernbert"])
def text(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TextEncoder:
    folder = tiny_model(tmp_path_factory.mktemp(request.param), request.param, context=512)
    return text_encoder(Model(name=request.param, path=folder, lowercase="turkish"))


def question(context: str, start: int, answer: str, asked: str = "Nerede ?") -> dict[str, object]:
    answers = {"text": [answer], "answer_start": [start]}
    return {"id": "1", "context": context, "question": asked, "answers": answers}


def encode(
    rows: list[dict[str, object]],
    text: TextEncoder,
    *,
    length: int = 64,
    doc_stride: int | None = None,
    training: bool = False,
) -> Encoded:
    settings = Protocol(doc_stride=doc_stride)
    table = pa.Table.from_pylist(rows)
    return QA.encode(table, text, Schema(), {"text": length}, settings, training=training)


def perfect(encoded: Encoded) -> Scores:
    """The scores of a model that is sure of the target where a window holds it."""
    rows = np.arange(QA.rows(encoded))
    batch = QA.collate(encoded, rows)
    outputs = torch.zeros(*batch["input_ids"].shape, 2)
    held = batch["target"][:, 0] >= 0
    for side in (0, 1):
        outputs[held, batch["target"][held, side], side] = 9.0
    return QA.score(QA.decode(outputs, encoded, rows), encoded, Schema())


@pytest.mark.parametrize(
    "answer", ["İç Anadolu", "IĞDIR", "'da", "İSTANBUL", "ğ", "Iğdır", "“alıntı”"]
)
def test_offsets_stay_true_for_an_uncased_model(answer: str, text: TextEncoder) -> None:
    context = f"İİİ IIIı İstanbul {answer} ve Ankara ."
    rows = [question(context, context.index(answer, 18), answer)]
    scores = perfect(encode(rows, text, length=256))
    assert scores.metrics["exact_match"] == 100
    assert answer in scores.predictions[0]["prediction_text"]


@pytest.mark.parametrize("doc_stride", [None, 8])
def test_an_answer_that_is_cut_is_left_out_of_training_and_counted(
    doc_stride: int | None, text: TextEncoder
) -> None:
    rows = [question(LONG, LONG.rindex("Ankara"), "Ankara"), question(LONG, 0, "Mustafa")]
    encoded = encode(rows, text, doc_stride=doc_stride, training=True)
    excluded = 1 if doc_stride is None else 0
    assert sequences.flat(encoded, "excluded").tolist() == [excluded]
    assert (sequences.flat(encoded, "target") >= 0).all()


def test_every_question_is_scored_even_if_its_answer_is_cut(text: TextEncoder) -> None:
    rows = [question(LONG, LONG.rindex("Ankara"), "Ankara"), question(LONG, 0, "Mustafa")]
    encoded = encode(rows, text)
    scores = perfect(encoded)
    assert len(scores.predictions) == QA.rows(encoded) == 2
    assert scores.metrics["exact_match"] == 50
    assert QA.weight(encoded, np.array([0])) == 0


def test_a_question_without_a_target_has_no_loss(text: TextEncoder) -> None:
    encoded = encode([question(LONG, LONG.rindex("Ankara"), "Ankara")], text)
    batch = QA.collate(encoded, np.array([0]))
    outputs = torch.randn(*batch["input_ids"].shape, 2)
    assert QA.loss(outputs, batch, Protocol()).item() == 0


def test_windows_overlap_and_cover_the_context(text: TextEncoder) -> None:
    rows = [question(LONG, LONG.rindex("Ankara"), "Ankara")]
    encoded = encode(rows, text, doc_stride=8)
    starts, ends = (sequences.ragged(encoded, name) for name in ("starts", "ends"))
    assert QA.rows(encoded) > 1
    assert starts.row(0)[0] == 0
    assert ends.row(len(ends) - 1)[-1] == len(LONG)
    for window in range(1, len(starts)):
        assert starts.row(window)[0] == starts.row(window - 1)[-8]
    assert perfect(encoded).headline == 100


@pytest.mark.parametrize("length", [8, 16, 64])
@pytest.mark.parametrize("doc_stride", [None, 4, 500])
def test_a_question_longer_than_the_length_is_cut_last(
    length: int, doc_stride: int | None, text: TextEncoder
) -> None:
    rows = [question(CONTEXT, 0, "Mustafa", asked="Ürün neden uyuyor 🙂 " * 50)]
    encoded = encode(rows, text, length=length, doc_stride=doc_stride)
    ids = sequences.ragged(encoded, "input_ids")
    assert ids.lengths.max() <= length
    assert sequences.ragged(encoded, "starts").lengths.min() >= 1
    asked = {tuple(ids.row(row)[:3]) for row in range(len(ids))}
    assert len(asked) == 1


def test_a_question_that_fits_is_whole(text: TextEncoder) -> None:
    asked = "Kedi neden uyuyor ?"
    encoded = encode([question(LONG, 0, "Mustafa", asked=asked)], text)
    whole = text.tokenizer(text.prepare(asked))["input_ids"]
    assert sequences.ragged(encoded, "input_ids").row(0)[: len(whole)].tolist() == whole


@pytest.mark.parametrize("context", ["", " "])
def test_a_context_without_tokens_has_an_empty_answer(context: str, text: TextEncoder) -> None:
    encoded = encode([question(context, 0, "x"), question(CONTEXT, 0, "Mustafa")], text, length=128)
    scores = perfect(encoded)
    assert scores.predictions[0]["prediction_text"] == ""
    assert scores.metrics["exact_match"] == 50


def test_predictions_and_references_are_what_squad_takes(text: TextEncoder) -> None:
    scores = perfect(encode(ROWS["qa"].to_pylist(), text, length=128))
    assert scores.predictions[1] == {"id": "1", "prediction_text": "Selanik'te"}
    answers = {"text": ["Selanik'te"], "answer_start": [CONTEXT.index("Selanik")]}
    assert scores.references[1] == {"id": "1", "answers": answers}


def _best_by_search(logits: np.ndarray, first: int, count: int) -> tuple[int, int]:
    spans = product(range(first, first + count), repeat=2)
    allowed = [(i, j) for i, j in spans if i <= j < i + qa.LONGEST_ANSWER]
    return max(allowed, key=lambda span: logits[span[0], 0] + logits[span[1], 1])


@pytest.mark.parametrize("seed", range(5))
def test_the_best_span_is_the_best_of_all(seed: int, text: TextEncoder) -> None:
    encoded = encode(ROWS["qa"].to_pylist(), text, length=128)
    rows = np.arange(QA.rows(encoded))
    shape = QA.collate(encoded, rows)["input_ids"].shape
    outputs = torch.randn(*shape, 2, generator=torch.Generator().manual_seed(seed)) * 5
    for row, span in zip(rows, QA.decode(outputs, encoded, rows), strict=True):
        starts, ends = (sequences.ragged(encoded, name).row(row) for name in ("starts", "ends"))
        first = int(sequences.flat(encoded, "first")[row])
        i, j = _best_by_search(outputs[row].numpy(), first, len(starts))
        assert (span.start, span.end) == (starts[i - first], ends[j - first])


def test_the_best_window_answers_the_question(text: TextEncoder) -> None:
    encoded = encode([question(LONG, 0, "Mustafa")], text, doc_stride=8)
    spans = [qa.Span(float(index == 1), index, index + 5) for index in range(QA.rows(encoded))]
    answer = QA.score(spans, encoded, Schema()).predictions[0]["prediction_text"]
    assert answer == LONG[1:6].strip()


def test_all_gold_answers_count(text: TextEncoder) -> None:
    row = question(CONTEXT, 0, "Mustafa Kemal Atatürk")
    row["answers"] = {"text": ["yanlış", "Mustafa"], "answer_start": [0, 0]}
    encoded = encode([row], text, length=128)
    assert QA.score([qa.Span(1.0, 0, 7)], encoded, Schema()).headline == 100


def test_the_length_is_that_of_question_and_context(text: TextEncoder, tmp_path: Path) -> None:
    pairs = (ROWS["qa"][name].to_pylist() for name in ("question", "context"))
    longest = max(
        len(text.tokenizer(text.prepare(a), text.prepare(b))["input_ids"])
        for a, b in zip(*pairs, strict=True)
    )
    length = QA.lengths(ROWS["qa"], text, Protocol())["text"]
    assert length % 8 == 0
    assert longest - 8 <= length < longest + 8

"""Words and their tags: what the model does not see is wrong, not absent."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from tiny import tiny_model

from tabiflow.data import Schema
from tabiflow.encoding import Encoded, TextEncoder, text_encoder
from tabiflow.errors import DataError
from tabiflow.protocol import Protocol
from tabiflow.spec import Model, TaskKind
from tabiflow.tasks import TASKS, Scores, sequences

SCHEMA = Schema(("O", "B-PER", "I-PER", "B-LOC"))
PARTS = Schema(("NOUN", "VERB", "_"))
SETTINGS = Protocol()


@pytest.fixture(scope="module", params=["bert", "modernbert"])
def text(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TextEncoder:
    folder = tiny_model(tmp_path_factory.mktemp(request.param), request.param)
    return text_encoder(Model(name=request.param, path=folder))


def encode(
    kind: TaskKind, sentences: list[list[tuple[str, str]]], schema: Schema, text: TextEncoder
) -> Encoded:
    words = [[word for word, _ in sentence] for sentence in sentences]
    tags = [[tag for _, tag in sentence] for sentence in sentences]
    strings = pa.list_(pa.string())
    rows = pa.table({"tokens": pa.array(words, strings), "tags": pa.array(tags, strings)})
    return TASKS[kind].encode(rows, text, schema, {"text": 12}, SETTINGS, training=False)


def perfect(kind: TaskKind, encoded: Encoded, schema: Schema) -> Scores:
    """The scores of a model that is right wherever it sees a word."""
    rows = np.arange(TASKS[kind].rows(encoded))
    labels = TASKS[kind].collate(encoded, rows)["labels"].clamp(min=0)
    outputs = torch.eye(len(schema.labels))[labels]
    return TASKS[kind].score(TASKS[kind].decode(outputs, encoded, rows), encoded, schema)


LONG = [("uyuyor", "VERB")] * 3 + [("Ankaralılaştıramadıklarımızdan", "NOUN")] + [("ve", "_")] * 4


def test_words_beyond_the_length_are_wrong_parts_of_speech(text: TextEncoder) -> None:
    encoded = encode("pos", [LONG, [("Kedi", "NOUN")]], PARTS, text)
    seen = int(TASKS["pos"].weight(encoded, np.array([0])))
    assert 0 < seen <= 4
    assert perfect("pos", encoded, PARTS).headline == pytest.approx(100 * (seen + 1) / 9)


def test_entities_beyond_the_length_are_missed(text: TextEncoder) -> None:
    filler = [("Ankaralılaştıramadıklarımızdan", "O")]
    sentence = [("Ahmet", "B-PER"), *filler, ("Ankara", "B-LOC"), ("Ayşe", "B-PER")]
    scores = perfect("ner", encode("ner", [sentence], SCHEMA, text), SCHEMA)
    assert scores.predictions == [["B-PER", "O", "O", "O"]]
    assert scores.metrics["precision"] == 100
    assert scores.metrics["recall"] == pytest.approx(100 / 3)


@pytest.mark.parametrize("nothing", ["", "\u200b", " "])
def test_a_word_without_tokens_shifts_no_other_word(nothing: str, text: TextEncoder) -> None:
    sentence = [("Kedi", "NOUN"), (nothing, "_"), ("uyuyor", "VERB")]
    encoded = encode("pos", [sentence], PARTS, text)
    seen = int(TASKS["pos"].weight(encoded, np.array([0])))
    scores = perfect("pos", encoded, PARTS)
    assert [scores.predictions[0][0], scores.predictions[0][2]] == ["NOUN", "VERB"]
    assert scores.headline == pytest.approx(100 * seen / 3)


def test_a_word_without_tokens_is_wrong(tmp_path: Path) -> None:
    wordpiece = text_encoder(Model(name="m", path=tiny_model(tmp_path)))
    encoded = encode("pos", [[("\u200b", "_"), ("Kedi", "NOUN")]], PARTS, wordpiece)
    scores = perfect("pos", encoded, PARTS)
    assert scores.headline == 50
    assert scores.predictions == [["O", "NOUN"]]


def test_a_sentence_without_words_counts_nothing(text: TextEncoder) -> None:
    encoded = encode("pos", [[], [("Kedi", "NOUN")], []], PARTS, text)
    scores = perfect("pos", encoded, PARTS)
    assert scores.headline == 100
    assert [len(tags) for tags in scores.predictions] == [0, 1, 0]


def test_the_published_figure_stands_beside_the_words(text: TextEncoder) -> None:
    words = [("Kedi", "NOUN"), ("uyuyor", "VERB"), ("film", "NOUN"), ("kedi", "NOUN")]
    encoded = encode("pos", [words], PARTS, text)
    scores = TASKS["pos"].score([np.array([0, 1, 0, 1])], encoded, PARTS)
    # seqeval sees three gold chunks, the last of two words, and four predicted ones; two agree.
    assert scores.headline == 75
    assert scores.metrics["published_f1"] == pytest.approx(100 * 2 * 2 / (3 + 4))


def test_the_first_sub_token_carries_the_label(text: TextEncoder) -> None:
    encoded = encode("pos", [[("Kedi", "NOUN"), ("uyuyoruz", "VERB")]], PARTS, text)
    labels = sequences.ragged(encoded, "labels").row(0)
    words = text.tokenizer([["Kedi", "uyuyoruz"]], is_split_into_words=True).word_ids(0)
    assert labels[words.index(0)] == 0
    assert labels[words.index(1)] == 1
    assert (labels != sequences.IGNORED).sum() == 2


def test_tagging_takes_the_models_limit(text: TextEncoder) -> None:
    rows = pa.table({"tokens": [["Kedi"]], "tags": [["NOUN"]]})
    assert TASKS["pos"].lengths(rows, text, SETTINGS) == {"text": text.limit}


def test_entities_need_iob2_tags(text: TextEncoder) -> None:
    with pytest.raises(DataError, match="tag `PER` is not IOB2"):
        encode("ner", [[("Ahmet", "PER")]], Schema(("O", "PER")), text)


def test_no_entity_anywhere_is_an_unknown_score(text: TextEncoder) -> None:
    encoded = encode("ner", [[("Kedi", "O")]], SCHEMA, text)
    assert math.isnan(perfect("ner", encoded, SCHEMA).headline)

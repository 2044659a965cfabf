"""A tag for every word: entities in IOB2, parts of speech. The first sub-token speaks for its word.

A word that the model never sees, cut off at its limit or without a token of its own, is scored as
wrong: it stays in the gold tags and its prediction is missing. So is a word whose gold tag is a
bundle of features that training lacks: there is no such class to predict.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.nn import functional
from transformers import AutoModelForTokenClassification

from tabiflow import protocol
from tabiflow.data import Data, Schema
from tabiflow.encoding import Encoded, Ragged, TextEncoder, pad
from tabiflow.errors import DataError
from tabiflow.tasks import morphology, novelty, sequences
from tabiflow.tasks.base import Scores
from tabiflow.tasks.labels import positions
from tabiflow.tasks.metrics import (
    accuracy,
    chunk_f1,
    entity_scores,
    headline,
    sentence_exact,
    tag_scores,
)

MISSING = -1
"""The prediction for a word that has no token."""
UNLEARNT = sequences.IGNORED - 1
"""The target of a word whose tag is no class: it opens a word, and no loss counts it."""
OUTSIDE = "O"
_IOB2 = re.compile(r"O|[BI]-.+")
_CHUNK = 1000


class _Tagging(sequences.Sequences, ABC):
    @abstractmethod
    def score(self, decoded: Sequence[np.ndarray], encoded: Encoded, schema: Schema) -> Scores: ...

    def lengths(
        self, train: pa.Table, text: TextEncoder, settings: protocol.Protocol
    ) -> Mapping[str, int]:
        """The model's own limit: a percentile would turn words into wrong answers."""
        return {"text": sequences.fixed_length(text, settings) or text.limit}

    def encode(
        self,
        rows: pa.Table,
        text: TextEncoder,
        schema: Schema,
        lengths: Mapping[str, int],
        settings: protocol.Protocol,
        *,
        training: bool,
    ) -> Encoded:
        given = rows["tags"].to_pylist()
        foreign = _foreign(given, schema)
        tags = _tags(given, replace(schema, labels=(*schema.labels, *foreign)))
        sentences = [[text.prepare(word) for word in words] for words in rows["tokens"].to_pylist()]
        tokens, words = _tokenise(sentences, text, lengths["text"])
        return {
            **tokens,
            "pad_id": sequences.pad_id(text),
            "tags": tags,
            "words": _marked(words),
            "labels": _labels(words, tags, len(schema.labels)),
            **({"foreign": sequences.pack(foreign)} if foreign else {}),
        }

    def model(self, source: str, schema: Schema, loading: Mapping[str, Any]) -> torch.nn.Module:
        return sequences.pretrained(
            AutoModelForTokenClassification, source, loading, num_labels=len(schema.labels)
        )

    def collate(self, encoded: Encoded, rows: np.ndarray) -> dict[str, torch.Tensor]:
        labels = pad(sequences.ragged(encoded, "labels"), rows, sequences.IGNORED)
        targets = np.where(labels == UNLEARNT, sequences.IGNORED, labels)
        return {**sequences.model_inputs(encoded, rows), "labels": sequences.long(targets)}

    def weight(self, encoded: Encoded, rows: np.ndarray) -> float:
        """Words that carry a label."""
        return float((sequences.ragged(encoded, "labels").take(rows).values >= 0).sum())

    def forward(
        self, model: torch.nn.Module, batch: Mapping[str, torch.Tensor], settings: protocol.Protocol
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits: torch.Tensor = sequences.run(model, batch).logits
        return self.loss(logits, batch, settings), logits

    def loss(
        self,
        outputs: torch.Tensor,
        batch: Mapping[str, torch.Tensor],
        settings: protocol.Protocol,
    ) -> torch.Tensor:
        return functional.cross_entropy(
            outputs.float().flatten(0, 1), batch["labels"].flatten(), reduction="sum"
        )

    def decode(
        self, outputs: torch.Tensor, encoded: Encoded, rows: np.ndarray
    ) -> Sequence[np.ndarray]:
        """The position of a tag for every word, MISSING where the model saw none."""
        labels = pad(sequences.ragged(encoded, "labels"), rows, sequences.IGNORED)
        predicted = outputs.argmax(dim=-1).cpu().numpy()[labels != sequences.IGNORED]
        words = sequences.ragged(encoded, "words").take(rows)
        sizes = sequences.ragged(encoded, "tags").lengths[rows]
        tags = np.full(sizes.sum(), MISSING)
        tags[words.values + np.repeat(np.cumsum(sizes) - sizes, words.lengths)] = predicted
        return np.split(tags, np.cumsum(sizes)[:-1])

    def diagnose(
        self, scores: Scores, encoded: Encoded, rows: pa.Table, data: Data
    ) -> Mapping[str, float]:
        """Error rates over words, by what training has shown of them."""
        gold = list(chain.from_iterable(scores.references))
        told = self._told(scores, encoded)
        wrong = np.array([tag != said for tag, said in zip(gold, told, strict=True)], dtype=bool)
        return novelty.error_rates(novelty.words(rows), novelty.words(data.train), wrong)

    def _told(self, scores: Scores, encoded: Encoded) -> list[str | None]:
        """What is predicted of each word; None of one that counts as wrong whatever it is."""
        return list(chain.from_iterable(scores.predictions))


class EntityTagging(_Tagging):
    """Entities; of a word that was not seen, the entity is missed."""

    def encode(
        self,
        rows: pa.Table,
        text: TextEncoder,
        schema: Schema,
        lengths: Mapping[str, int],
        settings: protocol.Protocol,
        *,
        training: bool,
    ) -> Encoded:
        foreign = [label for label in schema.labels if not _IOB2.fullmatch(label)]
        if foreign:
            raise DataError(f"tag `{foreign[0]}` is not IOB2", hint="write O, B-<type>, I-<type>")
        return super().encode(rows, text, schema, lengths, settings, training=training)

    def score(self, decoded: Sequence[np.ndarray], encoded: Encoded, schema: Schema) -> Scores:
        gold, predicted = _gold(encoded, schema), _named(decoded, schema)
        return Scores(*headline(entity_scores(gold, predicted), "entity_f1"), predicted, gold)


class WordTagging(_Tagging):
    """Parts of speech: micro-F1 over words, which is accuracy where every word has one tag.

    Bundles of features are tags of that kind: then it is the accuracy of whole bundles.
    """

    def score(self, decoded: Sequence[np.ndarray], encoded: Encoded, schema: Schema) -> Scores:
        gold, predicted = _gold(encoded, schema), _named(decoded, schema)
        every = sequences.ragged(encoded, "tags").values
        words = np.concatenate([*decoded, np.zeros(0, dtype=np.int64)])
        seen = words != MISSING
        figures = {
            "precision": accuracy(every[seen], words[seen]),
            "recall": accuracy(every, words),
            "sentence_exact": sentence_exact(_sentences(encoded), decoded),
        }
        if schema.bundles:
            figures |= _bundle_scores(every, words, schema, gold, predicted)
        else:
            figures["published_f1"] = chunk_f1(gold, predicted)
        return Scores(accuracy(every, words), figures, predicted, gold)

    def diagnose(
        self, scores: Scores, encoded: Encoded, rows: pa.Table, data: Data
    ) -> Mapping[str, float]:
        """By novelty, and by tag or, of bundles, by feature."""
        gold = list(chain.from_iterable(scores.references))
        told, labels = self._told(scores, encoded), data.schema.labels
        if data.schema.bundles:
            apart = morphology.features_apart(morphology.counts(gold, told), labels)
        else:
            apart = tag_scores(gold, told, labels)
        return {**super().diagnose(scores, encoded, rows, data), **apart}

    def _told(self, scores: Scores, encoded: Encoded) -> list[str | None]:
        # The name of a missing prediction may be a tag's, too.
        tags, words = (sequences.ragged(encoded, name) for name in ("tags", "words"))
        seen = np.zeros(len(tags.values), dtype=bool)
        seen[words.values + np.repeat(tags.offsets[:-1], words.lengths)] = True
        named = super()._told(scores, encoded)
        return [tag if known else None for tag, known in zip(named, seen, strict=True)]


def _bundle_scores(
    every: np.ndarray,
    words: np.ndarray,
    schema: Schema,
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
) -> dict[str, float]:
    """Whole bundles and their features; the share of words that no prediction can get right."""
    pair = (list(chain.from_iterable(gold)), list(chain.from_iterable(predicted)))
    return {
        "exact_bundle": accuracy(every, words),
        "new_bundles": accuracy(every >= len(schema.labels), np.ones(len(every), dtype=bool)),
        **morphology.features_together(morphology.counts(*pair)),
    }


def _foreign(sentences: Sequence[Sequence[str]], schema: Schema) -> tuple[str, ...]:
    """Bundles that are no class; elsewhere the schema holds every tag."""
    if not schema.bundles:
        return ()
    return tuple(sorted(set(chain.from_iterable(sentences)) - set(schema.labels)))


def _tags(sentences: Sequence[Sequence[str]], schema: Schema) -> Ragged:
    flat = positions(list(chain.from_iterable(sentences)), schema)
    offsets = np.cumsum([0, *(len(tags) for tags in sentences)])
    return Ragged(flat, offsets)


def _tokenise(
    sentences: Sequence[Sequence[str]], text: TextEncoder, length: int
) -> tuple[dict[str, Ragged], Ragged]:
    """The model's inputs, and for each token the number of the word that it opens, else MISSING."""
    names = sequences.input_names(text)
    inputs: dict[str, list[np.ndarray]] = {name: [] for name in names}
    words: list[np.ndarray] = []
    for start in range(0, len(sentences), _CHUNK):
        chunk = text.tokenizer(
            list(sentences[start : start + _CHUNK]),
            is_split_into_words=True,
            truncation=True,
            max_length=length,
            return_token_type_ids=text.has_type_ids,
            verbose=False,
        )
        for name in names:
            inputs[name].extend(np.asarray(ids, dtype=np.int32) for ids in chunk[name])
        words.extend(_opened(chunk.word_ids(row)) for row in range(len(chunk["input_ids"])))
    return {name: Ragged.of(rows) for name, rows in inputs.items()}, Ragged.of(words)


def _opened(word_ids: Sequence[int | None]) -> np.ndarray:
    words = np.array([MISSING if word is None else word for word in word_ids], dtype=np.int32)
    opens = np.diff(words, prepend=MISSING) != 0
    return np.where(opens, words, MISSING)


def _marked(words: Ragged) -> Ragged:
    """The numbers of the words that have a token, in the order of their tokens."""
    seen = words.values != MISSING
    counts = np.concatenate([[0], np.cumsum(seen)])
    return Ragged(words.values[seen], counts[words.offsets])


def _labels(words: Ragged, tags: Ragged, classes: int) -> Ragged:
    """The tag of each word on the token that opens it."""
    labels = np.full(len(words.values), sequences.IGNORED, dtype=np.int32)
    seen = words.values != MISSING
    labels[seen] = tags.values[(words.values + np.repeat(tags.offsets[:-1], words.lengths))[seen]]
    labels[labels >= classes] = UNLEARNT
    return Ragged(labels, words.offsets)


def _gold(encoded: Encoded, schema: Schema) -> list[list[str]]:
    foreign: tuple[str, ...] = ()
    if "foreign" in encoded:
        packed = sequences.ragged(encoded, "foreign")
        foreign = tuple(sequences.unpack(packed, index) for index in range(len(packed)))
    return _named(_sentences(encoded), replace(schema, labels=(*schema.labels, *foreign)))


def _sentences(encoded: Encoded) -> list[np.ndarray]:
    tags = sequences.ragged(encoded, "tags")
    return [tags.row(index) for index in range(len(tags))]


def _named(sentences: Sequence[np.ndarray], schema: Schema) -> list[list[str]]:
    """A missing word's tag is `O`: no entity, and no part of speech."""
    names = [*schema.labels, OUTSIDE]
    return [[names[tag] for tag in tags] for tags in sentences]

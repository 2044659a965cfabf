"""The answer as a span of the context: cross-entropy over its ends, SQuAD's F1 and exact match.

The examples are windows: one a question, cut at the length, or overlapping ones where the sweep
sets `doc_stride`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch.nn import functional
from transformers import AutoModelForQuestionAnswering

from tabiflow import protocol
from tabiflow.data import Schema
from tabiflow.encoding import Encoded, Ragged, TextEncoder
from tabiflow.tasks import sequences
from tabiflow.tasks.base import Scores
from tabiflow.tasks.metrics import answer_scores, headline

LONGEST_ANSWER = 30
"""Tokens."""
_CHUNK = 250


class Span(NamedTuple):
    """The best span of a window."""

    score: float
    """Sum of the logits at its ends: comparable between the windows of a question."""
    start: int
    end: int
    """Characters of the context, the end not included; 0, 0 where the window holds no context."""


@dataclass(frozen=True)
class _Window:
    question: int
    input_ids: np.ndarray
    token_type_ids: np.ndarray
    first: int
    """The context's first token."""
    starts: np.ndarray
    ends: np.ndarray
    """[tokens of the context] Characters, the end not included."""

    def target(self, start: int, end: int) -> tuple[int, int] | None:
        """The tokens at the ends of these characters; None where the window does not hold them."""
        if not len(self.starts) or start < self.starts[0] or end > self.ends[-1] or start >= end:
            return None
        opening = int(np.searchsorted(self.ends, start, side="right"))
        closing = int(np.searchsorted(self.starts, end, side="left")) - 1
        return (self.first + opening, self.first + closing) if opening <= closing else None


class QuestionAnswering(sequences.Sequences):
    def lengths(
        self, train: pa.Table, text: TextEncoder, settings: protocol.Protocol
    ) -> Mapping[str, int]:
        texts = [sequences.prepared(train, column, text) for column in ("question", "context")]
        return {"text": sequences.sequence_length(text, settings, *texts)}

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
        answers = rows["answers"].to_pylist()
        kept: list[tuple[_Window, tuple[int, int]]] = []
        for window in _windows(rows, text, lengths["text"], settings.doc_stride):
            target = window.target(*_first_answer(answers[window.question]))
            if target is not None or not training:
                kept.append((window, target or (sequences.IGNORED, sequences.IGNORED)))
        windows = [window for window, _ in kept]
        targets = np.array([target for _, target in kept], dtype=np.int64).reshape(-1, 2)
        questions = np.array([window.question for window in windows], dtype=np.int64)
        return {
            **_inputs(windows, text),
            "pad_id": sequences.pad_id(text),
            "question": questions,
            "first": np.array([window.first for window in windows], dtype=np.int64),
            "starts": Ragged.of([window.starts for window in windows]),
            "ends": Ragged.of([window.ends for window in windows]),
            "target": targets,
            "excluded": np.array([len(rows) - len(np.unique(questions))]),
            # Scoring reads the answer from the context as it was written.
            "contexts": sequences.pack(rows["context"].to_pylist()),
            "answers": sequences.pack([json.dumps(each) for each in answers]),
            "ids": sequences.pack([str(each) for each in rows["id"].to_pylist()]),
        }

    def model(self, source: str, schema: Schema, loading: Mapping[str, Any]) -> torch.nn.Module:
        return sequences.pretrained(AutoModelForQuestionAnswering, source, loading, num_labels=2)

    def collate(self, encoded: Encoded, rows: np.ndarray) -> dict[str, torch.Tensor]:
        target = sequences.flat(encoded, "target")[rows]
        return {**sequences.model_inputs(encoded, rows), "target": sequences.long(target)}

    def weight(self, encoded: Encoded, rows: np.ndarray) -> float:
        """Windows that hold their answer: the others have no loss."""
        return float((sequences.flat(encoded, "target")[rows, 0] != sequences.IGNORED).sum())

    def forward(
        self, model: torch.nn.Module, batch: Mapping[str, torch.Tensor], settings: protocol.Protocol
    ) -> tuple[torch.Tensor, torch.Tensor]:
        found = sequences.run(model, batch)
        outputs = torch.stack([found.start_logits, found.end_logits], dim=-1)
        return self.loss(outputs, batch, settings), outputs

    def loss(
        self,
        outputs: torch.Tensor,
        batch: Mapping[str, torch.Tensor],
        settings: protocol.Protocol,
    ) -> torch.Tensor:
        """transformers lets padding compete with the answer, so its loss grows with a batch's
        longest row; here only real tokens do."""
        padding = batch["attention_mask"].unsqueeze(-1) == 0
        logits = outputs.float().masked_fill(padding, -torch.inf)
        return functional.cross_entropy(logits, batch["target"], reduction="sum") / 2

    def decode(self, outputs: torch.Tensor, encoded: Encoded, rows: np.ndarray) -> Sequence[Span]:
        starts = sequences.ragged(encoded, "starts").take(rows)
        ends = sequences.ragged(encoded, "ends").take(rows)
        first = torch.from_numpy(sequences.flat(encoded, "first")[rows])
        score, opening, closing = _best(outputs.float(), first, torch.from_numpy(starts.lengths))
        return [
            Span(score[row], int(starts.row(row)[opening[row]]), int(ends.row(row)[closing[row]]))
            if starts.lengths[row]
            else Span(-np.inf, 0, 0)
            for row in range(len(rows))
        ]

    def score(self, decoded: Sequence[Span], encoded: Encoded, schema: Schema) -> Scores:
        contexts, ids = sequences.ragged(encoded, "contexts"), sequences.ragged(encoded, "ids")
        golds = sequences.ragged(encoded, "answers")
        best = _best_of_windows(decoded, sequences.flat(encoded, "question"))
        answers = [json.loads(sequences.unpack(golds, index)) for index in range(len(golds))]
        texts = [
            sequences.unpack(contexts, index)[best[index].start : best[index].end].strip()
            if index in best
            else ""
            for index in range(len(golds))
        ]
        names = [sequences.unpack(ids, index) for index in range(len(ids))]
        return Scores(
            *headline(answer_scores([each["text"] for each in answers], texts), "span_f1"),
            [{"id": n, "prediction_text": t} for n, t in zip(names, texts, strict=True)],
            [{"id": n, "answers": a} for n, a in zip(names, answers, strict=True)],
        )


def _first_answer(answers: Mapping[str, Sequence[Any]]) -> tuple[int, int]:
    """Its characters without white space around them; 0, 0 where there is none."""
    if not answers["text"]:
        return 0, 0
    text, start = answers["text"][0], answers["answer_start"][0]
    start += len(text) - len(text.lstrip())
    return start, start + len(text.strip())


def _windows(
    rows: pa.Table, text: TextEncoder, length: int, doc_stride: int | None
) -> Iterator[_Window]:
    """The question whole and the context cut, window by window.

    A question that leaves no room for the context is itself cut, to the least that leaves a token,
    or with `doc_stride` one token more than the windows share.
    """
    backend = text.tokenizer.backend_tokenizer
    special = backend.num_special_tokens_to_add(is_pair=True)
    stride = min(doc_stride or 0, (length - special) // 2)
    room = length - special - stride - 1
    for start in range(0, len(rows), _CHUNK):
        part = rows.slice(start, _CHUNK)
        backend.no_truncation()
        backend.no_padding()
        asked = sequences.prepared(part, "question", text)
        questions = [
            _cut(backend, question, encoding, room)
            for question, encoding in zip(asked, _encoded(backend, asked), strict=True)
        ]
        contexts = _encoded(backend, sequences.prepared(part, "context", text))
        backend.enable_truncation(length, stride=stride, strategy="only_second")
        for index, (question, context) in enumerate(zip(questions, contexts, strict=True)):
            pair = backend.post_process(question, context)
            overflowing = pair.overflowing if doc_stride else []
            for encoding in (pair, *overflowing):
                yield _window(start + index, encoding)


def _encoded(backend: Any, texts: Sequence[str]) -> Sequence[Any]:
    return list(backend.encode_batch(texts, add_special_tokens=False))


def _cut(backend: Any, text: str, encoding: Any, room: int) -> Any:
    """The encoding of the text's beginning: `Encoding.truncate` would keep the rest as windows."""
    while len(encoding) > room:
        text = text[: encoding.offsets[room][0]]
        encoding = backend.encode(text, add_special_tokens=False)
    return encoding


def _window(question: int, encoding: Any) -> _Window:
    of_context = np.flatnonzero(np.array([each == 1 for each in encoding.sequence_ids], dtype=bool))
    first = int(of_context[0]) if len(of_context) else 0
    offsets = np.array(encoding.offsets, dtype=np.int32)[first : first + len(of_context)]
    return _Window(
        question,
        np.array(encoding.ids, dtype=np.int32),
        np.array(encoding.type_ids, dtype=np.int32),
        first,
        offsets[:, 0],
        offsets[:, 1],
    )


def _inputs(windows: Sequence[_Window], text: TextEncoder) -> dict[str, Ragged]:
    names = sequences.input_names(text)
    return {name: Ragged.of([getattr(each, name) for each in windows]) for name in names}


def _best(
    logits: torch.Tensor, first: torch.Tensor, count: torch.Tensor
) -> tuple[list[float], list[int], list[int]]:
    """Score and ends of the best span of each row, of all that lie in its context and are short
    enough; the ends count from the context's first token."""
    token = torch.arange(logits.shape[1])
    first, last = first.unsqueeze(1), (first + count).unsqueeze(1)
    outside = ((token < first) | (token >= last)).to(logits.device)
    start, end = (logits[..., side].masked_fill(outside, -torch.inf) for side in (0, 1))
    reach = functional.pad(end, (0, LONGEST_ANSWER - 1), value=-torch.inf)
    spans = start.unsqueeze(-1) + reach.unfold(1, LONGEST_ANSWER, 1)
    score, place = spans.flatten(1).max(dim=1)
    opening = place.cpu() // LONGEST_ANSWER - first.squeeze(1)
    closing = opening + place.cpu() % LONGEST_ANSWER
    return score.tolist(), opening.tolist(), closing.tolist()


def _best_of_windows(spans: Sequence[Span], questions: np.ndarray) -> dict[int, Span]:
    """The first of the best where windows agree."""
    best: dict[int, Span] = {}
    for span, question in zip(spans, questions.tolist(), strict=True):
        if question not in best or span.score > best[question].score:
            best[question] = span
    return best

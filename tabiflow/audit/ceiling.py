"""What a perfect model could score on an encoded split: the gold answers, as far as they are seen.

The length that trials use cuts words off sentences and answers off contexts. The gold answers go
through the task's own scoring, so that the ceiling is the score that such a model would get.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tabiflow.data import Schema
from tabiflow.encoding import Encoded
from tabiflow.spec import TaskKind
from tabiflow.tasks import TASKS
from tabiflow.tasks.qa import LONGEST_ANSWER, Span
from tabiflow.tasks.sequences import flat, ragged, unpack
from tabiflow.tasks.tagging import MISSING


@dataclass(frozen=True)
class Ceiling:
    score: float
    """0 to 100; NaN where the metric is undefined for the gold answers themselves."""
    unseen: int
    """Words without a token or with a bundle that training lacks; answers that no span of a window
    can give whole."""
    of: int
    """All words or questions."""


def ceiling(task: TaskKind, encoded: Encoded, schema: Schema) -> Ceiling:
    """For tagging and question answering: no length cuts the answers of the other kinds."""
    found = _questions(encoded) if task == "qa" else _words(encoded, schema)
    score = TASKS[task].score(found.answers, encoded, schema).headline
    return Ceiling(score, found.unseen, found.of)


class _Perfect(NamedTuple):
    answers: Sequence[Any]
    """As the task's `decode` gives them."""
    unseen: int
    of: int


def _words(encoded: Encoded, schema: Schema) -> _Perfect:
    gold, words = ragged(encoded, "tags"), ragged(encoded, "words")
    decoded = []
    for row in range(len(gold)):
        tags = np.full(len(gold.row(row)), MISSING)
        tags[words.row(row)] = gold.row(row)[words.row(row)]
        # Bundles that training lacks are no class that could be said.
        tags[tags >= len(schema.labels)] = MISSING
        decoded.append(tags)
    unseen = sum(int((tags == MISSING).sum()) for tags in decoded)
    return _Perfect(decoded, unseen, len(gold.values))


def _questions(encoded: Encoded) -> _Perfect:
    """Of every window the largest part of a gold answer that it holds."""
    questions, golds = flat(encoded, "question"), ragged(encoded, "answers")
    spans: list[Span] = []
    whole: set[int] = set()
    for window, question in enumerate(questions.tolist()):
        answers = json.loads(unpack(golds, question))
        starts, ends = (ragged(encoded, name).row(window) for name in ("starts", "ends"))
        best = max((_seen(gold, starts, ends) for gold in _golds(answers)), default=_NOTHING)
        spans.append(best)
        if best.score >= 1:
            whole.add(question)
    return _Perfect(spans, len(golds) - len(whole), len(golds))


_NOTHING = Span(-math.inf, 0, 0)


def _golds(answers: Mapping[str, Any]) -> list[tuple[int, int]]:
    """The characters of each gold answer, without white space around them."""
    return [
        (start + len(text) - len(text.lstrip()), start + len(text.rstrip()))
        for text, start in zip(answers["text"], answers["answer_start"], strict=True)
        if text.strip()
    ]


def _seen(gold: tuple[int, int], starts: np.ndarray, ends: np.ndarray) -> Span:
    """Scored with the share of the gold characters that the window's best span holds."""
    start, end = gold
    first = int(np.searchsorted(ends, start, side="right"))
    last = min(int(np.searchsorted(starts, end, side="left")), first + LONGEST_ANSWER) - 1
    if first > last:
        return _NOTHING
    held = min(end, int(ends[last])) - max(start, int(starts[first]))
    return Span(held / (end - start), int(starts[first]), int(ends[last]))

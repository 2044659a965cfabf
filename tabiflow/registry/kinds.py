"""What each kind of task needs of a data set and how its score is called; `tasks/` has the code."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tabiflow.spec import TaskKind


@dataclass(frozen=True)
class Kind:
    columns: tuple[str, ...]
    """The columns that every split must have, under these names or renamed by the row."""
    metric: str
    """The headline metric, on a scale of 0 to 100."""
    item: tuple[Any, Any]
    """A prediction and its reference as additional metrics are given them, by example."""
    version: int = 1
    """Raised when what the task means changes, so that old trials are not taken for new ones."""


_ANSWER = {"id": "1", "prediction_text": "Ankara"}
_ANSWERS = {"id": "1", "answers": {"text": ["Ankara"], "answer_start": [0]}}
KINDS: Mapping[TaskKind, Kind] = {
    "classification": Kind(("text", "label"), "macro_f1", (1, 0)),
    "nli": Kind(("premise", "hypothesis", "label"), "macro_f1", (1, 0)),
    "ner": Kind(("tokens", "tags"), "entity_f1", (["B-LOC"], ["O"])),
    "pos": Kind(("tokens", "tags"), "word_f1", (["NOUN"], ["VERB"])),
    "sts": Kind(("sentence1", "sentence2", "score"), "pearson", (2.5, 3.2)),
    "qa": Kind(("context", "question", "answers"), "span_f1", (_ANSWER, _ANSWERS)),
    "retrieval": Kind(("anchor", "positive"), "ndcg_at_10", ([3], 1)),
}

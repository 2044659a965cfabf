"""What each kind of task needs of a data set and how its score is called; `tasks/` has the code."""

from collections.abc import Mapping
from dataclasses import dataclass

from tabiflow.spec import TaskKind


@dataclass(frozen=True)
class Kind:
    columns: tuple[str, ...]
    """The columns that every split must have, under these names or renamed by the row."""
    metric: str
    """The headline metric, on a scale of 0 to 100."""
    version: int = 1
    """Raised when what the task means changes, so that old trials are not taken for new ones."""


KINDS: Mapping[TaskKind, Kind] = {
    "classification": Kind(("text", "label"), "macro_f1"),
    "nli": Kind(("premise", "hypothesis", "label"), "macro_f1"),
    "ner": Kind(("tokens", "tags"), "entity_f1"),
    "pos": Kind(("tokens", "tags"), "word_f1"),
    "sts": Kind(("sentence1", "sentence2", "score"), "pearson"),
    "qa": Kind(("context", "question", "answers"), "span_f1"),
    "retrieval": Kind(("anchor", "positive"), "ndcg_at_10"),
}

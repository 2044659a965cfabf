"""What each kind of task means: how rows become tokens, what is minimised, how it is scored.

One file a family, one entry in `TASKS` a kind. The training loop knows tasks only by `Task`.
"""

from collections.abc import Mapping

from tabiflow.spec import TaskKind
from tabiflow.tasks.base import Scores, Task
from tabiflow.tasks.classification import Classification
from tabiflow.tasks.qa import QuestionAnswering
from tabiflow.tasks.regression import Regression
from tabiflow.tasks.retrieval import Retrieval
from tabiflow.tasks.tagging import EntityTagging, WordTagging

__all__ = ["TASKS", "Scores", "Task"]

TASKS: Mapping[TaskKind, Task] = {
    "classification": Classification("text"),
    "nli": Classification("premise", "hypothesis"),
    "ner": EntityTagging(),
    "pos": WordTagging(),
    "sts": Regression("sentence1", "sentence2"),
    "qa": QuestionAnswering(),
    "retrieval": Retrieval(),
}

"""What a user writes: sweeps, search spaces, and rows for models and data sets.

Reads YAML into frozen values and says `file:line` for every mistake. Does not know which names
the registry holds, nor what any of it means for training.
"""

from tabiflow.spec.benchmark import BenchmarkTask, Generation
from tabiflow.spec.evaluation import Evaluation
from tabiflow.spec.generator import Generator, Replicas
from tabiflow.spec.rows import Dataset, Model, TaskKind
from tabiflow.spec.space import Choice, Range, Space, configured, label, space_file
from tabiflow.spec.sweep import Sweep
from tabiflow.spec.written import Keeping, Limits, Pruning

__all__ = [
    "BenchmarkTask",
    "Choice",
    "Dataset",
    "Evaluation",
    "Generation",
    "Generator",
    "Keeping",
    "Limits",
    "Model",
    "Pruning",
    "Range",
    "Replicas",
    "Space",
    "Sweep",
    "TaskKind",
    "configured",
    "label",
    "space_file",
]

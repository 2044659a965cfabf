"""Which engine serves a model, from which folder, and what it is told. Imports no Ray."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tabiflow import hub
from tabiflow.registry import UNPINNED
from tabiflow.spec import Generator
from tabiflow.spec.generator import EngineName


@dataclass(frozen=True)
class Start:
    generator: Generator
    folder: Path
    dtype: str
    gpus: float
    """Share of a GPU of each process of a replica."""

    @property
    def scaling(self) -> dict[str, Any]:
        """How many replicas, as a deployment's options say it."""
        scale = self.generator.scale
        if scale.min == scale.max:
            return {"num_replicas": scale.min}
        bounds = {"min_replicas": scale.min, "max_replicas": scale.max}
        return {"autoscaling_config": bounds | {"target_ongoing_requests": scale.ongoing}}


def engine_of(generator: Generator) -> EngineName:
    """The row's, or vLLM where it is installed."""
    if generator.engine is not None:
        return generator.engine
    return "vllm" if find_spec("vllm") is not None else "embedded"


def located(generator: Generator, *, weights: bool = True) -> tuple[Path, str]:
    """The model's folder and its hub commit; without `weights` good for its tokenizer only."""
    if generator.path is not None:
        return generator.path, ""
    if generator.build is not None:
        # Imported here: only the example needs what builds models.
        from tabiflow.example.models import built_model

        return built_model(generator.build), ""
    repository = hub.Repository("model", generator.hub or "", generator.revision or UNPINNED)
    commit = hub.commit(repository)
    code = generator.trust_remote_code
    folder = hub.model_folder(repository, commit, code=code, weights=weights)
    return folder, commit

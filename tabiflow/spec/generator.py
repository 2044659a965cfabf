"""Rows for models that write text, and how they are served."""

from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from tabiflow.protocol import Frozen
from tabiflow.spec.rows import Origin

EngineName = Literal["vllm", "embedded"]


class Replicas(Frozen):
    """How many copies of a model answer; between the two, as many as the requests need."""

    min: PositiveInt = 1
    max: PositiveInt = 1
    ongoing: PositiveInt = 32
    """Requests that each works on before another is started."""

    @model_validator(mode="after")
    def _ordered(self) -> "Replicas":
        if self.max < self.min:
            raise ValueError("`max` replicas are fewer than `min`")
        return self


class Generator(Origin):
    """One row for a model that writes text, and how it is served."""

    title: str = ""
    """The name in published tables."""
    engine: EngineName | None = None
    """None is vLLM where it can be imported, or the embedded engine."""
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Of the weights as they are served; None is bfloat16 on a GPU, float32 without one."""
    max_length: PositiveInt | None = None
    """Tokens of prompt and answer; None is the model's own limit."""
    trust_remote_code: bool = False
    tokenizer: Literal["own", "server"] = "own"
    """`server`: with `--endpoint`, the server's /tokenize is asked, text by text."""
    replicas: PositiveInt | Replicas = 1
    tensor_parallel: PositiveInt = 1
    """GPUs, or processes, that share the weights of one replica. vLLM's alone."""
    cpus: PositiveFloat = 1
    """Of each process of a replica."""
    gpus: NonNegativeFloat | None = None
    """Share of a GPU of each process; None is one where the cluster has any."""
    concurrency: PositiveInt = 32
    """Requests at a time, for each replica at most."""
    arguments: dict[str, Any] = Field({})
    """Further arguments of vLLM's engine, by its names."""
    notes: str = ""

    @property
    def scale(self) -> Replicas:
        if isinstance(self.replicas, Replicas):
            return self.replicas
        return Replicas(min=self.replicas, max=self.replicas)

    @property
    def identity(self) -> dict[str, Any]:
        """What changes results; how many answer, and on what, is not in it."""
        serving = ("engine", "tokenizer", "replicas", "tensor_parallel", "cpus", "gpus")
        return self._identity("title", "concurrency", "arguments", "notes", *serving)

"""Rows for models and data sets, as the registry holds them and as a sweep may write them.

Knows what a row may say and which of it changes results; not which rows there are.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from tabiflow.protocol import Frozen

TaskKind = Literal["classification", "nli", "ner", "pos", "sts", "qa", "retrieval"]
Name = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
HUB_ID = re.compile(r"([A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*\Z")
Entry = TypeVar("Entry")


def distinct(values: tuple[Entry, ...]) -> tuple[Entry, ...]:
    for value, times in Counter(values).items():
        if times > 1:
            raise ValueError(f"{value} stands there {times} times")
    return values


def _hub_id(value: str) -> str:
    """The libraries behind would take anything else for a folder of this machine."""
    if not HUB_ID.match(value):
        raise ValueError(f"`hub` is an id such as `owner/name`, not {value!r}")
    return value


class Origin(Frozen):
    """Where a model or a data set comes from: exactly one of hub, path and build."""

    name: Name
    hub: Annotated[str, AfterValidator(_hub_id)] | None = None
    """Hub id, `owner/name`."""
    path: Path | None = None
    """A local folder; relative to the sweep file."""
    build: Name | None = None
    """The name of a recipe inside tabiflow that makes it; for the embedded example."""
    revision: str | None = None
    """A hub commit; of something local, the hash of its bytes, filled in when it is resolved."""
    tags: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_origin(self) -> "Origin":
        if sum(origin is not None for origin in (self.hub, self.path, self.build)) != 1:
            raise ValueError(f"`{self.name}` needs one of `path` and `hub`, and not both")
        return self

    def _identity(self, *presentation: str) -> dict[str, Any]:
        """Fields that change results and differ from their defaults."""
        where = {"name", "path", "tags", *presentation}
        return self.model_dump(mode="json", exclude_defaults=True, exclude=where)


class Model(Origin):
    """One row for an encoder."""

    title: str = ""
    """The name in published tables."""
    parameters: PositiveInt | None = None
    lowercase: Literal["turkish"] | None = None
    """How text is lower-cased before the tokenizer; None leaves it alone."""
    context: PositiveInt | None = None
    """Most tokens the model takes; None reads the model's own configuration."""
    add_prefix_space: bool = False
    """Needed by byte-level RoBERTa tokenizers to take words one by one."""
    trust_remote_code: bool = False
    """Runs Python code from the hub. Off unless a row asks for it; recorded with every trial."""
    cpus: PositiveFloat | None = None
    gpus: NonNegativeFloat | None = None
    """Share of a GPU a trial takes; None is one where the cluster has any."""
    notes: str = ""

    @property
    def identity(self) -> dict[str, Any]:
        return self._identity("title", "parameters", "cpus", "gpus", "notes")


class Dataset(Origin):
    """One row for a data set."""

    task: TaskKind
    title: str = ""
    config: str | None = None
    """The hub data set's configuration."""
    columns: dict[str, str] = Field({})
    """The task's column -> the file's column, where they differ."""
    labels: Annotated[tuple[str | int, ...], AfterValidator(distinct)] = ()
    """The label schema, in order. Empty: the union of the labels that the splits hold."""
    label_names: tuple[str, ...] = ()
    """What integer labels mean, where the files hold numbers; for people only."""
    label_range: tuple[float, float] | None = None
    """Similarity: the smallest and largest gold score; predictions are clipped to it."""
    bundles: bool = False
    """Parts of speech: tags are whole bundles of features (`Case=Nom|Number=Sing`), an open set.
    The schema is training's; a bundle that training lacks is never predicted and counts as wrong.
    """
    files_of: Name | None = None
    """The data set whose folder in `TABIFLOW_DATA` is this one's, too; None is its own name."""
    category: str = ""
    """Where its score is averaged; empty is the task's kind."""
    metric: str = ""
    """The published metric's name; for people only."""
    sizes: dict[str, int] = Field({})
    """Published rows of each split; `test` is the weight in the category's average."""
    licence: str = ""
    redistribution: str = ""
    processing: str = ""
    deviation: str = ""
    """How its released splits depart from the rule of TabiBERT section 4.2; for people only."""
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _ordered(self) -> "Dataset":
        if self.label_range is not None and not self.label_range[0] < self.label_range[1]:
            raise ValueError(f"`{self.name}`: `label_range` is [low, high] with low < high")
        if self.bundles and (self.task != "pos" or self.labels):
            raise ValueError(f"`{self.name}`: `bundles` are for `task: pos`, without `labels`")
        return self

    @property
    def group(self) -> str:
        return self.category or self.task

    @property
    def identity(self) -> dict[str, Any]:
        return self._identity(
            "title",
            "label_names",
            "files_of",
            "category",
            "metric",
            "sizes",
            "licence",
            "redistribution",
            "processing",
            "deviation",
            "notes",
        )

"""The keys of a sweep file, each with its type and default.

Checks one key at a time; what keys mean together is read in `sweep`.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Tag,
)

from tabiflow.protocol import Frozen, Protocol
from tabiflow.spec.rows import Dataset, Model, Name, distinct

# numpy takes no other seeds.
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1), AfterValidator(distinct)]
Keeping = Literal["auto", "epoch", "never"]


class Limit(Frozen):
    """Rows kept of each split, taken by a seeded shuffle; for trials at small cost."""

    train: PositiveInt | None = None
    validation: PositiveInt | None = None
    test: PositiveInt | None = None


class Limits(Frozen):
    """When to stop trying."""

    retries: int = Field(2, ge=0)
    """Attempts after the first, for trials lost to the environment or to a node."""
    hours: PositiveFloat | None = None
    """No trial starts after this long; running ones finish."""
    trial_hours: PositiveFloat | None = None
    """A trial that takes longer fails as `timeout`."""
    failures: int | None = Field(None, ge=0)
    """No trial starts after more failed trials than this; None goes on."""


class Confirm(Frozen):
    seeds: Seeds = (25,)
    fixed_epochs: bool = False
    """Train for as many epochs as the winner has recorded, the schedule squeezed into them and
    without early stopping, as TabiBench's released code does."""


class Pruning(Frozen):
    scheduler: Literal["asha"] = "asha"
    grace_period: PositiveInt = 1
    """Epochs that every trial gets."""
    reduction_factor: int = Field(3, ge=2)


class Rehearse(Frozen):
    """How a rehearsed trial behaves; it has no model and its score is made up."""

    seconds: NonNegativeFloat = 0.0
    """Wall time of an epoch."""
    failing: float = Field(0.0, ge=0, le=1)
    """Share of trials that fail with a made-up bug."""
    diverging: float = Field(0.0, ge=0, le=1)
    """Share of trials whose made-up loss turns NaN."""
    faulty: float = Field(0.0, ge=0, le=1)
    """Share of trials that meet a full disk in their first attempt."""
    lost: float = Field(0.0, ge=0, le=1)
    """Share of trials whose process dies in their first attempt."""
    crowded: float = Field(0.0, ge=0, le=1)
    """Share of trials that run out of memory in their first attempt."""
    oversized: float = Field(0.0, ge=0, le=1)
    """Share of trials that run out of memory in every attempt."""


def _named(value: Any) -> str | None:
    if isinstance(value, str):
        return "name"
    return "row" if isinstance(value, dict | Model | Dataset) else None


_NAME_OR_ROW = Discriminator(
    _named,
    custom_error_type="entry",
    custom_error_message="must be a name or a mapping of keys to values",
)


def _scheduler(value: Any) -> Any:
    return {"scheduler": value} if isinstance(value, str) else value


class WrittenSearch(Frozen):
    datasets: tuple[
        Annotated[Annotated[str, Tag("name")] | Annotated[Dataset, Tag("row")], _NAME_OR_ROW],
        ...,
    ] = Field(min_length=1)
    space: str | dict[str, Any]
    samples: PositiveInt | None = None


class WrittenSweep(Frozen):
    name: Name
    models: tuple[
        Annotated[Annotated[str, Tag("name")] | Annotated[Model, Tag("row")], _NAME_OR_ROW],
        ...,
    ] = Field(min_length=1)
    search: tuple[WrittenSearch, ...] = Field(min_length=1)
    seeds: Seeds = (25,)
    confirm: Confirm = Confirm()
    protocol: Protocol = Protocol()
    limit: Limit = Limit()
    limits: Limits = Limits()
    pruning: Annotated[Pruning, BeforeValidator(_scheduler)] | None = None
    metrics: tuple[str, ...] = ()
    allow_hub_metrics: bool = False
    """Metrics from the hub run its code, so they need this."""
    runner: Literal["finetune", "rehearse"] = "finetune"
    rehearse: Rehearse = Rehearse()
    storage: str | None = Field(None, min_length=1)
    """Where checkpoints go: a folder that all nodes share, or a bucket's URL. None is below
    `.tabiflow`, which serves one machine."""
    checkpoint: Keeping = "auto"
    """When a running trial is written down: after epochs that were worth it, all, or none."""
    cpus: PositiveFloat = 1
    """CPU cores of a trial, unless its model's row says otherwise."""
    gpus: NonNegativeFloat | None = None

"""The frozen values that travel between plan, engine, ledger and report.

A `Trial` is one training and evaluation, identified by what it means; an `Outcome` is what became
of it. Nothing here knows files, MLflow, Ray or torch.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, NamedTuple

from tabiflow.protocol import Params, Protocol

Split = Literal["validation", "test"]
FailureKind = Literal[
    "oom", "node_lost", "environment", "timeout", "diverged", "data", "model", "bug"
]
HOLDING: frozenset[str] = frozenset({"data", "model", "bug"})
"""Kinds that would only repeat: the same error in two trials holds the rest of their cell."""


class Status(StrEnum):
    """The state of a trial's latest attempt, as the ledger's tag `status` says it."""

    RUNNING = "running"
    DONE = "done"
    PRUNED = "pruned"
    FAILED = "failed"
    KILLED = "killed"
    """Interrupted from outside: its driver died or was stopped. `sweep` runs it again."""
    RETRIED = "retried"
    """An attempt that a later one has replaced."""


GENERATING = "generate"
"""The runner of trials that train nothing."""


class Cell(NamedTuple):
    """Where trials compete: one model on one data set, by name."""

    model: str
    dataset: str


@dataclass(frozen=True)
class Trial:
    """One training and evaluation. Two trials with the same meaning have the same id."""

    model: str
    dataset: str
    model_identity: Mapping[str, Any]
    """Revision and every field of the model's row that changes results."""
    dataset_identity: Mapping[str, Any]
    """The same of the data set's row, its task's version included."""
    params: Params | None
    """None for a trial that trains nothing: a task asked of a generative model."""
    protocol: Protocol = field(default_factory=Protocol)
    seed: int = 25
    split: Split = "validation"
    limit: Mapping[str, int] = field(default_factory=dict)
    """Rows kept of each split; empty keeps all."""
    runner: Mapping[str, Any] = field(default_factory=dict)
    """What runs it, where that changes the result; empty is real fine-tuning."""

    @property
    def cell(self) -> Cell:
        return Cell(self.model, self.dataset)

    @property
    def trained(self) -> Params:
        """`params` of a trial that trains."""
        assert self.params is not None, f"{self.id} trains nothing"
        return self.params

    @cached_property
    def meaning(self) -> dict[str, Any]:
        """What the id is taken over: plain JSON, defaults left out."""
        whole = {
            "model": self.model,
            "model_identity": dict(self.model_identity),
            "dataset": self.dataset,
            "dataset_identity": dict(self.dataset_identity),
            "params": self.params.model_dump(mode="json") if self.params else {},
            "protocol": self.protocol.changed(),
            "seed": self.seed,
            "split": self.split,
            "limit": dict(self.limit),
            "runner": dict(self.runner),
        }
        return {key: value for key, value in whole.items() if value != {}}

    @cached_property
    def id(self) -> str:
        """12 hex digits over the meaning. In it: all that changes the result. Not in it: sweep
        name, resources, tracking address, hardware."""
        return digest(self.meaning)

    @cached_property
    def slot(self) -> str:
        """Like `id`, without revisions: a mended model's trial has the slot of the broken one's."""
        return digest(_without(self.meaning, "model_identity", "dataset_identity"))

    @cached_property
    def configuration(self) -> str:
        """Like `id`, without the seed: trials that differ in luck only."""
        return digest(_without(self.meaning, "seed"))

    @property
    def settings(self) -> dict[str, Any]:
        """Hyper-parameters, changed protocol fields and the seed, flat, for people to compare."""
        if self.params is None:
            return _flat({**self.runner, **self.dataset_identity})
        return {
            **self.params.model_dump(mode="json"),
            **_flat(self.protocol.changed()),
            "seed": self.seed,
        }

    def point(self, names: Iterable[str]) -> dict[str, Any]:
        """The named settings, defaults included."""
        where = dict.fromkeys(Params.model_fields, self.params) | {"seed": self}
        return {name: getattr(where.get(name, self.protocol), name) for name in names}

    def to_json(self) -> str:
        return canonical(self.meaning)

    @classmethod
    def from_json(cls, text: str) -> "Trial":
        """The inverse of `to_json`. Raises ValueError when the record is not ours."""
        try:
            meaning = {"model_identity": {}, "dataset_identity": {}, **json.loads(text)}
            trained = meaning.get("runner", {}).get("name") != GENERATING
            params = Params(**meaning.pop("params")) if trained else None
            # A record without a version is of the first, whatever the default is by now.
            protocol = Protocol(**{"version": 1, **meaning.pop("protocol", {})})
            return cls(params=params, protocol=protocol, **meaning)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the record of a trial: {text[:60]}") from error


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def canonical(value: Any) -> str:
    """JSON in which the order of keys never matters."""
    return _encode(value)


def digest(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:12]


def _without(meaning: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in meaning.items() if key not in keys}


def _flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in fields.items():
        flat |= _flat(value, f"{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


@dataclass(frozen=True)
class Epoch:
    """One epoch's report from a runner. Unknown figures are NaN, never 0."""

    epoch: int
    """1, 2, ..."""
    score: float
    """The headline metric on validation, 0 to 100 (correlations too: Pearson x 100)."""
    loss: float
    """Validation loss."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Everything else: `train_loss`, `train_seconds`, `validation_seconds`, secondary metrics."""


@dataclass(frozen=True)
class Result:
    """What a runner returns when a trial ends well."""

    epoch: int
    """The kept epoch, whose weights and score count."""
    score: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Validation metrics at the kept epoch; test metrics too (`test_...`) for a confirming one."""
    test: float = math.nan
    """The headline metric on test; NaN unless the trial confirms."""
    n: int = 0
    """Test items scored; 0 unless the trial confirms."""
    facts: Mapping[str, str | int | float] = field(default_factory=dict)
    """Worth a tag: attention, device, max_length, excluded rows, peak memory, resolved commits."""
    predictions: tuple[Mapping[str, Any], ...] = ()
    """One record a test item, kept as an artifact; empty unless the trial confirms."""


@dataclass(frozen=True)
class Outcome:
    """What the ledger knows of a trial: its latest attempt."""

    trial: Trial
    status: Status
    attempt: int
    run_id: str
    sweep: str
    """The experiment that holds the run; another sweep may reuse it."""
    metric: str = ""
    score: float = math.nan
    epoch: int = 0
    test: float = math.nan
    n: int = 0
    kind: FailureKind | None = None
    error: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    started: float = math.nan
    """Seconds since 1970."""
    seconds: float = math.nan

    @property
    def finished(self) -> bool:
        return self.status in (Status.DONE, Status.PRUNED)


@dataclass(frozen=True)
class Opening:
    """A recorded look at a test split: written down before the split is read."""

    trial: str
    """The confirming trial's id: an opening belongs to it alone."""
    who: str
    at: str
    """ISO 8601, UTC."""
    code: str
    """Commit of the code, `-` when unknown."""
    reason: str = ""
    """Why it was opened again for another winner; empty for the first opening of a cell."""


@dataclass(frozen=True)
class Hold:
    """Why the rest of a cell is not run."""

    cell: Cell
    kind: FailureKind
    error: str
    model_identity: str
    dataset_identity: str
    """Digests of what was broken: a mended model or data set is not held by them."""

    def covers(self, trial: Trial) -> bool:
        return (
            self.cell == trial.cell
            and self.model_identity == digest(trial.model_identity)
            and self.dataset_identity == digest(trial.dataset_identity)
        )

    @classmethod
    def of(cls, trial: Trial, kind: FailureKind, error: str) -> "Hold":
        return cls(
            trial.cell, kind, error, digest(trial.model_identity), digest(trial.dataset_identity)
        )

    def to_json(self) -> str:
        return canonical(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Hold":
        fields = json.loads(text)
        return cls(**{**fields, "cell": Cell(*fields["cell"])})

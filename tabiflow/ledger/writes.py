"""What the writer asks of a record: runs to be made, and what each run gets. Knows no MLflow."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from tabiflow.ledger import redacted
from tabiflow.trial import Status

log = logging.getLogger(__name__)

HOPELESS = frozenset(
    {"INVALID_PARAMETER_VALUE", "INVALID_STATE", "RESOURCE_DOES_NOT_EXIST", "PERMISSION_DENIED"}
)
"""MLflow's codes for what will not be better the next time: a run deleted in its pages, say."""


@dataclass(frozen=True)
class NewRun:
    name: str
    at: int
    """Milliseconds since 1970."""
    tags: Mapping[str, str]


@dataclass(frozen=True)
class Point:
    """A metric's value as MLflow keeps it: the same point logged again changes nothing."""

    name: str
    value: float
    at: int
    step: int


@dataclass(frozen=True)
class End:
    status: Status
    at: int
    predictions: Sequence[Mapping[str, Any]] = ()


@dataclass
class Writes:
    """What one run gets in one go."""

    points: list[Point] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    end: End | None = None
    """Written before the tags, which say it too: a run that does is never looked after again."""


class Sink(Protocol):
    """A way into MLflow. Both raise what may be better the next time; `write` may be repeated."""

    def create(self, experiment: str, new: Sequence[NewRun]) -> list[str]:
        """The ids of the runs made, in order. When it raises, some of them may have been made."""

    def write(self, writes: Mapping[str, Writes]) -> None:
        """By run id. A run that takes nothing any more is left as it is, and logged."""


@contextmanager
def left_alone(run: str) -> Iterator[None]:
    """A run that takes nothing any more does not stop the others."""
    try:
        yield
    except Exception as error:
        if not hopeless(error):
            raise
        log.warning("run %s is left as it is: %s", run, redacted(str(error)))


def hopeless(error: Exception) -> bool:
    """Whether a write would fail the next time, too."""
    if isinstance(error, PermissionError):  # artifacts of a server that does not proxy them
        return True
    return getattr(error, "error_code", None) in HOPELESS

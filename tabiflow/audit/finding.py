"""A finding of the audit: how bad, of what, and what to do. Of what cannot be had or read, too."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from tabiflow.errors import TabiflowError
from tabiflow.spec import Dataset

Severity = Literal["serious", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("serious", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """Serious where scores would not mean what they say, a warning where they mean less, a note
    where it is good to know."""

    severity: Severity
    code: str
    """Stable, for tools."""
    dataset: str
    message: str
    advice: str
    model: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)


serious, warning, note = (partial(Finding, severity) for severity in SEVERITIES)


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The serious ones first."""
    return tuple(sorted(findings, key=lambda each: SEVERITIES.index(each.severity)))


def faults(dataset: Dataset, errors: Mapping[str, TabiflowError]) -> Iterator[Finding]:
    """What keeps splits from being read; one finding a fault, however many splits it spoils."""
    by_message: dict[str, list[str]] = {}
    for split, error in errors.items():
        by_message.setdefault(str(error), []).append(split)
    advice = "mend it; what could not be read was not audited"
    for message, splits in by_message.items():
        yield serious("unreadable", dataset.name, message, advice, numbers={"splits": splits})


_UNSEEN = "nothing of it was audited: mend what the message says, or offer a local copy"


def no_data(dataset: Dataset, error: TabiflowError) -> Finding:
    return serious("data-unavailable", dataset.name, str(error), _UNSEEN)


def no_model(model: str, error: TabiflowError) -> Finding:
    return serious("model-unavailable", "", str(error), _UNSEEN, model)


def refused(dataset: Dataset, model: str, error: TabiflowError) -> Finding:
    """By the task, for one model."""
    advice = "trials of this cell would fail like this"
    return serious("refused", dataset.name, str(error), advice, model)

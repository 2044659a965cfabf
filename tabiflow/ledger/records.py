"""Trials and endings -> tags, params and metrics, and back to outcomes. Pure; knows no MLflow.

The names here are the ledger's format: what people filter by in MLflow's pages.
"""

import logging
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from tabiflow.ledger import Ending, Failure, Killed, Pruned, redacted
from tabiflow.trial import Cell, Epoch, FailureKind, Opening, Outcome, Result, Status, Trial

log = logging.getLogger(__name__)

CHUNK = 7000
"""Characters of one tag; MLflow cuts longer values without a word at 8,000."""
ERROR_LENGTH = 1000
PREDICTIONS = "predictions.json"
"""The artifact of a run that has looked at test."""
OPENING_TAGS = ("opened_by", "opened_at", "opened_code", "reopen_reason")
STATUS_OF: Mapping[type[Ending], Status] = {
    Result: Status.DONE,
    Failure: Status.FAILED,
    Killed: Status.KILLED,
    Pruned: Status.PRUNED,
}
RUN_STATUS: Mapping[Status, str] = {
    Status.DONE: "FINISHED",
    Status.PRUNED: "FINISHED",
    Status.FAILED: "FAILED",
    Status.KILLED: "KILLED",
}
"""MLflow's own word for how a run ended."""


@dataclass(frozen=True)
class Run:
    """A run as it stands in MLflow, whichever way it was read."""

    run_id: str
    sweep: str
    """The experiment's name."""
    started: float
    """Seconds since 1970; NaN when unknown."""
    ended: float
    tags: Mapping[str, str]
    metrics: Mapping[str, float]
    """The latest value of each."""


def cell_name(cell: Cell) -> str:
    return f"{cell.model}/{cell.dataset}"


def trial_tags(trial: Trial, attempt: int) -> dict[str, str]:
    return {
        "kind": "trial",
        "trial": trial.id,
        "slot": trial.slot,
        "attempt": str(attempt),
        "status": Status.RUNNING.value,
        "model": trial.model,
        "dataset": trial.dataset,
        "task": str(trial.dataset_identity.get("task", "")),
        "split": trial.split,
        **_chunked("identity", trial.to_json()),
    }


def opening_tags(opening: Opening) -> dict[str, str]:
    values = (opening.who, opening.at, opening.code, opening.reason)
    return dict(zip(OPENING_TAGS, values, strict=True))


def params(trial: Trial) -> dict[str, str]:
    return {name: str(value) for name, value in trial.settings.items()}


def epoch_metrics(epoch: Epoch) -> dict[str, float]:
    """Every name says its split: what is not of training is of validation."""
    own = {"validation_score": epoch.score, "validation_loss": epoch.loss}
    return {
        _metric_name(_of_validation(name)): value for name, value in epoch.metrics.items()
    } | own


def ending_metrics(ending: Ending) -> dict[str, float]:
    """`kept_...`: validation at the kept epoch. `test_...`: only where the test split was read."""
    if isinstance(ending, Pruned):
        return {"kept_score": ending.score, "kept_epoch": ending.epoch}
    if not isinstance(ending, Result):
        return {}
    kept = {"kept_score": ending.score, "kept_epoch": float(ending.epoch)}
    for name, value in ending.metrics.items():
        if name.startswith("test_"):
            kept[_metric_name(name)] = value
        elif not name.startswith("train_"):
            kept[_metric_name("kept_" + name.removeprefix("validation_"))] = value
    if ending.n:
        kept |= {"test_score": ending.test, "test_items": float(ending.n)}
    return kept


def ending_tags(ending: Ending) -> dict[str, str]:
    tags = {"status": STATUS_OF[type(ending)].value}
    if isinstance(ending, Result):
        tags |= {name: redacted(str(value)) for name, value in ending.facts.items()}
    elif isinstance(ending, Failure):
        tags |= {"failure_kind": ending.kind, "error": _one_line(ending.error)}
        tags |= {"traceback": redacted(ending.traceback)} if ending.traceback else {}
    elif isinstance(ending, Killed):
        tags["cause"] = _one_line(ending.cause)
    return tags


def outcome(run: Run) -> Outcome | None:
    """None, and a line in the log, for a run that is not a record of ours."""
    tags, metrics = run.tags, run.metrics
    try:
        trial = Trial.from_json(_joined("identity", tags))
        status, attempt = Status(tags["status"]), int(tags["attempt"])
    except (ValueError, KeyError) as error:
        log.warning("run %s of %s was left out: %s", run.run_id, run.sweep, _one_line(repr(error)))
        return None
    return Outcome(
        trial=trial,
        status=status,
        attempt=attempt,
        run_id=run.run_id,
        sweep=run.sweep,
        metric=tags.get("metric", ""),
        score=metrics.get("kept_score", math.nan),
        epoch=int(metrics.get("kept_epoch", 0)),
        test=metrics.get("test_score", math.nan),
        n=int(metrics.get("test_items", 0)),
        kind=cast(FailureKind | None, tags.get("failure_kind")),
        error=tags.get("error", tags.get("cause", "")),
        metrics=_kept_metrics(metrics),
        tags={name: tags[name] for name in tags if not name.startswith("identity")},
        started=run.started,
        seconds=run.ended - run.started,
    )


def latest(runs: Iterable[Run]) -> dict[str, Outcome]:
    """By trial id. A finished attempt is the trial's outcome whatever came before or after it."""
    known: dict[str, list[Outcome]] = {}
    for each in map(outcome, runs):
        if each is not None:
            known.setdefault(each.trial.id, []).append(each)
    return {trial: _decisive(attempts) for trial, attempts in known.items()}


def openings(runs: Iterable[Run]) -> dict[str, Opening]:
    """By trial id; the first time one of its attempts was allowed to look."""
    first: dict[str, Opening] = {}
    for run in runs:
        trial, opening = run.tags.get("trial", ""), _opening(run.tags)
        if opening and (trial not in first or opening.at < first[trial].at):
            first[trial] = opening
    return first


def _opening(tags: Mapping[str, str]) -> Opening | None:
    if "opened_at" not in tags:
        return None
    who, at, code, reason = (tags.get(name, "") for name in OPENING_TAGS)
    return Opening(trial=tags.get("trial", ""), who=who, at=at, code=code, reason=reason)


def _decisive(attempts: list[Outcome]) -> Outcome:
    chosen = max(
        attempts,
        key=lambda each: (each.status is Status.DONE, each.finished, each.attempt, each.started),
    )
    opened = [each.tags for each in attempts if "opened_at" in each.tags]
    if not opened:
        return chosen
    # A trial that is tried again was opened once: when its first attempt was.
    first = min(opened, key=lambda tags: tags["opened_at"])
    return replace(chosen, tags={**chosen.tags, **{name: first[name] for name in OPENING_TAGS}})


def _kept_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    own = {"kept_score", "kept_epoch", "test_score", "test_items"}
    return {
        "validation_" + name.removeprefix("kept_") if name.startswith("kept_") else name: value
        for name, value in metrics.items()
        if name.startswith(("kept_", "test_")) and name not in own
    }


def _of_validation(name: str) -> str:
    return name if name.startswith(("train_", "validation_")) else f"validation_{name}"


def _metric_name(name: str) -> str:
    """MLflow takes letters, digits and a few signs."""
    return re.sub(r"[^\w\-. :/]", "_", name)


def _one_line(text: str) -> str:
    return redacted(" ".join(text.split()))[:ERROR_LENGTH]


def _chunked(name: str, text: str) -> dict[str, str]:
    chunks = [text[start : start + CHUNK] for start in range(0, len(text), CHUNK)]
    return {name if index == 0 else f"{name}.{index}": each for index, each in enumerate(chunks)}


def _joined(name: str, tags: Mapping[str, str]) -> str:
    text, index = tags[name], 1
    while f"{name}.{index}" in tags:
        text, index = text + tags[f"{name}.{index}"], index + 1
    return text

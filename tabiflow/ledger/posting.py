"""Writes over MLflow's REST API: three requests a run, several runs at a time."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tabiflow.ledger.records import RUN_STATUS
from tabiflow.ledger.rest import Rest, at_once
from tabiflow.ledger.tracking import Tracking
from tabiflow.ledger.writes import NewRun, Point, Writes, left_alone

POINTS = 900
"""Of one request: MLflow takes 1,000 metrics, params and tags together."""


class Posting:
    """`Sink` of a server."""

    def __init__(self, tracking: Tracking) -> None:
        self._tracking, self._rest = tracking, Rest(tracking.uri)

    def create(self, experiment: str, new: Sequence[NewRun]) -> list[str]:
        return at_once(lambda each: self._create(experiment, each), new)

    def write(self, writes: Mapping[str, Writes]) -> None:
        at_once(lambda each: self._write(*each), list(writes.items()))

    def _create(self, experiment: str, new: NewRun) -> str:
        asked: dict[str, Any] = {
            "experiment_id": experiment,
            "user_id": "unknown",
            "run_name": new.name,
        }
        asked |= {"start_time": new.at, "tags": _pairs(new.tags)}
        made = self._rest.ask("POST", "runs/create", asked)
        return str(made["run"]["info"]["run_id"])

    def _write(self, run: str, writes: Writes) -> None:
        with left_alone(run):
            if writes.end is not None:
                self._tracking.attach(run, writes.end)
                status = RUN_STATUS[writes.end.status]
                asked = {"run_id": run, "status": status, "end_time": writes.end.at}
                self._rest.ask("POST", "runs/update", asked)
            points = [_metric(each) for each in writes.points]
            while len(points) > POINTS:
                self._log(run, metrics=points[:POINTS])
                points = points[POINTS:]
            self._log(run, metrics=points, params=_pairs(writes.params), tags=_pairs(writes.tags))

    def _log(self, run: str, **batch: list[dict[str, Any]]) -> None:
        self._rest.ask("POST", "runs/log-batch", {"run_id": run, **batch})


def _pairs(of: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in of.items()]


def _metric(point: Point) -> dict[str, Any]:
    value = point.value if math.isfinite(point.value) else _word(point.value)
    return {"key": point.name, "value": value, "timestamp": point.at, "step": point.step}


def _word(value: float) -> str:
    """JSON has no number for it; this is what Protocol Buffers call it."""
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"

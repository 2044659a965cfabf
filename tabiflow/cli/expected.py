"""The forecast of `tabiflow plan` as text and data: hours, disk, the share of a GPU that would do.

What is not known before trials have finished is a dash, in data null.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tabiflow import ledger
from tabiflow.board import duration, shown
from tabiflow.forecast import INTERVAL, Forecast, Range, forecast
from tabiflow.packing import Fit, fits
from tabiflow.plan import Plan
from tabiflow.spent import last_workers
from tabiflow.trial import Outcome


@dataclass(frozen=True)
class Expected:
    forecast: Forecast
    disk: float
    """Bytes of the ledger when everything is recorded; NaN of a server, whose disk is its own."""
    packing: tuple[Fit, ...]

    @classmethod
    def of(cls, plan: Plan, workers: int | None) -> "Expected":
        outcomes = [outcome for cell in plan.cells for outcome in cell.outcomes.values()]
        told = forecast(plan, workers or last_workers(outcomes) or 1)
        return cls(told, _disk(plan, outcomes), tuple(fits(outcomes)))

    def content(self) -> dict[str, Any]:
        told = self.forecast
        return {
            "learned_from": {"trials": told.trials, "cells": told.cells},
            "interval": INTERVAL,
            "device_hours": {
                "spent": told.spent / 3600,
                "left": _hours(told.left),
                "total": _hours(told.total),
            },
            "workers": told.workers,
            "wall_hours": _hours(told.wall),
            "disk_mb": self.disk / 2**20,
            "gpu_shares": [
                {
                    "model": each.model,
                    "device": each.device,
                    "peak_memory_mb": each.peak_mb,
                    "device_memory_mb": each.memory_mb,
                    "share": each.share,
                }
                for each in self.packing
            ],
        }

    def lines(self) -> Iterator[str]:
        told = self.forecast
        learned = f"{told.trials} finished trials in {told.cells} cells"
        yield f"\nforecast from {learned} ({INTERVAL:.0%} interval):"
        yield f"  device time left   {_told(told.left)}"
        yield f"  device time in all {_told(told.total)}, {duration(told.spent)} of it spent"
        yield f"  wall time left     {_told(told.wall)} with {told.workers} workers"
        yield f"  disk of the ledger {shown(self.disk / 2**20, '.1f')} MB in the end"
        for each in self.packing:
            used = f"at most {each.peak_mb:,.0f} of {each.memory_mb:,.0f} MB of {each.device}"
            yield f"  {each.model}: {used}; `gpus: {each.share:.3g}` would fit"


def _hours(seconds: Range) -> dict[str, float]:
    return {name: each / 3600 for name, each in seconds._asdict().items()}


def _told(seconds: Range) -> str:
    if math.isnan(seconds.middle):
        return "–"
    return f"{duration(seconds.middle)} ({duration(seconds.low)} to {duration(seconds.high)})"


def _disk(plan: Plan, outcomes: list[Outcome]) -> float:
    """In proportion to what the plan's trials have taken so far."""
    file = ledger.sqlite_file(ledger.address())
    if file is None or not file.is_file() or not outcomes:
        return math.nan
    return file.stat().st_size / len(outcomes) * plan.counts["distinct"]

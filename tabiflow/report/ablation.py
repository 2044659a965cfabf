"""What a change of the protocol does: winners trained under it, beside themselves without it.

Of a sweep of winners that sets fields of the protocol, such as TabiBERT's context ablation (A.2).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tabiflow.plan import CellPlan, Plan
from tabiflow.report.items import drawn, paired
from tabiflow.report.scores import Evidence, Scored, read_items
from tabiflow.statistics import Comparison, compared, mean
from tabiflow.trial import Outcome, Status


@dataclass(frozen=True)
class Change:
    """One model on one data set, mean over the seeds that both have."""

    model: str
    dataset: str
    what: str
    """The fields of the protocol and their new values."""
    seeds: tuple[int, ...]
    before: float
    """In the sweep whose winners are taken; NaN where they were not confirmed there."""
    after: float
    difference: float
    low: float
    """95% interval of the paired bootstrap over test items."""
    high: float
    p: float


@dataclass(frozen=True)
class CutShare:
    """Of one model's tokenizer on one split."""

    model: str
    dataset: str
    sequence: str
    """`text`, or the column in retrieval; empty where nothing could be measured."""
    split: str
    limit: int | None
    """Tokens, special ones included: the sweep's length, or the model's own where that is less."""
    rows: int | None
    share: float
    """Per cent of the rows that are longer; NaN where rows or tokenizer cannot be had."""


def changes(
    plan: Plan, cells: Sequence[Scored], outcomes: Mapping[str, Outcome], evidence: Evidence
) -> tuple[Change, ...]:
    """Empty for every other sweep."""
    named = plan.sweep.winners_of
    if named is None or not named.protocol:
        return ()
    what = ", ".join(f"{name} {value}" for name, value in named.protocol.items())
    return tuple(
        _change(what, cell, scored, _before(named.sweep.name, cell, outcomes), evidence)
        for cell, scored in zip(plan.cells, cells, strict=True)
    )


def _before(sweep: str, cell: CellPlan, outcomes: Mapping[str, Outcome]) -> dict[int, Outcome]:
    """By seed: that sweep's confirming trials of the same hyper-parameters."""
    if cell.origin is None:
        return {}
    return {
        each.trial.seed: each
        for each in outcomes.values()
        if each.sweep == sweep
        and each.status is Status.DONE
        and each.trial.split == "test"
        and each.trial.cell == cell.cell
        and each.trial.params == cell.origin.trial.params
    }


def _change(
    what: str, cell: CellPlan, scored: Scored, before: Mapping[int, Outcome], evidence: Evidence
) -> Change:
    after = {each.trial.seed: each for each in scored.done}
    seeds = [seed for seed in after if seed in before]
    ours, theirs = ([known[seed] for seed in seeds] for known in (after, before))
    was, now = (mean([each.test for each in found]) for found in (theirs, ours))
    found = _compared(cell, ours, theirs, now - was, evidence)
    return Change(
        model=cell.model.name,
        dataset=cell.dataset.name,
        what=what,
        seeds=tuple(seeds),
        before=was,
        after=now,
        difference=found.difference,
        low=found.low,
        high=found.high,
        p=found.p,
    )


def _compared(
    cell: CellPlan,
    ours: Sequence[Outcome],
    theirs: Sequence[Outcome],
    difference: float,
    evidence: Evidence,
) -> Comparison:
    kept = evidence.predictions([each.run_id for each in (*ours, *theirs)]) if ours else {}
    runs = {"after": read_items(cell, ours, kept)[0], "before": read_items(cell, theirs, kept)[0]}
    samples = drawn(cell.dataset.name, {name: found for name, found in runs.items() if found})
    if len(samples) < 2 or not paired(*samples.values()):
        return Comparison(difference, math.nan, math.nan, math.nan)
    return compared(difference, samples["after"].samples - samples["before"].samples)

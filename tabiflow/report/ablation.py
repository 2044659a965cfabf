"""What a change of the protocol does: winners trained under it, beside themselves without it.

Of a sweep of winners that sets fields of the protocol, such as TabiBERT's context ablation (A.2).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tabiflow.plan import CellPlan, Plan
from tabiflow.report.items import drawn, paired
from tabiflow.report.scores import Evidence, Scored, read_items
from tabiflow.selection import confirming
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
    """As the sweep whose winners are taken trains them; NaN where they were not confirmed so."""
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
        _change(what, cell, scored, _before(cell, scored.done, outcomes), evidence)
        for cell, scored in zip(plan.cells, cells, strict=True)
    )


def _before(
    cell: CellPlan, after: Sequence[Outcome], outcomes: Mapping[str, Outcome]
) -> dict[int, Outcome]:
    """By seed: the same confirming trials without the change, whichever sweep has run them."""
    seeds = [each.trial.seed for each in after]
    trials = confirming(cell.unchanged, seeds) if cell.unchanged else ()
    known = [outcomes[trial.id] for trial in trials if trial.id in outcomes]
    return {each.trial.seed: each for each in known if each.status is Status.DONE}


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

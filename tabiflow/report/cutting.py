"""What a sweep of winners at another length cuts off: the shares of Table 14 (TabiBERT, A.2).

Measured from the rows and the tokenizers, as `audit` does, since trials keep no lengths. Reads the
test split through the path that scores nothing.
"""

import math
from collections.abc import Iterator, Sequence

from tabiflow.audit.lengths import Lengths, measured
from tabiflow.data import Examined, load_for_audit
from tabiflow.encoding import TextEncoder
from tabiflow.errors import CellError, EnvironmentFault
from tabiflow.plan import CellPlan, Plan
from tabiflow.protocol import Protocol
from tabiflow.report.ablation import CutShare
from tabiflow.splits import NAMES

CHANGED = "max_length"


def cut_shares(plan: Plan) -> tuple[CutShare, ...]:
    """Empty for every sweep but one of winners that sets `max_length`."""
    named = plan.sweep.winners_of
    if named is None or CHANGED not in named.protocol or plan.sweep.runner != "finetune":
        return ()
    names = dict.fromkeys(cell.dataset.name for cell in plan.cells)
    return tuple(
        share
        for name in names
        for share in _of_dataset(plan, [cell for cell in plan.cells if cell.dataset.name == name])
    )


def _of_dataset(plan: Plan, cells: Sequence[CellPlan]) -> Iterator[CutShare]:
    try:
        found = load_for_audit(cells[0].dataset, plan.sweep.limit.model_dump(exclude_none=True))
    except (CellError, EnvironmentFault):
        found = None
    for cell in cells:
        lengths = _measured(cell, found, plan.sweep.protocol)
        if lengths:
            yield from _shares(cell, lengths)
        else:
            yield from (
                CutShare(cell.model.name, cell.dataset.name, "", split, None, None, math.nan)
                for split in NAMES
            )


def _measured(cell: CellPlan, found: Examined | None, protocol: Protocol) -> tuple[Lengths, ...]:
    if found is None or "train" not in found.splits:
        return ()
    try:
        text = TextEncoder(cell.model, weights=False, pauses=())
        return measured(cell.dataset, found, text, [protocol]).lengths
    except (CellError, EnvironmentFault):
        return ()


def _shares(cell: CellPlan, lengths: Sequence[Lengths]) -> Iterator[CutShare]:
    for each in lengths:
        for name, split in each.splits.items():
            yield CutShare(
                model=cell.model.name,
                dataset=cell.dataset.name,
                sequence=each.sequence,
                split=name,
                limit=each.max_length,
                rows=split.of,
                share=split.share,
            )

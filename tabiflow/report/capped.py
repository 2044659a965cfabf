"""Winners at another length, as tables: what it cuts off (Table 14) and what it does (Table 15)."""

from collections.abc import Iterable

from tabiflow.published import Published
from tabiflow.report.ablation import CutShare
from tabiflow.report.content import Report
from tabiflow.report.tables import DASH, Row, Table, interval, number, p_value, signed
from tabiflow.splits import NAMES


def cut_table(report: Report, published: Published) -> Table:
    facts = published.cut_shares
    ours = list(_cut_rows(report))
    same = any((each.dataset, each.limit) == (facts.dataset, facts.limit) for each in report.cuts)
    theirs = [
        (
            report.title(model) + " (published)",
            report.title(facts.dataset),
            str(facts.limit),
            *(number(facts.shares[model][split]) for split in NAMES),
        )
        for model in (published.models if same else ())
    ]
    return Table(
        f"{facts.source + ': ' if same else ''}Rows longer than the length, per cent",
        ("Model", "Data set", "Tokens", *NAMES),
        (*theirs, *ours),
        ("Special tokens included, under each model's own tokenizer.",),
        frozenset(range(len(theirs))),
    )


def _cut_rows(report: Report) -> Iterable[Row]:
    """A line for each sequence of a cell."""
    lines: dict[tuple[str, str, str], dict[str, CutShare]] = {}
    for each in report.cuts:
        lines.setdefault((each.model, each.dataset, each.sequence), {})[each.split] = each
    for (model, dataset, sequence), splits in lines.items():
        limits = {each.limit for each in splits.values()}
        yield (
            report.title(model),
            report.title(dataset) + (f" ({sequence})" if sequence not in ("", "text") else ""),
            " ".join(DASH if each is None else str(each) for each in limits),
            *(number(splits[name].share) if name in splits else DASH for name in NAMES),
        )


def change_table(report: Report, published: Published) -> Table:
    """Of a sweep of winners under another protocol; Table 15 where it is that of the paper."""
    ours = [
        (
            report.title(each.model),
            report.title(each.dataset),
            *(number(score) for score in (each.before, each.after)),
            signed(each.difference),
            interval(each.low, each.high, "{:+.2f} to {:+.2f}"),
            p_value(each.p),
        )
        for each in report.changes
    ]
    facts, what = published.context_cap, report.changes[0].what
    same = what == f"max_length {facts.limit}" and facts.dataset in {
        row.name for row in report.datasets
    }
    theirs = [
        (
            report.title(model) + " (published)",
            report.title(facts.dataset),
            *(number(known[model]) for known in (facts.scores, facts.capped)),
            signed(facts.differences[model]),
            DASH,
            DASH,
        )
        for model in (published.models if same else ())
    ]
    header = ("Model", "Data set", "As selected", what, "Δ", "Interval", "p")
    return Table(
        f"{facts.source + ': ' if same else ''}The winners under {what}",
        header,
        (*theirs, *ours),
        ("The same configurations and seeds; paired bootstrap over the test items.",),
        frozenset(range(len(theirs))),
    )

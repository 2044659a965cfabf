"""The tables behind the scores: search, openings, rows left out, origins; and what to warn of."""

from collections.abc import Iterable

from tabiflow.report.content import Report
from tabiflow.report.searching import shown
from tabiflow.report.tables import DASH, Table, number, signed


def winner_table(report: Report) -> Table:
    rows = tuple(
        (
            winner.cell.model,
            winner.cell.dataset,
            ", ".join(f"{key} {shown(value)}" for key, value in winner.trial.settings.items()),
            number(winner.score) + ("" if winner.complete else " (incomplete)"),
            str(winner.epoch),
            str(winner.ties),
        )
        for winner in report.winners
    )
    header = ("model", "data set", "configuration", "validation", "epoch", "ties")
    return Table("Winners, chosen on validation", header, rows)


def setting_table(report: Report) -> Table:
    rows = tuple(
        (
            each.parameter,
            each.value,
            str(each.trials),
            number(each.validation),
            signed(each.effect),
            number(each.deviation),
            str(each.winners),
        )
        for each in report.settings
    )
    header = ("parameter", "value", "trials", "validation", "effect", "deviation", "winners")
    notes = (
        "Effect: mean validation score at this value less the mean of its cell, averaged over"
        " cells; the deviation is over cells.",
    )
    return Table("Sensitivity", header, rows, notes)


def edge_table(report: Report) -> Table:
    rows = tuple(
        (each.parameter, str(each.cells), str(each.lowest), str(each.highest))
        for each in report.edges
    )
    header = ("parameter", "winners", "at the lowest value", "at the highest value")
    return Table("Winners on the grid's edge", header, rows, tuple(edge_warnings(report)))


def edge_warnings(report: Report) -> Iterable[str]:
    for each in report.edges:
        if each.lowest or each.highest:
            yield (
                f"{each.parameter}: {each.highest} of {each.cells} winners stand at the highest "
                f"value of the grid, {each.lowest} at the lowest; a better one may lie beyond."
            )


def opening_table(report: Report) -> Table:
    rows = tuple(
        (
            each.opened_at,
            each.opened_by,
            each.model,
            each.dataset,
            str(each.seed),
            number(each.validation),
            number(each.test),
            each.reason,
        )
        for each in report.openings
    )
    header = (
        "opened",
        "by",
        "model",
        "data set",
        "seed",
        "validation",
        "test",
        "reopened because",
    )
    return Table("Openings of the test split", header, rows)


def exclusion_table(report: Report) -> Table:
    rows = tuple(
        (each.model, each.dataset, str(each.rows), each.reasons) for each in report.exclusions
    )
    return Table("Rows left out", ("model", "data set", "rows", "reasons"), rows)


def origin_tables(report: Report) -> list[Table]:
    rows = tuple(
        (
            each.kind,
            each.name,
            each.source,
            *(text or DASH for text in (each.revision, each.commit, each.fingerprint)),
        )
        for each in report.revisions
    )
    header = ("what", "name", "from", "revision", "commit", "fingerprint")
    return [
        Table("Provenance", ("what", "value"), tuple(report.provenance.items())),
        Table("Revisions", header, rows),
    ]


def warnings(report: Report) -> Iterable[str]:
    """What a reader must know before the first number."""
    if report.unfinished:
        counts = ", ".join(f"{count} {state}" for state, count in report.unfinished.items())
        yield f"Not final: {counts} trials are not done."
    if report.undefined:
        cells = ", ".join(f"{each.model} on {each.dataset}" for each in report.undefined)
        yield f"No winner: of {cells} no trial has a defined validation score."
    if report.reopened:
        yield f"Reopened: {report.reopened} of {len(report.openings)} openings of a test split."
    yield from edge_warnings(report)

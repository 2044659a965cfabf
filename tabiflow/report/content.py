"""What a report says, as numbers. Knows nothing of how they are shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tabiflow import selection
from tabiflow.plan import Plan
from tabiflow.registry.models import MODELS
from tabiflow.report import ablation, averages, origins, scores, searching
from tabiflow.report import comparisons as compare
from tabiflow.report.ablation import Change, CutShare
from tabiflow.report.averages import Average, Category
from tabiflow.report.comparisons import Comparison, TieGroups
from tabiflow.report.items import DRAWS
from tabiflow.report.origins import Exclusion, OpeningRecord, Revision, opening_record
from tabiflow.report.scores import Evidence, NoEvidence, Score
from tabiflow.report.searching import Curve, Edge, Setting
from tabiflow.selection import Winner
from tabiflow.trial import Cell, Outcome

__all__ = ["OpeningRecord", "Report", "Row", "opening_record", "report"]


@dataclass(frozen=True)
class Row:
    """A model or a data set as tables call it."""

    name: str
    title: str
    parameters: int | None = None
    """Of a model."""


@dataclass(frozen=True)
class Report:
    sweep: str
    models: tuple[Row, ...]
    """In the sweep's order; the first is the reference."""
    datasets: tuple[Row, ...]
    scores: tuple[Score, ...]
    categories: tuple[Category, ...]
    averages: tuple[Average, ...]
    comparisons: tuple[Comparison, ...]
    ties: tuple[TieGroups, ...]
    changes: tuple[Change, ...]
    """Empty but for a sweep of winners under another protocol."""
    cuts: tuple[CutShare, ...]
    """Empty but for a sweep of winners at another length."""
    draws: int
    """Of every interval and every test over items."""
    winners: tuple[Winner, ...]
    openings: tuple[OpeningRecord, ...]
    exclusions: tuple[Exclusion, ...]
    settings: tuple[Setting, ...]
    edges: tuple[Edge, ...]
    curves: tuple[Curve, ...]
    unfinished: Mapping[str, int]
    """State -> trials that are not done: a table over them is not final."""
    undefined: tuple[Cell, ...] = ()
    """Finished cells without a validation score that is a number, so without a winner."""
    revisions: tuple[Revision, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)

    def title(self, name: str) -> str:
        """Of a model or a data set, those with published figures included."""
        published = {row.name: row.title for row in MODELS}
        return (published | {row.name: row.title for row in (*self.models, *self.datasets)})[name]

    @property
    def average(self) -> Mapping[str, float]:
        """Model -> mean of its categories; NaN while one is missing."""
        return {each.model: each.test for each in self.averages}

    @property
    def reopened(self) -> int:
        return sum(bool(each.reason) for each in self.openings)

    @property
    def doubts(self) -> tuple[Score, ...]:
        """Scores without an interval although there are predictions."""
        return tuple(each for each in self.scores if each.doubt)


def report(
    plan: Plan,
    chosen: Sequence[Winner],
    outcomes: Mapping[str, Outcome],
    evidence: Evidence | None = None,
    cuts: Sequence[CutShare] = (),
) -> Report:
    """Scores are those of the winners' confirming trials; other openings are listed, not scored.

    Without `evidence` there are no intervals, comparisons over items and curves.
    """
    evidence = evidence or NoEvidence()
    cells = scores.scored(plan, chosen, outcomes, evidence)
    groups = averages.categories(cells)
    parts = [standing for _, standing in groups]
    totals = [
        averages.average(model, cells, [each for each in parts if each.model == model])
        for model in plan.models
    ]
    standings = [each.standing for each in cells] + parts + [standing for _, standing in totals]
    compared = compare.comparisons(standings)
    known = origins.used(plan, outcomes)
    return Report(
        sweep=plan.sweep.name,
        models=tuple(_models(plan)),
        datasets=tuple(_datasets(plan)),
        scores=tuple(each.score for each in cells),
        categories=tuple(category for category, _ in groups),
        averages=tuple(average for average, _ in totals),
        comparisons=compared,
        ties=compare.ties(standings, compared),
        changes=ablation.changes(plan, cells, outcomes, evidence),
        cuts=tuple(cuts),
        draws=DRAWS,
        winners=tuple(chosen),
        openings=origins.openings(plan.sweep.name, outcomes),
        exclusions=origins.exclusions(plan, known),
        settings=searching.settings(plan, chosen),
        edges=searching.edges(plan, chosen),
        curves=searching.curves(chosen, outcomes, evidence),
        unfinished=origins.unfinished(plan),
        undefined=selection.undefined(plan),
        revisions=origins.revisions(plan, known),
        provenance=origins.provenance(plan, known),
    )


def _models(plan: Plan) -> list[Row]:
    rows = {cell.model.name: cell.model for cell in plan.cells}
    return [Row(name, row.title or name, row.parameters) for name, row in rows.items()]


def _datasets(plan: Plan) -> list[Row]:
    rows = {cell.dataset.name: cell.dataset for cell in plan.cells}
    return [Row(name, row.title or name) for name, row in rows.items()]

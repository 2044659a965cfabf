"""What a report says, as numbers: test scores, category averages, winners, openings. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tabiflow.plan import CellPlan, Plan
from tabiflow.registry.kinds import KINDS
from tabiflow.selection import Winner, confirming
from tabiflow.statistics import deviation, mean, weighted_mean
from tabiflow.trial import Cell, Outcome, Status


@dataclass(frozen=True)
class Score:
    """One model on one data set, on test."""

    model: str
    dataset: str
    category: str
    metric: str
    test: float
    """Mean over the seeds, 0 to 100; NaN until the winner is confirmed."""
    deviation: float
    """Over the seeds; NaN below two."""
    n: int
    """Test items."""
    seeds: tuple[int, ...]
    weight: int
    """In the category's average: published test rows, or `n` where rows were limited."""


@dataclass(frozen=True)
class Category:
    model: str
    category: str
    test: float
    """Average weighted by test size (TabiBERT section 5.2); NaN while a data set is missing."""
    datasets: int
    unweighted: float


@dataclass(frozen=True)
class OpeningRecord:
    """One look at a test split."""

    model: str
    dataset: str
    seed: int
    trial: str
    validation: float
    test: float
    metric: str
    n: int
    opened_at: str
    opened_by: str
    code: str
    reason: str
    """Why it was opened again for another winner; empty for a first opening."""


@dataclass(frozen=True)
class Report:
    sweep: str
    scores: tuple[Score, ...]
    categories: tuple[Category, ...]
    average: Mapping[str, float]
    """Model -> mean of its categories; NaN while one is missing."""
    winners: tuple[Winner, ...]
    openings: tuple[OpeningRecord, ...]
    unfinished: Mapping[str, int]
    """State -> trials that are not done: a table over them is not final."""
    provenance: Mapping[str, str] = field(default_factory=dict)


def report(plan: Plan, chosen: Sequence[Winner], outcomes: Mapping[str, Outcome]) -> Report:
    """Scores are those of the winners' confirming trials; other openings are listed, not scored."""
    by_cell = {winner.cell: winner for winner in chosen}
    scores = tuple(_score(plan, cell, by_cell.get(cell.cell), outcomes) for cell in plan.cells)
    categories = tuple(_categories(scores))
    counts = plan.counts
    return Report(
        sweep=plan.sweep.name,
        scores=scores,
        categories=categories,
        average={
            model: mean([each.test for each in categories if each.model == model])
            for model in plan.models
        },
        winners=tuple(chosen),
        openings=openings(plan.sweep.name, outcomes),
        unfinished={state: counts[state] for state in ("todo", "failed", "held") if counts[state]},
        provenance=_provenance(outcomes, plan),
    )


def openings(sweep: str, outcomes: Mapping[str, Outcome]) -> tuple[OpeningRecord, ...]:
    """Every recorded look at a test split by this sweep, oldest first."""
    opened = [
        opening_record(outcome)
        for outcome in outcomes.values()
        if outcome.sweep == sweep and outcome.trial.split == "test"
    ]
    return tuple(sorted(opened, key=lambda each: (each.opened_at, each.trial)))


def opening_record(outcome: Outcome) -> OpeningRecord:
    trial, tags = outcome.trial, outcome.tags
    return OpeningRecord(
        model=trial.model,
        dataset=trial.dataset,
        seed=trial.seed,
        trial=trial.id,
        validation=outcome.score,
        test=outcome.test,
        metric=outcome.metric,
        n=outcome.n,
        opened_at=tags.get("opened_at", ""),
        opened_by=tags.get("opened_by", ""),
        code=tags.get("opened_code", ""),
        reason=tags.get("reopen_reason", ""),
    )


def _score(
    plan: Plan, cell: CellPlan, winner: Winner | None, outcomes: Mapping[str, Outcome]
) -> Score:
    trials = confirming(winner, plan.sweep.confirm.seeds) if winner else ()
    known = [outcomes[trial.id] for trial in trials if trial.id in outcomes]
    done = [each for each in known if each.status is Status.DONE]
    tests = [each.test for each in done]
    items = done[0].n if done else 0
    limited = "test" in plan.sweep.limit.model_dump(exclude_none=True)
    published = 0 if limited else cell.dataset.sizes.get("test", 0)
    return Score(
        model=cell.model.name,
        dataset=cell.dataset.name,
        category=cell.dataset.group,
        metric=KINDS[cell.dataset.task].metric,
        test=mean(tests),
        deviation=deviation(tests),
        n=items,
        seeds=tuple(each.trial.seed for each in done),
        weight=published or items,
    )


def _categories(scores: Sequence[Score]) -> Sequence[Category]:
    groups: dict[Cell, list[Score]] = {}
    for score in scores:
        groups.setdefault(Cell(score.model, score.category), []).append(score)
    return [
        Category(
            model=model,
            category=category,
            test=_weighted(group),
            datasets=len(group),
            unweighted=mean([each.test for each in group]),
        )
        for (model, category), group in groups.items()
    ]


def _weighted(group: Sequence[Score]) -> float:
    """NaN while one of the data sets has no score: half a category is another category."""
    if any(math.isnan(each.test) for each in group):
        return math.nan
    return weighted_mean([each.test for each in group], [each.weight for each in group])


PROVENANCE = ("code_commit", "versions", "device", "attention", "precision")


def _provenance(outcomes: Mapping[str, Outcome], plan: Plan) -> dict[str, str]:
    """What the trials ran on; several values where it changed on the way."""
    mine = {trial.id for trial in plan.trials}
    used = [outcome for key, outcome in outcomes.items() if key in mine and outcome.finished]
    found = {
        tag: "; ".join(sorted({each.tags[tag] for each in used if each.tags.get(tag)}))
        for tag in PROVENANCE
    }
    timed = [each.seconds for each in used if not math.isnan(each.seconds)]
    hours = {"trial_hours": f"{sum(timed) / 3600:.3f}"} if timed else {}
    return {**{tag: value for tag, value in found.items() if value}, **hours}

"""Which differences between models the data show, and which models they cannot tell apart.

Two sources of chance, as `statistics` keeps them: over test items (paired bootstrap and paired
permutation) and over seeds (Welch). A difference counts only where every known p says so.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from tabiflow.report.items import permuted
from tabiflow.report.scores import Standing
from tabiflow.statistics import (
    beats,
    compared,
    detectable,
    holm,
    seed_error,
    tie_groups,
    welch,
)


@dataclass(frozen=True)
class Comparison:
    """`model` minus `reference`, on the same test items. What is not known is NaN."""

    scope: str
    """`dataset`, `category` or `average`."""
    name: str
    model: str
    reference: str
    difference: float
    low: float
    """95% interval of the paired bootstrap."""
    high: float
    bootstrap_p: float
    permutation_p: float
    """Of a single data set."""
    items_holm_p: float
    """The permutation p, or the bootstrap's where there is none, adjusted over the scope."""
    welch_t: float
    welch_df: float
    welch_p: float
    seeds_holm_p: float
    """Welch's p, adjusted over the scope."""
    detectable_items: float
    """The smallest true difference that items spread like these show with 80% power."""
    detectable_seeds: float
    """The same of the seeds."""
    better: str = ""
    """The model that is shown to be better at 5%; empty where none is."""

    @property
    def p(self) -> float:
        """The largest known p: it bounds the error whichever source of chance counts."""
        known = [p for p in (self._items_p, self.welch_p) if not math.isnan(p)]
        return max(known, default=math.nan)

    @property
    def _items_p(self) -> float:
        return self.bootstrap_p if math.isnan(self.permutation_p) else self.permutation_p


@dataclass(frozen=True)
class TieGroups:
    """Models by what the data tell apart, best first; a model may stand in several groups."""

    scope: str
    name: str
    groups: tuple[tuple[str, ...], ...]


def comparisons(standings: Sequence[Standing]) -> tuple[Comparison, ...]:
    """Of every two models on everything that both have a score of, the later minus the earlier."""
    models = dict.fromkeys(each.model for each in standings)
    found: list[Comparison] = []
    for reference, model in combinations(models, 2):
        for scope in ("dataset", "category", "average"):
            pairs = _pairs(standings, scope, model, reference)
            found += _adjusted([_compared(ours, theirs) for ours, theirs in pairs])
    return tuple(found)


def _pairs(
    standings: Sequence[Standing], scope: str, model: str, reference: str
) -> Iterable[tuple[Standing, Standing]]:
    of_reference = {
        each.name: each for each in standings if (each.scope, each.model) == (scope, reference)
    }
    for each in standings:
        if (each.scope, each.model) == (scope, model) and each.name in of_reference:
            other = of_reference[each.name]
            if not math.isnan(each.test - other.test):
                yield each, other


def _compared(ours: Standing, theirs: Standing) -> Comparison:
    a, b = list(ours.tests.values()), list(theirs.tests.values())
    seeds = welch(a, b)
    error, df = seed_error(ours.deviation, len(a), theirs.deviation, len(b))
    made = Comparison(
        scope=ours.scope,
        name=ours.name,
        model=ours.model,
        reference=theirs.model,
        difference=ours.test - theirs.test,
        low=math.nan,
        high=math.nan,
        bootstrap_p=math.nan,
        permutation_p=math.nan,
        items_holm_p=math.nan,
        welch_t=seeds.t,
        welch_df=seeds.df,
        welch_p=seeds.p,
        seeds_holm_p=math.nan,
        detectable_items=math.nan,
        detectable_seeds=detectable(error, df),
    )
    return _over_items(made, ours, theirs)


def _over_items(made: Comparison, ours: Standing, theirs: Standing) -> Comparison:
    if ours.samples is None or theirs.samples is None or not ours.paired_with(theirs):
        return made
    differences = ours.samples - theirs.samples
    drawn = compared(made.difference, differences)
    return replace(
        made,
        low=drawn.low,
        high=drawn.high,
        bootstrap_p=drawn.p,
        permutation_p=permuted(ours.drawn[0], theirs.drawn[0])
        if ours.scope == "dataset"
        else math.nan,
        # The spread over draws is the standard error, whatever the metric.
        detectable_items=detectable(float(np.std(differences, ddof=1)), ours.items - 1),
    )


def _adjusted(family: Sequence[Comparison]) -> list[Comparison]:
    """One pair of models over all names of a scope, by Holm's method."""
    items = holm([each._items_p for each in family])
    seeds = holm([each.welch_p for each in family])
    return [
        replace(each, items_holm_p=p, seeds_holm_p=q, better=_better(each, (p, q)))
        for each, p, q in zip(family, items, seeds, strict=True)
    ]


def _better(each: Comparison, p_values: Sequence[float]) -> str:
    known = [p for p in p_values if not math.isnan(p)]
    if beats(each.difference, known):
        return each.model
    return each.reference if beats(-each.difference, known) else ""


def ties(standings: Sequence[Standing], found: Sequence[Comparison]) -> tuple[TieGroups, ...]:
    """Of whatever two models or more have a score of and a p is known for."""
    places = dict.fromkeys((each.scope, each.name) for each in standings)
    groups = (_ties(scope, name, standings, found) for scope, name in places)
    return tuple(each for each in groups if each is not None)


def _ties(
    scope: str, name: str, standings: Sequence[Standing], found: Sequence[Comparison]
) -> TieGroups | None:
    scores = {
        each.model: each.test
        for each in standings
        if (each.scope, each.name) == (scope, name) and not math.isnan(each.test)
    }
    p_values = {
        (each.model, each.reference): each.p
        for each in found
        if (each.scope, each.name) == (scope, name)
    }
    if all(math.isnan(p) for p in p_values.values()):
        return None
    return TieGroups(scope, name, tie_groups(scores, p_values))

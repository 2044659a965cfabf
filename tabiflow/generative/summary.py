"""What a model's scores on a benchmark say: baselines, intervals, subjects, averages, Gini,
option orders, and two models on the same rows. Pure functions of items and answers.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tabiflow.draws import resamples
from tabiflow.generative.prompts import LETTERS, Excluded, Item, Items
from tabiflow.spec import BenchmarkTask
from tabiflow.statistics import (
    DRAWS,
    SEED,
    Comparison,
    Interval,
    gini,
    mean,
    paired_bootstrap,
    percentiles,
    permutation,
    weighted_mean,
    wilson,
)

# Choices


@dataclass(frozen=True)
class Support:
    """Right answers of a group of rows, with Wilson's 95% interval."""

    right: int
    rows: int
    accuracy: float
    interval: Interval


@dataclass(frozen=True)
class Choices:
    """One task's choices. All shares are of `support.rows`, the rows that could be scored."""

    support: Support
    uniform: float
    """What guessing is expected to get: the mean of 1/K over rows of K options. Never simulated."""
    majority: float
    """What always answering with validation's commonest right option gets; NaN without one."""
    majority_option: int | None
    subjects: Mapping[str, Support]
    answers: Mapping[str, int]
    """How often each letter, that is place, was chosen; `-` is an answer that names none."""
    released: int
    """Rows of the split, with those excluded."""
    excluded: tuple[Excluded, ...]


def choices(
    found: Items, answers: Sequence[int | None], validation: Sequence[Item] = ()
) -> Choices:
    """`answers` are those to `found.scored`; `validation` chooses the majority baseline alone."""
    items = found.scored
    hits = [said == item.gold for item, said in zip(items, answers, strict=True)]
    option = majority_option(validation)
    of_subject: dict[str, list[bool]] = {}
    for item, hit in zip(items, hits, strict=True):
        of_subject.setdefault(item.subject, []).append(hit)
    return Choices(
        support=_support(hits),
        uniform=uniform(items),
        majority=math.nan if option is None else share_of(option, items),
        majority_option=option,
        subjects={name: _support(of_subject[name]) for name in sorted(of_subject) if name},
        answers=histogram(answers, max((len(item.options) for item in items), default=0)),
        released=found.rows,
        excluded=found.excluded,
    )


def uniform(items: Sequence[Item]) -> float:
    """(1/N) sum 1/K_i, in per cent."""
    return 100 * mean([1 / len(item.options) for item in items])


def majority_option(items: Sequence[Item]) -> int | None:
    """The commonest right option, of equally common ones the first; None without rows."""
    counts = Counter(item.gold for item in items if item.gold is not None)
    return min(counts, key=lambda option: (-counts[option], option)) if counts else None


def share_of(option: int, items: Sequence[Item]) -> float:
    """What always answering with this option scores."""
    return 100 * mean([float(item.gold == option) for item in items])


def histogram(answers: Sequence[int | None], options: int) -> dict[str, int]:
    counts = Counter(answers)
    letters = {letter: counts[place] for place, letter in enumerate(LETTERS[:options])}
    return letters | ({"-": counts[None]} if counts[None] else {})


def _support(hits: Sequence[bool]) -> Support:
    right, rows = sum(hits), len(hits)
    return Support(right, rows, 100 * right / rows if rows else math.nan, wilson(right, rows))


# Option order


@dataclass(frozen=True)
class Orders:
    """The same questions under all cyclic orders of their options."""

    rows: int
    stable: int
    """Rows whose chosen option is the same under every order."""
    stability: float
    """In per cent; NaN without rows."""
    letters: Mapping[str, int]
    """How often each letter was chosen, over all rows and orders."""


def orders(answers: Sequence[Sequence[int | None]]) -> Orders:
    """`answers[row][shift]` is the letter chosen when option `shift` came first, as a place.

    As many orders as the row has options. An answer that names no option is never stable.
    """
    stable = sum(_same_option(row) for row in answers)
    flat = [said for row in answers for said in row]
    most = max((len(row) for row in answers), default=0)
    share = 100 * stable / len(answers) if answers else math.nan
    return Orders(len(answers), stable, share, histogram(flat, most))


def _same_option(row: Sequence[int | None]) -> bool:
    if len(row) < 2:
        raise ValueError("a row with fewer than two options has no other order")
    options = {
        None if place is None else (place + shift) % len(row) for shift, place in enumerate(row)
    }
    return len(options) == 1 and None not in options


# Two models


@dataclass(frozen=True)
class Paired:
    """A minus B over the rows that both answered."""

    comparison: Comparison
    p_permutation: float
    rows: int
    only_a: int
    """Rows that A alone has right; for scores that are not 0 or 100, where A is better."""
    only_b: int


def paired(a: Mapping[str, float], b: Mapping[str, float]) -> Paired:
    """By place and prompt hash -> score, so that only rows that were asked alike are compared."""
    common = [key for key in a if key in b]
    ours, theirs = [a[key] for key in common], [b[key] for key in common]
    return Paired(
        paired_bootstrap(ours, theirs),
        permutation(ours, theirs),
        len(common),
        sum(x > y for x, y in zip(ours, theirs, strict=True)),
        sum(x < y for x, y in zip(ours, theirs, strict=True)),
    )


# Averages


@dataclass(frozen=True)
class Averages:
    categories: Mapping[str, float]
    """The plain mean of a category's columns; the parts of PLU are one column."""
    overall: float
    """The plain mean of the seven categories; NaN as long as one of them is."""


def averages(scores: Mapping[str, float], tasks: Sequence[BenchmarkTask]) -> Averages:
    """By column of the paper's tables. A score that is missing makes its category NaN.

    A group's column is its parts' mean, weighted by their published rows.
    """
    columns: dict[str, dict[str, list[BenchmarkTask]]] = {}
    for task in tasks:
        column = columns.setdefault(task.category, {})
        column.setdefault(task.group or task.column, []).append(task)
    categories = {
        category: mean([_column(scores, parts) for parts in inside.values()])
        for category, inside in columns.items()
    }
    return Averages(categories, mean(list(categories.values())))


def _column(scores: Mapping[str, float], parts: Sequence[BenchmarkTask]) -> float:
    found = [scores.get(part.column, math.nan) for part in parts]
    if len(parts) == 1:
        return found[0]
    return weighted_mean(found, [part.rows or math.nan for part in parts])


# How far a task tells models apart


@dataclass(frozen=True)
class Inequality:
    """The Gini coefficient of models' scores with a percentile interval over models."""

    value: float
    interval: Interval
    models: int


def inequality(scores: Sequence[float], *, draws: int = DRAWS, seed: int = SEED) -> Inequality:
    """The point value is of all models: the mean over resamples, which the paper seems to print, is
    too low by 2 to 3 per cent. Scale-free, so that scores near 0 look far apart."""
    values = np.asarray(scores, dtype=np.float64)
    point = gini(values)
    if len(values) < 2 or math.isnan(point):
        return Inequality(point, Interval(math.nan, math.nan), len(values))
    return Inequality(point, percentiles(_resampled(values, draws, seed)), len(values))


def _resampled(values: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """The coefficient of each resample, all in one pass over the sorted values."""
    order = np.sort(values)
    found = []
    for weights in resamples(len(order), draws, seed):
        upto = weights.cumsum(axis=1)
        ranks = (2 * upto - weights - len(order)) * weights
        sums = weights @ order
        with np.errstate(invalid="ignore"):
            found.append((ranks @ order) / (len(order) * sums))
    return np.concatenate(found)

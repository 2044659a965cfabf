"""Aggregation of scores. Pure functions over numbers; unknown in, unknown out."""

import math
from collections.abc import Sequence


def weighted_mean(scores: Sequence[float], sizes: Sequence[float]) -> float:
    """sum(score x size) / sum(size), the category score of TabiBERT section 5.2. NaN if empty."""
    whole = sum(sizes)
    if whole == 0:
        return math.nan
    return sum(score * size for score, size in zip(scores, sizes, strict=True)) / whole


def mean(scores: Sequence[float]) -> float:
    """The plain average; NaN if empty."""
    return sum(scores) / len(scores) if scores else math.nan


def deviation(scores: Sequence[float]) -> float:
    """The sample standard deviation (n - 1); NaN below two scores."""
    if len(scores) < 2:
        return math.nan
    centre = mean(scores)
    return math.sqrt(sum((score - centre) ** 2 for score in scores) / (len(scores) - 1))

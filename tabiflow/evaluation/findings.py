"""What the ledger's answers to a sweep's questions say: scores with their doubt, beside what
guessing would get, and models compared on the same rows.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from tabiflow.evaluation.trials import Question
from tabiflow.generative import language, summary
from tabiflow.generative.asking import Asked
from tabiflow.generative.prompts import Excluded
from tabiflow.generative.summary import Averages, Choices, Inequality, Paired
from tabiflow.statistics import UNKNOWN, Interval, bootstrap, wilson
from tabiflow.trial import Outcome

SHARES = frozenset({"accuracy", "exact_match", "gec_exact_match"})
"""Metrics that count rows: their interval is Wilson's."""
TURKISH_REFERENCES = 20
"""Fewest human texts that an abstention threshold is chosen on."""
Record = Mapping[str, Any]


@dataclass(frozen=True)
class TaskScore:
    """One model on one task."""

    model: str
    task: str
    column: str
    category: str
    metric: str
    trial: str
    score: float
    interval: Interval
    n: int
    """Rows that were scored."""
    excluded: int
    """Rows that could not be."""
    figures: Mapping[str, float]
    facts: Mapping[str, str]
    choices: Choices | None
    """Of a task with options."""
    records: Sequence[Record] = field(default=(), repr=False)


@dataclass(frozen=True)
class OrderScore:
    """How one model takes the order of options."""

    model: str
    task: str
    stability: float
    rows: int
    letters: Mapping[str, int]


@dataclass(frozen=True)
class Pair:
    """Two models on one task: the first minus the second."""

    task: str
    first: str
    second: str
    paired: Paired


@dataclass(frozen=True)
class Drift:
    """Languages that a model's texts seem to be in: predictions, not findings of people."""

    model: str
    task: str
    threshold: float
    found: language.Languages


@dataclass(frozen=True)
class Findings:
    sweep: str
    models: tuple[str, ...]
    scores: tuple[TaskScore, ...]
    orders: tuple[OrderScore, ...]
    pairs: tuple[Pair, ...]
    drifts: tuple[Drift, ...]
    averages: Mapping[str, Averages]
    """By model."""
    inequalities: Mapping[str, Inequality]
    """By task, over the sweep's models."""
    missing: tuple[tuple[str, str, str], ...]
    """Model, task and why there is no score."""
    excluded: Mapping[str, tuple[Excluded, ...]]
    """By task: rows that no model was asked."""


def findings(
    sweep: str,
    asked: Sequence[Asked],
    questions: Mapping[str, Sequence[Question]],
    outcomes: Mapping[str, Outcome],
    records: Mapping[str, Sequence[Record]],
) -> Findings:
    """`questions` by model; `records` by run id, as the ledger keeps them."""
    scores, orders, missing = [], [], []
    for model, own in questions.items():
        for question in own:
            outcome = outcomes.get(question.trial.id)
            if outcome is None or not outcome.finished:
                missing.append((model, question.trial.dataset, _why(outcome)))
            elif question.purpose == "orders":
                orders.append(_order(model, question, outcome))
            else:
                scores.append(_score(model, question, outcome, records.get(outcome.run_id, ())))
    tasks = [each.task for each in asked]
    return Findings(
        sweep=sweep,
        models=tuple(questions),
        scores=tuple(scores),
        orders=tuple(orders),
        pairs=tuple(_pairs(scores, list(questions))),
        drifts=tuple(_drifts(scores, asked)),
        averages={
            model: summary.averages({e.column: e.score for e in scores if e.model == model}, tasks)
            for model in questions
        },
        inequalities=_inequalities(scores, len(questions)),
        missing=tuple(missing),
        excluded={each.name: each.test.excluded for each in asked if each.test.excluded},
    )


def _why(outcome: Outcome | None) -> str:
    if outcome is None:
        return "not asked yet"
    return f"{outcome.kind}: {outcome.error}" if outcome.kind else outcome.error or "interrupted"


def _score(
    model: str, question: Question, outcome: Outcome, records: Sequence[Record]
) -> TaskScore:
    task = question.asked.task
    figures = {
        name.removeprefix("test_"): value
        for name, value in outcome.metrics.items()
        if name.startswith("test_")
    }
    return TaskScore(
        model=model,
        task=question.asked.name,
        column=task.column,
        category=task.category,
        metric=task.metric,
        trial=outcome.trial.id,
        score=outcome.test,
        interval=_interval(task.metric, outcome, records),
        n=outcome.n,
        excluded=int(outcome.tags.get("rows_excluded", "0")),
        figures=figures,
        facts=outcome.tags,
        choices=_choices(question, records),
        records=records,
    )


def _interval(metric: str, outcome: Outcome, records: Sequence[Record]) -> Interval:
    if metric in SHARES:
        return wilson(round(outcome.test * outcome.n / 100), outcome.n)
    if metric == "bleu" or not records:
        # No mean over rows: its rows' own figures say nothing about the corpus'.
        return UNKNOWN
    return bootstrap([float(each["score"]) for each in records])


def _choices(question: Question, records: Sequence[Record]) -> Choices | None:
    """Of the rows that the model was asked: some may be too long for it."""
    if question.asked.task.answered == "text" or not records:
        return None
    items = {item.index: item for item in question.items}
    asked = [items[each["row"]] for each in records]
    found = replace(question.asked.test, scored=tuple(asked))
    return summary.choices(
        found, [each["prediction"] for each in records], question.asked.validation.scored
    )


def _order(model: str, question: Question, outcome: Outcome) -> OrderScore:
    chose = "validation_chose_"
    letters = {
        name.removeprefix(chose): int(value)
        for name, value in outcome.metrics.items()
        if name.startswith(chose)
    }
    rows = int(outcome.metrics.get("validation_orders_rows", 0))
    stability = outcome.metrics.get("validation_stability", math.nan)
    return OrderScore(model, question.trial.dataset, stability, rows, dict(sorted(letters.items())))


def _pairs(scores: Sequence[TaskScore], models: Sequence[str]) -> Iterator[Pair]:
    by_cell = {(each.task, each.model): each for each in scores}
    for task in dict.fromkeys(each.task for each in scores):
        for first, second in combinations(models, 2):
            a, b = by_cell.get((task, first)), by_cell.get((task, second))
            if a is not None and b is not None and a.records and b.records:
                yield Pair(task, first, second, summary.paired(_by_item(a), _by_item(b)))


def _by_item(score: TaskScore) -> dict[str, float]:
    return {each["item"]: float(each["score"]) for each in score.records}


def _drifts(scores: Sequence[TaskScore], asked: Sequence[Asked]) -> Iterator[Drift]:
    """The threshold is chosen on the task's own references, which people wrote in Turkish."""
    humans = {
        each.name: [text for item in each.test.scored for text in item.references]
        for each in asked
        if each.task.answered == "text"
    }
    thresholds = {
        task: language.abstention(texts)
        for task, texts in humans.items()
        if len(texts) >= TURKISH_REFERENCES
    }
    for each in scores:
        if each.task in thresholds and each.records:
            known = thresholds[each.task]
            texts = [str(record["prediction"]) for record in each.records]
            yield Drift(each.model, each.task, known.threshold, language.languages(texts, known))


def _inequalities(scores: Sequence[TaskScore], models: int) -> dict[str, Inequality]:
    if models < 2:
        return {}
    found: dict[str, list[float]] = {}
    for each in scores:
        found.setdefault(each.task, []).append(each.score)
    return {task: summary.inequality(each) for task, each in found.items() if len(each) > 1}

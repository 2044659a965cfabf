"""Replies -> what each item was answered, and a task's figures. Pure; asks nobody."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tabiflow.evaluation.store import Reply
from tabiflow.evaluation.trials import Question
from tabiflow.generative import summary
from tabiflow.generative.metrics import SCORERS, Scores, choice_scores
from tabiflow.generative.prompts import Item
from tabiflow.generative.scoring import RULES, Likelihood, chosen, cut, first_best, read_mark
from tabiflow.spec.benchmark import Rule
from tabiflow.trial import Result

Said = int | str | None
"""The option chosen, counted from 0; None where an answer names none; or the text of an answer."""


@dataclass(frozen=True)
class Scored:
    """A task's figures with what each of its rows was answered."""

    said: tuple[Said, ...]
    scores: Scores
    headline: float


def said(question: Question, item: Item, reply: Reply, rule: Rule | None = None) -> Said:
    """`rule` is another than the task's own."""
    task = question.asked.task
    match task.answered:
        case "option":
            return chosen(likelihoods(item, reply), rule or task.rule or "sum")
        case "letter":
            return first_best(reply.logprobs)
        case "written_letter":
            template = question.asked.template
            return read_mark(_text(question, reply), item.marks, anywhere=template.anywhere)
        case "text":
            return _text(question, reply)


def likelihoods(item: Item, reply: Reply) -> list[Likelihood]:
    return [
        Likelihood(logprob, tokens, len(continuation.strip()))
        for logprob, tokens, continuation in zip(
            reply.logprobs, reply.tokens, item.continuations, strict=True
        )
    ]


def _text(question: Question, reply: Reply) -> str:
    wanted = question.generation
    return cut(reply.text, wanted.stop if wanted else ())


def scored(question: Question, items: Sequence[Item], replies: Sequence[Reply]) -> Scored:
    """Every rule's accuracy stands beside that of the task's own."""
    answers = [said(question, *each) for each in zip(items, replies, strict=True)]
    task = question.asked.task
    if task.answered == "text":
        scores = SCORERS[task.metric](items, [str(each) for each in answers])
        return Scored(tuple(answers), scores, scores.figures[task.metric])
    scores = choice_scores(items, [each if isinstance(each, int) else None for each in answers])
    figures = {**scores.figures, **_of_rules(question, items, replies)}
    scores = Scores(figures, scores.rows, f"rule:{task.rule or task.answered}|{scores.signature}")
    return Scored(tuple(answers), scores, figures["accuracy"])


def _of_rules(
    question: Question, items: Sequence[Item], replies: Sequence[Reply]
) -> dict[str, float]:
    if question.asked.task.answered != "option":
        return {}
    found = {}
    for rule in RULES:
        answers = [
            said(question, *each, rule=rule) == each[0].gold
            for each in zip(items, replies, strict=True)
        ]
        found[f"accuracy_{rule}"] = 100 * sum(answers) / len(answers) if answers else math.nan
    return found


def result(
    question: Question,
    items: Sequence[Item],
    replies: Sequence[Reply],
    facts: Mapping[str, str | int | float],
) -> Result:
    """For the ledger: figures of test, or of option orders on validation."""
    if question.purpose == "orders":
        return _orders(question, items, replies, facts)
    found = scored(question, items, replies)
    return Result(
        epoch=0,
        score=math.nan,
        metrics={f"test_{name}": value for name, value in found.scores.figures.items()},
        test=found.headline,
        n=len(items),
        facts={"signature": found.scores.signature, **facts},
        predictions=tuple(
            record(question, item, reply, answer, score)
            for item, reply, answer, score in zip(
                items, replies, found.said, found.scores.rows, strict=True
            )
        ),
    )


def record(
    question: Question, item: Item, reply: Reply, answer: Said, score: float
) -> dict[str, Any]:
    """All that is kept of a row, in one place."""
    gold: Any = item.gold if question.asked.task.answered != "text" else list(item.references)
    return {
        "row": item.index,
        "item": item.hash,
        "prompt": item.prompt,
        "continuations": list(item.continuations),
        "logprobs": list(reply.logprobs),
        "tokens": list(reply.tokens),
        "text": reply.text,
        "prediction": answer,
        "reference": gold,
        "score": score,
    }


def _orders(
    question: Question,
    items: Sequence[Item],
    replies: Sequence[Reply],
    facts: Mapping[str, str | int | float],
) -> Result:
    answers = [said(question, *each) for each in zip(items, replies, strict=True)]
    found = summary.orders(by_row(question, items, answers))
    letters = {f"validation_chose_{name}": float(times) for name, times in found.letters.items()}
    figures = {"validation_stability": found.stability, "validation_orders_rows": found.rows}
    return Result(
        epoch=0,
        score=found.stability,
        metrics={**figures, **letters},
        facts=facts,
        predictions=tuple(
            record(question, item, reply, answer, 100.0 * (answer == item.gold))
            for item, reply, answer in zip(items, replies, answers, strict=True)
        ),
    )


def by_row(
    question: Question, items: Sequence[Item], answers: Sequence[Said]
) -> list[list[int | None]]:
    """The answers to all orders of each row. Rows with an order that was not asked are left out."""
    found: dict[int, list[int | None]] = {}
    for item, answer in zip(items, answers, strict=True):
        found.setdefault(item.index, []).append(answer if isinstance(answer, int) else None)
    whole = {row[0].index: len(row) for row in question.asked.turned}
    return [found[index] for index in found if len(found[index]) == whole[index]]

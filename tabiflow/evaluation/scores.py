"""Replies -> what each item was answered, and what the ledger keeps of a task. Asks nobody."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tabiflow.evaluation.store import Reply
from tabiflow.evaluation.trials import Question
from tabiflow.generative import result as figures
from tabiflow.generative import summary
from tabiflow.generative.asking import Asked
from tabiflow.generative.prompts import Excluded, Item
from tabiflow.generative.scoring import Likelihood, chosen, cut, first_best, read_mark
from tabiflow.trial import Result

Said = int | str | None
"""The option chosen, counted from 0; None where an answer names none; or the text of an answer."""
Facts = Mapping[str, str | int | float]


def said(asked: Asked, item: Item, reply: Reply) -> Said:
    match asked.task.answered:
        case "option":
            return chosen(likelihoods(item, reply), asked.task.rule or "sum")
        case "letter":
            return first_best(reply.logprobs)
        case "written_letter":
            anywhere = asked.template.anywhere
            return read_mark(_text(asked, reply), item.marks, anywhere=anywhere)
        case "text":
            return _text(asked, reply)


def likelihoods(item: Item, reply: Reply) -> list[Likelihood]:
    return [
        Likelihood(logprob, tokens, len(continuation.strip()))
        for logprob, tokens, continuation in zip(
            reply.logprobs, reply.tokens, item.continuations, strict=True
        )
    ]


def _text(asked: Asked, reply: Reply) -> str:
    return cut(reply.text, figures.settings(asked).stop)


def without(asked: Asked, left_out: Sequence[Excluded]) -> Asked:
    """The task without rows that a model cannot be asked."""
    gone = {each.index for each in left_out}
    kept = tuple(item for item in asked.test.scored if item.index not in gone)
    test = replace(asked.test, scored=kept, excluded=(*asked.test.excluded, *left_out))
    return replace(asked, test=test)


def scored(asked: Asked, replies: Sequence[Reply]) -> figures.Result:
    """`replies` are those to `asked.test.scored`."""
    match asked.task.answered:
        case "option":
            items = asked.test.scored
            return figures.of_options(
                asked, [likelihoods(*each) for each in zip(items, replies, strict=True)]
            )
        case "letter":
            return figures.of_letters(asked, [each.logprobs for each in replies])
        case "written_letter" | "text":
            return figures.of_texts(asked, [each.text for each in replies])


def of_test(asked: Asked, replies: Sequence[Reply], facts: Facts) -> Result:
    """A task's scores for the ledger, with all that is kept of each row."""
    found = scored(asked, replies)
    rows = zip(asked.test.scored, replies, found.rows.values(), strict=True)
    return Result(
        epoch=0,
        score=math.nan,
        metrics={f"test_{name}": value for name, value in found.figures.items()},
        test=found.score,
        n=len(asked.test.scored),
        facts={"signature": found.signature, **facts},
        predictions=tuple(record(asked, *each) for each in rows),
    )


def record(asked: Asked, item: Item, reply: Reply, score: float) -> dict[str, Any]:
    return {
        "row": item.index,
        "item": item.hash,
        "prompt": item.prompt,
        "continuations": list(item.continuations),
        "logprobs": list(reply.logprobs),
        "tokens": list(reply.tokens),
        "text": reply.text,
        "prediction": said(asked, item, reply),
        "reference": item.gold if item.options else list(item.references),
        "score": score,
    }


def of_orders(
    question: Question, items: Sequence[Item], replies: Sequence[Reply], facts: Facts
) -> Result:
    """How a model takes the order of options, on validation."""
    asked = question.asked
    answers = [said(asked, *each) for each in zip(items, replies, strict=True)]
    found = summary.orders(_by_row(asked, items, answers))
    letters = {f"validation_chose_{name}": float(times) for name, times in found.letters.items()}
    own = {"validation_stability": found.stability, "validation_orders_rows": float(found.rows)}
    rows = zip(items, replies, answers, strict=True)
    return Result(
        epoch=0,
        score=found.stability,
        metrics={**own, **letters},
        facts=facts,
        predictions=tuple(
            record(asked, item, reply, 100.0 * (answer == item.gold))
            for item, reply, answer in rows
        ),
    )


def _by_row(asked: Asked, items: Sequence[Item], answers: Sequence[Said]) -> list[list[int | None]]:
    """The answers to all orders of each row; a row of which one was not asked is left out."""
    found: dict[int, list[int | None]] = {}
    for item, answer in zip(items, answers, strict=True):
        found.setdefault(item.index, []).append(answer if isinstance(answer, int) else None)
    whole = {row[0].index: len(row) for row in asked.orders}
    return [found[index] for index in found if len(found[index]) == whole[index]]

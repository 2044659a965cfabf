"""A task asked of a model, as a trial: what its id is taken over."""

from dataclasses import dataclass
from typing import Any, Literal

from tabiflow.generative.asking import Asked
from tabiflow.generative.prompts import Item, digest
from tabiflow.generative.result import settings
from tabiflow.spec import Generator
from tabiflow.trial import GENERATING, Trial

Purpose = Literal["score", "orders"]
"""`score`: the task's test rows. `orders`: validation rows in every order of their options."""


@dataclass(frozen=True)
class Question:
    """One trial and what it asks, in the order in which answers are kept."""

    asked: Asked
    purpose: Purpose
    items: tuple[Item, ...]
    trial: Trial


def questions(generator: Generator, engine: str, asked: Asked) -> tuple[Question, ...]:
    """The test rows, then the option orders where they are asked for. `engine` is `vllm`,
    `embedded`, or `endpoint` for a server that somebody else runs."""
    found = [_question(generator, engine, asked, "score", asked.test.scored)]
    if asked.orders:
        turned = tuple(item for row in asked.orders for item in row)
        found.append(_question(generator, engine, asked, "orders", turned))
    return tuple(found)


def _question(
    generator: Generator, engine: str, asked: Asked, purpose: Purpose, items: tuple[Item, ...]
) -> Question:
    """In the id: model and its revision, the task's row and version, every prompt, what the rows
    hold, engine, decoding and the rule by which an option is chosen. Not in it: how many
    replicas answer, where, and what else the sweep asks."""
    limited = purpose == "score" and asked.test.unasked
    trial = Trial(
        model=generator.name,
        dataset=asked.name,
        model_identity=generator.identity,
        dataset_identity=_identity(asked, items),
        params=None,
        split="test" if purpose == "score" else "validation",
        limit={"test": len(items)} if limited else {},
        runner={"name": GENERATING, "asks": purpose, "engine": engine},
    )
    return Question(asked, purpose, items, trial)


def _identity(asked: Asked, items: tuple[Item, ...]) -> dict[str, Any]:
    task = asked.task
    identity: dict[str, Any] = {
        "task": task.answered,
        "version": task.version,
        "template": asked.template.hash,
        "prompts": digest([each.hash for each in items]),
        "rows": digest([each.content for each in items]),
        "metric": task.metric,
    }
    if task.rule is not None:
        identity["rule"] = task.rule
    if task.generation is not None:
        identity["generation"] = settings(asked).model_dump(mode="json")
    return identity

"""Rows -> items: the prompt that a model sees, what may follow it, and what would be right.

A row that cannot be scored is excluded by its index and the reason, never guessed at. Nothing is
cut here: whoever knows the tokens finds what does not fit with `too_long`.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tabiflow.generative.sandbox import TemplateFault, text_of, value_of
from tabiflow.generative.templates import Template
from tabiflow.spec import BenchmarkTask

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Item:
    """One row, ready to be asked."""

    index: int
    """In the split, counted from 0, over all configurations."""
    prompt: str
    content: str
    """Hash of what the row holds, whatever the prompt."""
    options: tuple[str, ...] = ()
    continuations: tuple[str, ...] = ()
    """One an option, to be appended to the prompt as they are; empty where the answer is written
    freely."""
    marks: tuple[str, ...] = ()
    """What a written answer calls the options."""
    gold: int | None = None
    """The right option, counted from 0."""
    references: tuple[str, ...] = ()
    source: str = ""
    """Of a correction: what was to be corrected."""
    subject: str = ""

    @property
    def hash(self) -> str:
        """Of everything that a model is shown or scored on."""
        return digest([self.prompt, *self.continuations])


@dataclass(frozen=True)
class Excluded:
    index: int
    content: str
    reason: str


@dataclass(frozen=True)
class Items:
    """What of a split can be asked. The denominator is `len(scored)`, out of `rows`."""

    scored: tuple[Item, ...]
    excluded: tuple[Excluded, ...]
    unasked: int = 0
    """Rows that could be scored and that a limit leaves out."""

    @property
    def rows(self) -> int:
        return len(self.scored) + len(self.excluded) + self.unasked

    @property
    def hash(self) -> str:
        """Of all prompts, in their order."""
        return digest([each.hash for each in self.scored])


def items(task: BenchmarkTask, template: Template, rows: Iterable[Mapping[str, Any]]) -> Items:
    """A row may have `_subject`: the configuration that it comes from."""
    scored: list[Item] = []
    excluded: list[Excluded] = []
    for index, row in enumerate(rows):
        try:
            scored.append(_item(task, template, index, row))
        except TemplateFault as fault:
            excluded.append(Excluded(index, _content(task, row), str(fault)))
    return Items(tuple(scored), tuple(excluded))


def rotations(
    task: BenchmarkTask, template: Template, index: int, row: Mapping[str, Any]
) -> tuple[Item, ...]:
    """The item with its options in every cyclic order: in turn `shift`, option `shift` comes first.

    For tasks that show their options. Raises TemplateFault for a row that cannot be scored.
    """
    first = _item(task, template, index, row)
    assert first.gold is not None
    turned = []
    for shift in range(len(first.options)):
        item = _item(task, template, index, _turned(task, row, shift))
        gold = (first.gold - shift) % len(first.options)
        turned.append(replace(item, gold=gold, content=first.content))
    return tuple(turned)


def _turned(task: BenchmarkTask, row: Mapping[str, Any], shift: int) -> dict[str, Any]:
    """The row with its options moved, so that any template shows them so."""
    names = str(task.options).strip("[]").split(", ")
    if len(names) == 1:
        options = row[names[0]]
        return {**row, names[0]: [*options[shift:], *options[:shift]]}
    turned = [*names[shift:], *names[:shift]]
    return {**row, **{name: row[other] for name, other in zip(names, turned, strict=True)}}


def lettered(options: Sequence[str]) -> str:
    return "\n".join(f"{letter}) {text}" for letter, text in zip(LETTERS, options, strict=False))


def too_long(lengths: Sequence[int], limit: int) -> tuple[int, ...]:
    """Places of prompts of more tokens than the model takes with what follows them."""
    return tuple(place for place, length in enumerate(lengths) if length > limit)


def digest(parts: Sequence[str]) -> str:
    """16 hex digits; where one part ends and the next begins counts."""
    text = json.dumps(list(parts), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _item(task: BenchmarkTask, template: Template, index: int, row: Mapping[str, Any]) -> Item:
    options = _options(task, row)
    prompt = text_of(template.prompt, {**row, "lettered": lettered(options)})
    common: dict[str, Any] = {
        "index": index,
        "content": _content(task, row),
        "options": options,
        "source": str(value_of(task.source, row)) if task.source else "",
        "subject": str(
            row.get("_subject") or (value_of(task.subject, row) if task.subject else "")
        ),
    }
    if task.answered == "text":
        return Item(prompt=prompt, references=_references(task, row), **common)
    gold = _gold(task, row, len(options))
    if task.answered == "written_letter":
        marks = template.marks or tuple(LETTERS[: len(options)])
        return Item(prompt=prompt, marks=marks, gold=gold, **common)
    following = _continuations(task, template, row, options)
    prompt, continuations = joined(prompt, template.delimiter, following)
    return Item(prompt=prompt, continuations=continuations, gold=gold, **common)


def joined(prompt: str, delimiter: str, following: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """White space at the prompt's end goes over to what follows: tokenizers join it with a word."""
    bare = prompt.rstrip()
    space = prompt[len(bare) :] + delimiter
    return bare, tuple(space + each for each in following)


def _options(task: BenchmarkTask, row: Mapping[str, Any]) -> tuple[str, ...]:
    if not isinstance(task.options, str) or not task.options:
        return tuple(task.options)
    found = value_of(task.options, row)
    if not isinstance(found, list | tuple):
        raise TemplateFault(f"its options are no list: {found!r}")
    options = tuple("" if each is None else str(each) for each in found)
    if not 2 <= len(options) <= len(LETTERS):
        raise TemplateFault(f"it has {len(options) or 'no'} option{'s' * (len(options) != 1)}")
    if not all(each.strip() for each in options):
        raise TemplateFault("an option is empty")
    return options


def _gold(task: BenchmarkTask, row: Mapping[str, Any], options: int) -> int:
    found = value_of(task.gold, row)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < options:
        raise TemplateFault(f"its answer {found!r} is none of the {options} options")
    return found


def _references(task: BenchmarkTask, row: Mapping[str, Any]) -> tuple[str, ...]:
    found = value_of(task.gold, row)
    texts = [found] if isinstance(found, str) else found
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise TemplateFault("its reference is no text")
    kept = tuple(each for each in texts if each.strip())
    if not kept:
        raise TemplateFault("it has no reference")
    return kept


def _continuations(
    task: BenchmarkTask, template: Template, row: Mapping[str, Any], options: Sequence[str]
) -> Sequence[str]:
    wanted = template.continuations
    if wanted is None:
        return options if task.answered == "option" else tuple(LETTERS[: len(options)])
    found = value_of(wanted, row) if isinstance(wanted, str) else wanted
    if not isinstance(found, list | tuple) or len(found) != len(options):
        raise TemplateFault(f"the template has not one continuation for each of {len(options)}")
    return [str(each) for each in found]


def _content(task: BenchmarkTask, row: Mapping[str, Any]) -> str:
    return digest(
        [
            json.dumps(row.get(name), ensure_ascii=False, default=str, sort_keys=True)
            for name in task.fields
        ]
    )

"""An evaluation -> for every task what is asked of a model: rows, prompts, hashes, exclusions.

The whole question of a run is decided here, before there is a server: whoever has one asks the
items and scores the answers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tabiflow.errors import UserError, near
from tabiflow.generative import checkout, choices, origin
from tabiflow.generative.prompts import Item, Items, items, rotations
from tabiflow.generative.sandbox import TemplateFault
from tabiflow.generative.takeover import Left, take_over
from tabiflow.generative.templates import TEMPLATES, Template
from tabiflow.registry import dataset_files
from tabiflow.registry.cetvel import CATEGORIES, TASKS
from tabiflow.spec import BenchmarkTask, Generation
from tabiflow.spec.evaluation import Evaluation, OwnTask
from tabiflow.statistics import SEED

ALL = "cetvel"


@dataclass(frozen=True)
class Asked:
    """One task, with all that decides its score but the model."""

    name: str
    task: BenchmarkTask
    template: Template
    left: tuple[Left, ...]
    """What of a checkout's prompt could not be taken over."""
    test: Items
    validation: Items
    orders: tuple[tuple[Item, ...], ...]
    """Of validation's rows, where asked for: each in every cyclic order of its options."""
    where: str
    commit: str = ""
    released: bool = False
    """Whether the rows are those of the benchmark's release, and not one's own or the example's."""

    @property
    def comparable(self) -> bool:
        """Whether a score can stand beside a published one, as far as the question decides it."""
        return self.template.comparable and self.released and not self.test.unasked


def asked(evaluation: Evaluation) -> Iterator[Asked]:
    """Raises UserError for names and rows that cannot be, CellError for data that cannot be had."""
    found = checkout.read(evaluation.checkout) if evaluation.checkout else None
    for name, entry in _entries(evaluation).items():
        if isinstance(entry, BenchmarkTask):
            source = origin.opened(entry, evaluation.data)
            yield _asked(evaluation, name, entry, _template(entry, found), source)
        else:
            yield _own(evaluation, *entry, found)


def _entries(evaluation: Evaluation) -> dict[str, BenchmarkTask | tuple[OwnTask, int]]:
    """By name; the same task twice is one, two of one name are a mistake."""
    found: dict[str, BenchmarkTask | tuple[OwnTask, int]] = {}
    for index, entry in enumerate(evaluation.tasks):
        if isinstance(entry, str):
            named: dict[str, Any] = {task.name: task for task in _named(evaluation, entry, index)}
        else:
            named = {entry.name: (entry, index)}
        for name, each in named.items():
            if found.setdefault(name, each) != each:
                raise evaluation.source.error(f"`{name}` names two tasks", "tasks", index)
    return found


def _named(evaluation: Evaluation, entry: str, index: int) -> Sequence[BenchmarkTask]:
    chosen = [task for task in TASKS if entry in (ALL, task.category, task.name)]
    if not chosen:
        known = [ALL, *CATEGORIES, *(task.name for task in TASKS)]
        hint = near(entry, known) or "`tabiflow list tasks` shows them"
        raise evaluation.source.error(f"unknown task `{entry}`", "tasks", index, hint=hint)
    return chosen


def _template(
    task: BenchmarkTask, found: checkout.Checkout | None
) -> tuple[Template, tuple[Left, ...]]:
    own = TEMPLATES[task.name]
    if found is None:
        return own, ()
    taken = take_over(task, found, own)
    return taken.template, tuple(taken.left)


def _own(
    evaluation: Evaluation, entry: OwnTask, index: int, found: checkout.Checkout | None
) -> Asked:
    if entry.choices is not None:
        made = _questions(evaluation, entry)
    else:
        (task,) = _named(evaluation, entry.like or "", index)[:1]
        source = origin.in_folder(task, entry.path)
        asked = _asked(evaluation, entry.name, task, _template(task, found), source)
        made = replace(asked, released=False)
    if entry.prompt not in (None, made.template.hash):
        raise evaluation.source.error(
            f"the prompt is {made.template.hash}, not the one that was settled",
            *("tasks", index, "prompt"),
        )
    return made


def _asked(
    evaluation: Evaluation,
    name: str,
    task: BenchmarkTask,
    prompt: tuple[Template, tuple[Left, ...]],
    source: origin.Origin,
) -> Asked:
    template, left = prompt
    if beams := evaluation.written.beams:
        task = task.model_copy(update={"generation": _with_beams(task.generation, beams)})
        template = replace(template, generation=_with_beams(template.generation, beams))
    made = {
        role: items(task, template, rows)
        for role, rows in (("test", source.test), ("validation", source.validation))
    }
    if not task.exclusions and not evaluation.written.exclude_invalid:
        choices.complete(made["test"], f"{source.where} (test)")
    return _limited(
        evaluation,
        Asked(
            name=name,
            task=task,
            template=template,
            left=left,
            **made,
            orders=(),
            where=source.where,
            commit=source.commit,
            released=evaluation.data != "example",
        ),
        source.validation,
    )


def _with_beams(generation: Generation | None, beams: int) -> Generation | None:
    return generation and generation.model_copy(update={"beams": beams})


def _questions(evaluation: Evaluation, entry: OwnTask) -> Asked:
    letters = entry.choices == "letters"
    task = choices.LETTER_TASK if letters else choices.OPTION_TASK
    template = choices.LETTER_TEMPLATE if letters else choices.OPTION_TEMPLATE
    files = _question_files(entry.path)
    exclude = evaluation.written.exclude_invalid
    seen = (
        choices.read(files["validation"], task=task, template=template)
        if "validation" in files
        else None
    )
    test = choices.read(files["test"], task=task, template=template, seen=seen)
    found = Asked(
        name=entry.name,
        task=task,
        template=template,
        left=(),
        test=choices.settled(test, exclude_invalid=exclude),
        validation=choices.settled(seen, exclude_invalid=exclude) if seen else Items((), ()),
        orders=(),
        where=str(entry.path),
    )
    return _limited(evaluation, found, seen.rows if seen else [])


def _question_files(folder: Path) -> Mapping[str, Path]:
    found = dataset_files(folder)
    tables = {role: folder / f"{role}.csv" for role in ("test", "validation")}
    found |= {role: file for role, file in tables.items() if file.is_file()}
    if "test" not in found:
        hint = "put test.csv, test.jsonl or test.parquet there"
        raise UserError("no questions", where=str(folder), hint=hint)
    return found


def _limited(
    evaluation: Evaluation, whole: Asked, validation: Sequence[Mapping[str, Any]]
) -> Asked:
    """Fewer rows, if the sweep says so, and of validation's those orders that it asks for."""
    limit = evaluation.written.limit
    kept = replace(
        whole,
        test=drawn(whole.test, limit.test),
        validation=drawn(whole.validation, limit.validation),
    )
    shown = whole.task.answered in ("letter", "written_letter")
    if not evaluation.written.orders or not (shown or "lettered" in whole.template.prompt):
        return kept
    return replace(kept, orders=tuple(_orders(kept, validation)))


def _orders(found: Asked, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Item, ...]]:
    for item in found.validation.scored:
        try:
            yield rotations(found.task, found.template, item.index, rows[item.index])
        except TemplateFault as fault:
            raise UserError(f"row {item.index} in another order: {fault}") from fault


def drawn(found: Items, keep: int | None) -> Items:
    """So many of the rows that can be scored, drawn by a fixed seed, in their order."""
    if keep is None or keep >= len(found.scored):
        return found
    order = np.random.default_rng(SEED).permutation(len(found.scored))[:keep]
    kept = tuple(found.scored[place] for place in sorted(order.tolist()))
    return replace(found, scored=kept, unasked=len(found.scored) - keep)

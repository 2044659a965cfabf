"""What of a checkout's task can be taken for a prompt of ours, and what could not, by name.

The wording is taken: prompt, what follows it, how a written answer is read, where it stops. What
is right is always the row's own rule, and so is the metric. Whatever would need the checkout's
Python code is left, and said.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tabiflow.generative.checkout import Checkout, Code, Written
from tabiflow.generative.sandbox import TemplateFault, check, sole_expression
from tabiflow.generative.templates import Template
from tabiflow.spec import BenchmarkTask, Generation

OUTPUT_TYPES = {
    "option": "multiple_choice",
    "letter": "multiple_choice",
    "written_letter": "generate_until",
    "text": "generate_until",
}
HARNESS_STOP = ("\n\n",)
"""Where lm-evaluation-harness stops if a task does not say."""
_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens")
_CLASS = re.compile(r"\[((?:\w-\w|\w)+)\]")
"""A regular expression that is one class of characters, the only one that is taken over."""


@dataclass(frozen=True)
class Left:
    """Something of a task that was not taken over."""

    task: str
    key: str
    where: str
    reason: str
    instead: str


@dataclass
class Taken:
    """What a task is asked with. `left` says what of it is not the checkout's."""

    task: str
    template: Template
    left: list[Left] = field(default_factory=list)

    @property
    def wording(self) -> bool:
        """Whether the prompt is the checkout's."""
        return self.template.origin != "tabiflow"


def take_over(task: BenchmarkTask, checkout: Checkout, own: Template) -> Taken:
    """`own` is what stays where nothing can be taken."""
    found = [checkout.tasks[name] for name in task.checkout_names if name in checkout.tasks]
    missing = [name for name in task.checkout_names if name not in checkout.tasks]
    if not found:
        left = Left(task.name, "task", str(checkout.folder), "it is not there", "our own prompt")
        return Taken(task.name, own, [left])
    taken = [_Reader(task, written, own).taken() for written in found]
    first = taken[0]
    for name in missing:
        first.left.append(
            Left(task.name, name, str(checkout.folder), "it is not there", "the prompt of the rest")
        )
    for written, each in zip(found[1:], taken[1:], strict=True):
        if each.template.hash != first.template.hash:
            where = written.where("doc_to_text")
            reason = f"its prompt is not that of {found[0].name}"
            first.left.append(
                Left(task.name, written.name, where, reason, "the prompt of the first")
            )
    return first


class _Reader:
    """Reads one task, collecting what it must leave."""

    def __init__(self, task: BenchmarkTask, written: Written, own: Template) -> None:
        self.task, self.written, self.own = task, written, own
        self.left: list[Left] = []

    def taken(self) -> Taken:
        prompt = self._prompt()
        if prompt is None:
            return Taken(self.task.name, self.own, self.left)
        following = self._continuations()
        marks = self._marks()
        self._code()
        whole = not any(each.key in _WORDING for each in self.left)
        template = Template(
            prompt=prompt,
            continuations=following,
            delimiter=self._text("target_delimiter", " "),
            marks=marks,
            anywhere=bool(marks),
            generation=self._generation(),
            origin="checkout",
            comparable=whole,
        )
        return Taken(self.task.name, template, self.left)

    def _leave(self, key: str, reason: str, instead: str) -> None:
        where = self.written.where(key)
        self.left.append(Left(self.task.name, key, where, reason, instead))

    def _text(self, key: str, otherwise: str) -> str:
        value = self.written.values.get(key)
        return value if isinstance(value, str) else otherwise

    def _prompt(self) -> str | None:
        values, instead = self.written.values, "our own prompt"
        if "class" in values:
            self._leave("class", _needs(values["class"]), instead)
            return None
        wanted = OUTPUT_TYPES[self.task.answered]
        if values.get("output_type") != wanted:
            reason = f"it is `{values.get('output_type')}`, not `{wanted}`"
            self._leave("output_type", reason, instead)
            return None
        prompt = self._template("doc_to_text", instead)
        description = values.get("description")
        if prompt is not None and description:
            lead = self._template("description", "the prompt without it")
            prompt = (lead or "") + prompt
        return prompt

    def _template(self, key: str, instead: str) -> str | None:
        """A text in the templates' language; a field's name stands for its value."""
        value = self.written.values.get(key)
        if not isinstance(value, str):
            self._leave(key, _needs(value), instead)
            return None
        template = "{{ " + value + " }}" if value in self.task.fields else value
        try:
            check(template, self.task.fields)
        except TemplateFault as fault:
            self._leave(key, str(fault), instead)
            return None
        return template

    def _continuations(self) -> str | tuple[str, ...] | None:
        if self.task.answered not in ("option", "letter"):
            return None
        value, instead = self.written.values.get("doc_to_choice"), "the row's own options"
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return tuple(value)
        template = self._template("doc_to_choice", instead)
        expression = None if template is None else sole_expression(template)
        if template is not None and expression is None:
            self._leave("doc_to_choice", "it is no list", instead)
        return expression

    def _marks(self) -> tuple[str, ...]:
        """How the first filter finds an option in a written answer."""
        patterns = list(self._patterns())
        if self.task.answered == "text" and any(each != ".*" for each in patterns):
            self._leave("filter_list", "it is a regular expression", "the answer as it is")
        if self.task.answered != "written_letter":
            return ()
        found = _CLASS.fullmatch(patterns[0] or "") if patterns else None
        if found is None:
            self._leave("filter_list", "it is no class of characters", "our own reading")
            return ()
        return tuple(dict.fromkeys(each.upper() for each in _letters(found[1])))

    def _patterns(self) -> Iterator[str | None]:
        filters = self.written.values.get("filter_list")
        for each in filters if isinstance(filters, list) else ():
            steps = each.get("filter") if isinstance(each, dict) else None
            for step in steps if isinstance(steps, list) else ():
                if isinstance(step, dict) and step.get("function") == "regex":
                    pattern = step.get("regex_pattern")
                    yield pattern if isinstance(pattern, str) else None

    def _generation(self) -> Generation | None:
        own = self.task.generation
        if own is None:
            return None
        given = self.written.values.get("generation_kwargs")
        settings = dict(given) if isinstance(given, dict) else {}
        try:
            return self._settings(own, settings)
        except (ValueError, TypeError):
            self._leave("generation_kwargs", "it is not understood", "our own settings")
            return None

    def _settings(self, own: Generation, given: dict[str, Any]) -> Generation:
        until = given.pop("until", list(HARNESS_STOP))
        tokens = [given.pop(name) for name in _TOKENS if name in given]
        found = Generation(
            max_tokens=[*tokens, own.max_tokens][0],
            beams=given.pop("num_beams", own.beams),
            stop=tuple([until] if isinstance(until, str) else until),
        )
        if _true(given.pop("do_sample", False)) or float(given.pop("temperature", 0) or 0):
            self._leave("generation_kwargs", "it samples", "the likeliest answer")
        for name in given:
            self._leave("generation_kwargs", f"`{name}` is unknown here", "nothing")
        return found

    def _code(self) -> None:
        """What Python code of the checkout would decide."""
        instead = {"doc_to_target": "the row's own rule", "process_results": "our own metric"}
        for key in ("doc_to_target", "process_results", "process_docs"):
            value = self.written.values.get(key)
            if isinstance(value, Code):
                self._leave(key, _needs(value), instead.get(key, "the rows as they are"))


_WORDING = ("doc_to_text", "description", "doc_to_choice", "filter_list", "process_docs")
"""What makes a prompt another one if it is left."""


def _needs(value: Any) -> str:
    return f"it is Python code: {value.name}" if isinstance(value, Code) else "it is no text"


def _letters(inside: str) -> Iterator[str]:
    for first, last in re.findall(r"(\w)(?:-(\w))?", inside):
        yield from map(chr, range(ord(first), ord(last or first) + 1))


def _true(value: Any) -> bool:
    return value if isinstance(value, bool) else str(value).lower() in ("true", "yes", "on", "1")

"""The language of templates: a declared part of Jinja, so that a stranger's template can only read
the row that it is given.

What a template may say is listed below and checked on its syntax tree before anything is rendered;
Jinja's sandbox is the second fence. There are no loops, no assignments, no multiplication and no
function that makes text longer than its parts, so that a template costs no more than its length
times the row's. Whatever is not listed is refused by name.
"""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import StrictUndefined, TemplateError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tabiflow.casing import turkish_lower

METHODS = frozenset(
    {"strip", "lstrip", "rstrip", "lower", "upper", "capitalize", "title", "index", "split"}
    | {"startswith", "endswith"}
)
"""Of text and lists; anything else that is called is refused."""
_JINJA_FILTERS = frozenset(
    {"trim", "lower", "upper", "capitalize", "title", "string", "int", "float", "length", "first"}
    | {"last"}
)
_TESTS = frozenset({"defined", "undefined", "none", "string", "number"})
_NODES = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.List),
    *(nodes.Tuple, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Concat, nodes.Add, nodes.Sub),
    *(nodes.Neg, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.CondExpr),
    *(nodes.If, nodes.Call, nodes.Filter, nodes.Test),
)
LONGEST = 50_000
"""Characters of a template."""


class TemplateFault(Exception):
    """A template is outside the language, or a row has not what it asks for."""


def text_of(template: str, row: Mapping[str, Any]) -> str:
    """The template's text for a row."""
    compiled = _template(template)
    text: str = _guarded(lambda: compiled.render(row))
    return text


def value_of(expression: str, row: Mapping[str, Any]) -> Any:
    """The value of an expression, as `label` or `[ending0, ending1]`."""
    compiled = _expression(expression)
    return _guarded(lambda: compiled(row))


def check(template: str, fields: Sequence[str] | None = None) -> None:
    """Raises TemplateFault for what is outside the language or, if given, of none of the fields."""
    tree = _checked(template)
    for name in tree.find_all(nodes.Name):
        if fields is not None and name.name not in fields:
            raise TemplateFault(f"it names `{name.name}`, which is none of {', '.join(fields)}")


def check_expression(expression: str, fields: Sequence[str] | None = None) -> None:
    check("{{ " + expression + " }}", fields)


def sole_expression(template: str) -> str | None:
    """What stands inside a template that is one `{{ ... }}` and nothing else."""
    body = _checked(template.strip()).body
    if len(body) == 1 and isinstance(body[0], nodes.Output) and len(body[0].nodes) == 1:
        inner = template.strip()
        if not isinstance(body[0].nodes[0], nodes.TemplateData) and inner.startswith("{{"):
            return inner.removeprefix("{{").removesuffix("}}").strip()
    return None


def _guarded(render: Callable[[], Any]) -> Any:
    try:
        return render()
    except TemplateError as error:
        raise TemplateFault(str(error.message or type(error).__name__)) from error
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        raise TemplateFault(f"{type(error).__name__}: {error}") from error
    except (RecursionError, MemoryError, SyntaxError) as error:
        raise TemplateFault("it is nested too deeply") from error


@cache
def _template(template: str) -> Any:
    _checked(template)
    return _guarded(lambda: _environment().from_string(template))


@cache
def _expression(expression: str) -> Any:
    check_expression(expression)
    compile_expression = _environment().compile_expression
    return _guarded(lambda: compile_expression(expression, undefined_to_none=False))


def _checked(template: str) -> nodes.Template:
    if len(template) > LONGEST:
        raise TemplateFault(f"it is longer than {LONGEST} characters")
    tree: nodes.Template = _guarded(lambda: _environment().parse(template))
    for node in _all(tree):
        refused = _refused(node)
        if refused:
            raise TemplateFault(f"{refused} is outside the templates' language")
    return tree


def _all(node: nodes.Node) -> Iterator[nodes.Node]:
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += found.iter_child_nodes()


def _refused(node: nodes.Node) -> str | None:
    """What is wrong with one node, in words."""
    if not isinstance(node, _NODES):
        return f"`{type(node).__name__.lower()}`"
    if isinstance(node, nodes.Name) and node.name.startswith("_"):
        return f"`{node.name}`"
    if isinstance(node, nodes.Getattr) and node.attr.startswith("_"):
        return f"`.{node.attr}`"
    if isinstance(node, nodes.Filter) and node.name not in _JINJA_FILTERS | FILTERS.keys():
        return f"the filter `{node.name}`"
    if isinstance(node, nodes.Test) and node.name not in _TESTS:
        return f"the test `{node.name}`"
    if isinstance(node, nodes.Call):
        called = node.node
        if not isinstance(called, nodes.Getattr) or called.attr not in METHODS:
            return f"calling `{getattr(called, 'attr', getattr(called, 'name', 'a value'))}`"
    return None


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    # The harness's settings, so that a taken-over template ends as it does there.
    made = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
    made.globals.clear()
    made.filters.update(FILTERS)
    return made


# What a row's answer is, however its release writes it


def place(value: Any) -> Any:
    """0 for `0`, `"0"`, `A` and `a`: how releases number options. Anything else as it is."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    word = str(value).strip()
    if word.removeprefix("-").isdecimal():
        return int(word)
    if len(word) == 1 and "A" <= word.upper() <= "Z":
        return ord(word.upper()) - ord("A")
    return value


def place_in(value: Any, labels: Sequence[Any]) -> Any:
    """Where the value stands among the labels; itself if it is none of them."""
    return list(labels).index(value) if value in labels else value


def place_of(value: Any, *labels: str) -> Any:
    """For classes that one release numbers and another names."""
    return place_in(value, labels) if isinstance(value, str) and value in labels else place(value)


def binned(value: float, *edges: float) -> int:
    """How many edges lie at or below the value."""
    return sum(value >= edge for edge in edges)


def answer_texts(value: Any) -> list[str]:
    """SQuAD's answers: `{text: [...]}`, or a list of `{text: ...}`."""
    if isinstance(value, Mapping):
        return list(value["text"])
    return [each["text"] for each in value]


def literal_list(value: Any) -> list[Any]:
    """A list, or a text that holds one as Python writes it."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (SyntaxError, MemoryError, RecursionError) as error:
            raise ValueError("no list") from error
    if not isinstance(value, list):
        raise ValueError(f"{type(value).__name__} is no list")
    return value


def open_ended(text: str) -> str:
    """Without its last full stop, so that the sentence can go on."""
    return text.strip().removesuffix(".")


def small(text: str) -> str:
    """With a small first letter, as Turkish writes it: İ to i, I to ı."""
    return turkish_lower(text[:1]) + text[1:]


FILTERS: Mapping[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        *(place, place_in, place_of, binned, answer_texts, literal_list, open_ended, small),
    )
}

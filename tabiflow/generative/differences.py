"""Where the paper's tables, our rows and a user's checkout part ways, task by task. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tabiflow.generative.checkout import Checkout, Code, Written
from tabiflow.generative.takeover import OUTPUT_TYPES, Left, Taken, take_over
from tabiflow.generative.templates import Template
from tabiflow.spec import BenchmarkTask

UNSAID = "–"


@dataclass(frozen=True)
class Difference:
    task: str
    what: str
    paper: str
    ours: str
    checkout: str


@dataclass(frozen=True)
class Compared:
    """A checkout against the rows."""

    taken: tuple[Taken, ...]
    differences: tuple[Difference, ...]
    extra: tuple[str, ...]
    """Tasks of the checkout that the paper's tables do not have."""

    @property
    def left(self) -> tuple[Left, ...]:
        return tuple(left for each in self.taken for left in each.left)


def compare(
    tasks: Sequence[BenchmarkTask],
    own: Mapping[str, Template],
    checkout: Checkout,
    known: Mapping[str, str],
) -> Compared:
    """`known` are the hashes of the prompts that the rows were written beside."""
    taken = tuple(take_over(task, checkout, own[task.name]) for task in tasks)
    found: list[Difference] = []
    for task, each in zip(tasks, taken, strict=True):
        written = [checkout.tasks[name] for name in task.checkout_names if name in checkout.tasks]
        if written:
            found += _of_task(task, written)
            found += _of_prompt(task, own[task.name], each, known)
        else:
            found.append(Difference(task.name, "task", task.column, task.name, "missing"))
    names = {name for task in tasks for name in task.checkout_names}
    return Compared(taken, tuple(found), tuple(sorted(set(checkout.tasks) - names)))


def _of_task(task: BenchmarkTask, written: Sequence[Written]) -> Iterator[Difference]:
    first = written[0].values
    if "class" in first:
        yield Difference(task.name, "definition", UNSAID, "a row", "Python code")
        return
    pairs = (
        ("data set", task.hub, str(first.get("dataset_path", UNSAID)).strip()),
        ("configurations", ", ".join(sorted(task.configs)) or UNSAID, _configs(written)),
        ("split", task.split, _split(first)),
        ("output", OUTPUT_TYPES[task.answered], str(first.get("output_type", UNSAID))),
    )
    for what, ours, theirs in pairs:
        if ours != theirs:
            yield Difference(task.name, what, UNSAID, ours, theirs)
    metrics = _metrics(first)
    rule = f"{task.metric}, {task.rule}" if task.rule else task.metric
    if metrics != rule:
        yield Difference(task.name, "metric", task.paper_metric, rule, metrics)
    yield from _of_generation(task, first)


def _of_generation(task: BenchmarkTask, values: Mapping[str, object]) -> Iterator[Difference]:
    if task.generation is None:
        return
    given = values.get("generation_kwargs")
    settings = given if isinstance(given, dict) else {}
    until = settings.get("until", "\n\n, the harness's own")
    theirs = "".join(map(str, until)) if isinstance(until, list) else str(until)
    ours = "".join(task.generation.stop)
    if ours != theirs:
        yield Difference(task.name, "stop", UNSAID, repr(ours), repr(theirs))
    tokens = next((str(settings[n]) for n in settings if str(n).startswith("max_")), None)
    if tokens != str(task.generation.max_tokens):
        shown = tokens or "256, the harness's own"
        yield Difference(task.name, "tokens", "64", str(task.generation.max_tokens), shown)
    beams = str(settings.get("num_beams", "1"))
    if beams != str(task.generation.beams):
        yield Difference(task.name, "beams", "5", str(task.generation.beams), beams)


def _of_prompt(
    task: BenchmarkTask, own: Template, taken: Taken, known: Mapping[str, str]
) -> Iterator[Difference]:
    if not taken.wording:
        yield Difference(task.name, "prompt", UNSAID, own.hash, "cannot be taken over")
        return
    theirs = taken.template.hash
    if theirs != known.get(task.name):
        theirs += ", other than the one that the row was written beside"
    yield Difference(task.name, "prompt", UNSAID, own.hash, theirs)


def _configs(written: Sequence[Written]) -> str:
    found = [each.values.get("dataset_name") for each in written]
    return ", ".join(sorted(str(name) for name in found if name is not None)) or UNSAID


def _split(values: Mapping[str, object]) -> str:
    """The harness scores the test split where one is named, else the validation split."""
    return str(values.get("test_split") or values.get("validation_split") or UNSAID)


def _metrics(values: Mapping[str, object]) -> str:
    listed = values.get("metric_list")
    names = (
        [each.get("metric") for each in listed if isinstance(each, dict)]
        if isinstance(listed, list)
        else []
    )
    return (
        ", ".join(
            each.name.rsplit(".", 1)[-1] if isinstance(each, Code) else str(each) for each in names
        )
        or UNSAID
    )

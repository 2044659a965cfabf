"""What a user writes to evaluate generative models: which tasks, from where, asked how.

Says `file:line` for every mistake. Does not know which tasks the registry holds.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Discriminator, Field, PositiveInt, Tag, model_validator

from tabiflow.protocol import Frozen
from tabiflow.source import Source
from tabiflow.spec.generator import Generator
from tabiflow.spec.rows import Name


class OwnTask(Frozen):
    """Rows of one's own: a folder with `test` and perhaps `validation`."""

    name: Name
    path: Path
    """Relative to the sweep file."""
    like: str | None = None
    """The benchmark's task whose fields the rows have and whose prompt they get."""
    choices: Literal["letters", "options"] | None = None
    """Questions with `question`, `choices`, `answer` and perhaps `subject`: what is scored."""
    prompt: str | None = Field(None, pattern="^[0-9a-f]{16}$")
    """The hash of the prompt that was settled on validation; another one is refused."""

    @model_validator(mode="after")
    def _one_kind(self) -> "OwnTask":
        if (self.like is None) == (self.choices is None):
            raise ValueError(f"`{self.name}` needs one of `like` and `choices`, and not both")
        return self


class AskedRows(Frozen):
    """Rows kept of each split, by a seeded draw; in their order."""

    test: PositiveInt | None = None
    validation: PositiveInt | None = None


def _entry(value: Any) -> str | None:
    if isinstance(value, str):
        return "name"
    return "row" if isinstance(value, dict | OwnTask | Generator) else None


_NAME_OR_ROW = Discriminator(
    _entry,
    custom_error_type="entry",
    custom_error_message="must be a name or a mapping of keys to values",
)


class WrittenEvaluation(Frozen):
    name: Name
    models: tuple[
        Annotated[Annotated[str, Tag("name")] | Annotated[Generator, Tag("row")], _NAME_OR_ROW], ...
    ] = ()
    """Who is asked; an audit needs none."""
    tasks: tuple[
        Annotated[Annotated[str, Tag("name")] | Annotated[OwnTask, Tag("row")], _NAME_OR_ROW], ...
    ] = Field(min_length=1)
    """Tasks, categories (`MCQA`) or `cetvel` for all of them; or rows of one's own."""
    data: str = "hub"
    """`hub`, `example`, or a folder of `<task>/{validation,test}.{parquet,jsonl}`."""
    checkout: Path | None = None
    """A checkout of the benchmark's repository, whose prompts are taken; else they are ours."""
    limit: AskedRows = AskedRows()
    orders: bool = False
    """Ask validation's rows with their options in every cyclic order, too."""
    beams: PositiveInt | None = None
    """Of every text that is written, 1 being greedy; None is what each task's row says."""
    exclude_invalid: bool = False
    """Go on without rows that cannot be scored, beyond those that a task's row foresees."""


@dataclass(frozen=True)
class Evaluation:
    """The written file, its paths made absolute."""

    source: Source
    written: WrittenEvaluation
    models: tuple[str | Generator, ...]
    tasks: tuple[str | OwnTask, ...]
    data: Literal["hub", "example"] | Path
    checkout: Path | None

    @classmethod
    def read(cls, file: Path) -> "Evaluation":
        source = Source.read(file)
        written = source.validate(WrittenEvaluation, source.plain)
        return cls(
            source,
            written,
            tuple(_placed(source, each, "models", n) for n, each in enumerate(written.models)),
            tuple(_placed(source, each, "tasks", n) for n, each in enumerate(written.tasks)),
            _data(source, written.data),
            _folder(source, written.checkout, "checkout") if written.checkout else None,
        )


def is_evaluation(file: Path) -> bool:
    """Whether a sweep file asks generative models rather than fine-tunes encoders."""
    return "tasks" in Source.read(file).tree


Entry = TypeVar("Entry", str | Generator, str | OwnTask)


def _placed(source: Source, entry: Entry, *place: str | int) -> Entry:
    """A row's folder, made absolute: servers run elsewhere."""
    if isinstance(entry, str) or entry.path is None:
        return entry
    return entry.model_copy(update={"path": _folder(source, entry.path, *place, "path")})


def _data(source: Source, value: str) -> Literal["hub", "example"] | Path:
    match value:
        case "hub" | "example":
            return value
    return _folder(source, Path(value), "data")


def _folder(source: Source, path: Path, *place: str | int) -> Path:
    with source.blaming(*place):
        folder = (source.file.parent / path.expanduser()).resolve()
        if not folder.is_dir():
            raise source.error(f"there is no folder {folder}", *place)
    return folder

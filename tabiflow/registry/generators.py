"""The generative models that tabiflow knows, and how a sweep's entries become rows with revisions.

No row pins a commit: the one that a name resolved to is recorded with each trial.
"""

from pathlib import Path

from tabiflow.errors import UserError, near
from tabiflow.registry import UNPINNED, local
from tabiflow.spec import Evaluation, Generator

GENERATORS: tuple[Generator, ...] = (
    Generator(
        name="example-generator",
        title="example generator",
        build="generator",
        revision="1",
        max_length=1024,
        notes="Two small layers with random weights, byte-level BPE. Shows that things run.",
    ),
    Generator(name="qwen2.5-0.5b", title="Qwen2.5-0.5B", hub="Qwen/Qwen2.5-0.5B"),
    Generator(name="qwen2.5-1.5b", title="Qwen2.5-1.5B", hub="Qwen/Qwen2.5-1.5B"),
    Generator(name="qwen2.5-7b", title="Qwen2.5-7B", hub="Qwen/Qwen2.5-7B"),
    Generator(name="llama-3.1-8b", title="Llama-3.1-8B", hub="meta-llama/Llama-3.1-8B"),
    Generator(name="kanarya-2b", title="Kanarya-2B", hub="asafaya/kanarya-2b"),
)


def generator(name: str) -> Generator:
    """By its name, its folder, or its id on the hub. Raises UserError with a near name."""
    found = [each for each in GENERATORS if each.name == name]
    if found:
        return revised(found[0])
    folder = Path(name).expanduser()
    if folder.is_dir():
        return revised(Generator(name=folder.resolve().name, path=folder.resolve()))
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return revised(Generator(name=name.partition("/")[2], hub=name))
    hint = near(name, [each.name for each in GENERATORS])
    raise UserError(
        f"no model `{name}`", hint=hint or "write a folder, or an id of the hub: `owner/name`"
    )


def revised(row: Generator) -> Generator:
    """With the revision that its trials' identity holds: of a folder the hash of its bytes."""
    if row.path is None:
        return row if row.revision else row.model_copy(update={"revision": UNPINNED})
    if not (row.path / "config.json").is_file():
        raise UserError(f"model `{row.name}`: no config.json in {row.path}")
    files = [file for file in row.path.rglob("*") if file.is_file()]
    return row.model_copy(update={"revision": local.revision(row.path, files)})


def asked_models(evaluation: Evaluation) -> tuple[Generator, ...]:
    """Raises SpecError at the line of an unknown name, and where none is named."""
    if not evaluation.models:
        hint = "write `models: [...]`: names, or rows with a `path` or `hub`"
        raise evaluation.source.error("`models` is missing: nobody is asked", hint=hint)
    found: dict[str, Generator] = {}
    for index, entry in enumerate(evaluation.models):
        try:
            row = generator(entry) if isinstance(entry, str) else revised(entry)
        except UserError as error:
            where = evaluation.source.where("models", index)
            raise type(error)(error.message, where=where, hint=error.hint) from error
        if found.setdefault(row.name, row) != row:
            told = f"`{row.name}` names two different rows"
            raise evaluation.source.error(told, "models", index)
    return tuple(found.values())

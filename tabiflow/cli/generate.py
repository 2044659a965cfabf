"""The verbs about generative models: serve one, ask some the benchmark."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from tabiflow import ledger, provenance
from tabiflow.cli.common import FAILED, err, say, table
from tabiflow.interrupts import sigterm_as_ctrl_c
from tabiflow.registry import generators
from tabiflow.spec import Evaluation, Generator, Replicas
from tabiflow.trial import Outcome


@click.command()
@click.argument("model")
@click.option("--engine", type=click.Choice(("vllm", "embedded")), help="Default: vLLM, if there.")
@click.option("--replicas", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--max-replicas", type=click.IntRange(min=1), help="Start more as requests need it.")
@click.option("--tensor-parallel", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--gpus", type=float, help="Share of a GPU of each process; default: 1 if there.")
@click.option("--dtype", type=click.Choice(("float32", "bfloat16", "float16")))
@click.option("--max-length", type=click.IntRange(min=16), help="Tokens of prompt and answer.")
@click.option("--port", type=int, default=8000, show_default=True)
@click.option("--address", help="Join a running Ray at this address.")
@click.option("--json", "as_data", is_flag=True, help="One JSON object on stdout, once it answers.")
def serve(
    model: str,
    engine: str | None,
    replicas: int,
    max_replicas: int | None,
    tensor_parallel: int,
    gpus: float | None,
    dtype: str | None,
    max_length: int | None,
    port: int,
    address: str | None,
    as_data: bool,
) -> int:
    """Serve a generative model until Ctrl-C: a name, a folder, or an id of the hub."""
    given = {"engine": engine, "gpus": gpus, "dtype": dtype, "max_length": max_length}
    row = generators.generator(model).model_copy(
        update={
            **{name: value for name, value in given.items() if value is not None},
            "replicas": Replicas(min=replicas, max=max(replicas, max_replicas or replicas)),
            "tensor_parallel": tensor_parallel,
        }
    )
    # Ray takes seconds to import.
    from tabiflow.serving.hosting import served

    out = sys.stdout  # `served` sends what is printed elsewhere
    with served(row, address=address, port=port) as found:
        content = {
            "url": f"{found.url}/v1",
            "model": found.model,
            "engine": found.engine,
            "versions": found.versions,
            "dtype": found.dtype,
            "start_seconds": round(found.seconds, 2),
        }
        line = f"{found.model} answers at {found.url}/v1 ({found.engine}, {found.versions})"
        with redirect_stdout(out):
            say(as_data, content, f"{line} after {found.seconds:.1f} s; Ctrl-C ends it")
        while True:
            time.sleep(3600)


@dataclass(frozen=True)
class Asking:
    """A sweep of the benchmark with what the ledger knows of it."""

    evaluation: Evaluation
    models: Sequence[Generator]
    asked: Sequence[Any]
    questions: Mapping[str, Sequence[Any]]
    """By model."""
    outcomes: Mapping[str, Outcome]

    def todo(self) -> list[tuple[Generator, list[Any]]]:
        """What has no result yet; models without such are left out."""
        found = []
        for model in self.models:
            own = [e for e in self.questions[model.name] if not self._finished(e.trial.id)]
            found += [(model, own)] if own else []
        return found

    @property
    def finished(self) -> int:
        return sum(self._finished(e.trial.id) for own in self.questions.values() for e in own)

    def _finished(self, trial: str) -> bool:
        outcome = self.outcomes.get(trial)
        return outcome is not None and outcome.finished


@click.command()
@click.argument("sweep", type=click.Path(path_type=Path))
@click.option("--endpoint", help="Ask a server that somebody else runs: its address, up to /v1.")
@click.option(
    "--cetvel",
    type=click.Path(path_type=Path),
    help="A checkout of the CETVEL repository, for its prompts. Nothing of it is run.",
)
@click.option("--exclude-invalid", is_flag=True, help="Go on without rows that cannot be scored.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Requests at a time.")
@click.option("--address", help="Join a running Ray at this address.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the tables here, too.")
@click.option("--json", "as_data", is_flag=True, help="One JSON object on stdout.")
def cetvel(
    sweep: Path,
    endpoint: str | None,
    cetvel: Path | None,
    exclude_invalid: bool,
    concurrency: int | None,
    address: str | None,
    output: Path | None,
    as_data: bool,
) -> int:
    """Ask generative models the benchmark. Running it again asks no finished row twice."""
    from tabiflow.evaluation.running import Options, engine_name, run

    evaluation = _told(Evaluation.read(sweep), cetvel, exclude_invalid)
    options = Options(
        answers=ledger.home() / "answers",
        endpoint=endpoint,
        concurrency=concurrency,
        address=address,
        exclude_invalid=evaluation.written.exclude_invalid,
    )
    asking = _asking(evaluation, lambda model: engine_name(model, options))
    for each in asking.asked:
        for left in each.left:
            err.print(f"{left.task}: {left.key}: {left.reason}; {left.instead}", highlight=False)
    if asking.todo():
        book = ledger.open_ledger()
        with book.recorder(asking.evaluation.written.name, provenance.facts()) as recorder:
            # What a dead driver left behind is in order only now.
            asking = _known(asking)
            with sigterm_as_ctrl_c(), _board(asking) as listener:
                summary = run(asking.todo(), recorder, asking.outcomes, options, listener)
        if summary.stopped:
            err.print(f"stopped: {summary.stopped}; the same command goes on", highlight=False)
        asking = _known(asking)
    return _conclude(asking, output, as_data)


def _told(evaluation: Evaluation, checkout: Path | None, exclude_invalid: bool) -> Evaluation:
    """What the command line says goes before the file."""
    written = evaluation.written
    if exclude_invalid:
        written = written.model_copy(update={"exclude_invalid": True})
    return replace(evaluation, written=written, checkout=checkout or evaluation.checkout)


def report(file: Path, output: Path | None, as_data: bool) -> int:
    """What is known by now, of whichever engine has answered most; asks nobody."""
    evaluation = Evaluation.read(file)
    engines = ("vllm", "embedded", "endpoint")
    found = [_asking(evaluation, _always(engine)) for engine in engines]
    return _conclude(max(found, key=lambda each: each.finished), output, as_data)


def _always(engine: str) -> Callable[[Generator], str]:
    return lambda model: engine


def _asking(evaluation: Evaluation, engine: Callable[[Generator], str]) -> Asking:
    """Reads everything that is asked, before any model is started."""
    from tabiflow.evaluation.trials import questions
    from tabiflow.generative.asking import asked

    models = generators.asked_models(evaluation)
    found = list(asked(evaluation))
    own = {
        model.name: [q for each in found for q in questions(model, engine(model), each)]
        for model in models
    }
    return _known(Asking(evaluation, models, found, own, {}))


def _known(asking: Asking) -> Asking:
    outcomes = ledger.open_ledger().outcomes() if ledger.exists() else {}
    return replace(asking, outcomes=outcomes)


def _board(asking: Asking) -> Any:
    from tabiflow.board import CellProgress, Progress, board

    todo = {each.trial.id for _, own in asking.todo() for each in own}
    cells: dict[Any, Any] = {}
    for own in asking.questions.values():
        for each in own:
            square = cells.setdefault(each.trial.cell, CellProgress(0))
            square.size += 1
            square.waiting += each.trial.id in todo
            square.done += each.trial.id not in todo
    return board(Progress(cells, {}), err)


def _conclude(asking: Asking, output: Path | None, as_data: bool) -> int:
    from tabiflow.evaluation.findings import findings
    from tabiflow.report import generative

    every = [each for own in asking.questions.values() for each in own]
    known = [asking.outcomes.get(each.trial.id) for each in every]
    runs = [each.run_id for each in known if each is not None and each.finished]
    records = ledger.open_ledger().predictions(runs) if runs else {}
    found = findings(
        asking.evaluation.written.name, asking.asked, asking.questions, asking.outcomes, records
    )
    shown: list[Any] = []
    for each in generative.brief_tables(found):
        shown += [table(each.title, each.header, each.rows), *each.notes, ""]
    if output is not None:
        shown += [f"wrote {file}" for file in generative.write(found, output)]
    say(as_data, generative.content(found), *shown, *generative.warnings(found))
    return FAILED if found.missing else 0

"""Runs a sweep of the generative benchmark: a model is served, asked all its tasks, taken down;
then the next. Each task is a trial of the ledger, and a driver that dies is resumed row by row.
"""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tabiflow.endpoint import Endpoint
from tabiflow.endpoint.preflight import Abilities, Needs, preflight
from tabiflow.endpoint.vocabulary import Local, Remote, Vocabulary
from tabiflow.errors import DataError, EnvironmentFault, TabiflowError
from tabiflow.evaluation import store
from tabiflow.evaluation.asking import Asker, Request, ask_all, over_long, requests
from tabiflow.evaluation.scores import of_orders, of_test, without
from tabiflow.evaluation.trials import Question
from tabiflow.generative.asking import Asked
from tabiflow.generative.prompts import Excluded
from tabiflow.generative.result import settings
from tabiflow.ledger import Ending, Failure, Killed, Recorder
from tabiflow.runners.failures import kind_of, one_line
from tabiflow.serving.start import engine_of, located
from tabiflow.spec import Generator
from tabiflow.trial import Outcome, Result

if TYPE_CHECKING:
    from tabiflow.driver import Listener
    from tabiflow.serving.hosting import Served

log = logging.getLogger(__name__)

NEWS = 10.0
"""Seconds between two lines about how far a task is."""
Facts = Mapping[str, str | int | float]


@dataclass(frozen=True)
class Options:
    """How to run, which changes no result."""

    answers: Path
    """The folder of answers that the ledger has not got yet."""
    endpoint: str | None = None
    """Of a server that somebody else runs."""
    concurrency: int | None = None
    """Requests at a time; None is what the model's row says, for each replica."""
    address: str | None = None
    """Of a running Ray to join."""
    exclude_invalid: bool = False
    """Go on without rows that are too long for a model."""


@dataclass
class Summary:
    done: int = 0
    failed: int = 0
    stopped: str = ""
    """Why tasks were left over; empty where none were."""


@dataclass(frozen=True)
class Host:
    """A model that answers."""

    generator: Generator
    url: str
    concurrency: int
    vocabulary: Local | None
    """None where the server's own tokenizer is all there is."""
    dtype: str
    facts: Facts


def engine_name(generator: Generator, options: Options) -> str:
    return "endpoint" if options.endpoint else engine_of(generator)


def run(
    work: Sequence[tuple[Generator, Sequence[Question]]],
    recorder: Recorder,
    outcomes: Mapping[str, Outcome],
    options: Options,
    listener: "Listener | None" = None,
) -> Summary:
    """`work` is what has no result yet; `outcomes` all that the ledger knows, by trial id.

    Raises UserError and ModelError for a model that cannot be served or fails its preflight.
    """
    summary = Summary()
    for generator, asked in work:
        with _host(generator, options) as host:
            session = _Session(host, recorder, outcomes, options, listener, summary)
            asyncio.run(session.run(asked))
    return summary


@contextmanager
def _host(generator: Generator, options: Options) -> Iterator[Host]:
    if options.endpoint:
        yield _elsewhere(generator, options.endpoint, options.concurrency)
        return
    # Ray takes seconds to import, and a server that runs elsewhere does not need it.
    from tabiflow.serving.hosting import served

    with served(generator, address=options.address) as found:
        yield Host(
            generator=generator,
            url=found.url,
            concurrency=options.concurrency or generator.concurrency * found.replicas,
            vocabulary=Local(found.folder, code=generator.trust_remote_code),
            dtype=found.dtype,
            facts=_facts(found),
        )


def _facts(found: "Served") -> Facts:
    return {
        "engine": found.engine,
        "engine_versions": found.versions,
        "dtype": found.dtype,
        "replicas": found.replicas,
        "start_seconds": round(found.seconds, 2),
        **({"model_commit": found.commit} if found.commit else {}),
    }


def _elsewhere(generator: Generator, url: str, concurrency: int | None) -> Host:
    vocabulary = None
    if generator.tokenizer == "own":
        folder, _ = located(generator, weights=False)
        vocabulary = Local(folder, code=generator.trust_remote_code)
    return Host(
        generator=generator,
        url=url,
        concurrency=concurrency or generator.concurrency,
        vocabulary=vocabulary,
        dtype=generator.dtype or "bfloat16",
        facts={"engine": "endpoint", "endpoint": url},
    )


@dataclass
class _Session:
    """One model that answers, asked its tasks one after the other."""

    host: Host
    recorder: Recorder
    outcomes: Mapping[str, Outcome]
    options: Options
    listener: "Listener | None"
    summary: Summary
    abilities: Abilities = field(default_factory=Abilities)

    async def run(self, asked: Sequence[Question]) -> None:
        endpoint = Endpoint(
            self.host.url,
            "" if self.options.endpoint else self.host.generator.name,
            concurrency=self.host.concurrency,
        )
        async with endpoint:
            vocabulary = self.host.vocabulary or Remote(endpoint)
            self.abilities = await preflight(endpoint, vocabulary, _needs(asked, self.host.dtype))
            for note in self.abilities.notes:
                log.info("%s: %s", self.host.generator.name, note)
            for question in asked:
                if self.summary.stopped:
                    return
                await self._trial(endpoint, vocabulary, question)

    async def _trial(self, endpoint: Endpoint, vocabulary: Vocabulary, question: Question) -> None:
        trial, task = question.trial, question.asked.task
        known = self.outcomes.get(trial.id)
        attempt = known.attempt + 1 if known else 1
        self.recorder.cell(trial.cell, task.category, task.metric)
        self.recorder.start(trial, attempt, question.purpose, {"engine": self.engine})
        if self.listener is not None:
            self.listener.on_start(trial, attempt)
        ending: Ending = Killed("interrupted")
        try:
            ending = await self._result(endpoint, vocabulary, question)
            self.summary.done += 1
        except (TabiflowError, ExceptionGroup) as raised:
            error = _first(raised)
            ending = Failure(kind_of(error), one_line(error))
            self.summary.failed += 1
            if isinstance(error, EnvironmentFault):
                self.summary.stopped = one_line(error)
        finally:
            self.recorder.finish(trial.id, attempt, ending)
            if self.listener is not None:
                self.listener.on_end(trial, ending)
        if isinstance(ending, Result) and self.recorder.flush():
            store.path(self.options.answers, trial.id).unlink(missing_ok=True)

    @property
    def engine(self) -> str:
        return str(self.host.facts["engine"])

    async def _result(
        self, endpoint: Endpoint, vocabulary: Vocabulary, question: Question
    ) -> Result:
        made = await requests(question.items, vocabulary)
        long = self._over_long(question, made)
        left_out = {each.index for each in long}
        made = [each for each in made if each.item.index not in left_out]
        before, began = endpoint.traffic.requests, time.monotonic()
        with store.opened(self.options.answers, question.trial.id) as answers:
            kept = len(answers.replies)
            await self._ask(endpoint, question, made, answers)
            replies = [answers.replies[each.place] for each in made]
        seconds, asked = time.monotonic() - began, len(made) - kept
        facts: Facts = {
            **self.host.facts,
            **_wording(question.asked),
            "rows_kept_from_before": kept,
            "rows_excluded": len(long) + len(question.asked.test.excluded),
            "requests": endpoint.traffic.requests - before,
            "retries": endpoint.traffic.retries,
            "rows_per_second": round(asked / seconds, 2) if asked > 0 and seconds else 0.0,
            "preflight": "; ".join(self.abilities.notes) or "passed",
        }
        if question.purpose == "orders":
            return of_orders(question, [each.item for each in made], replies, facts)
        return of_test(without(question.asked, long), replies, facts)

    def _over_long(self, question: Question, made: Sequence[Request]) -> tuple[Excluded, ...]:
        """Raises DataError for rows that the model could only answer cut short, unless they are
        excluded on purpose."""
        written = settings(question.asked).max_tokens
        found = over_long(made, self.abilities.max_length, written)
        if found and not self.options.exclude_invalid:
            first = f"row {found[0].index} ({found[0].content}): {found[0].reason}"
            raise DataError(
                f"{len(found)} of {len(made)} rows are too long for the model: {first}",
                hint="raise `max_length`, or score the others with --exclude-invalid",
            )
        return found

    async def _ask(
        self,
        endpoint: Endpoint,
        question: Question,
        made: Sequence[Request],
        answers: store.Store,
    ) -> None:
        letters = question.asked.task.answered == "letter"
        asker = Asker(endpoint, self.abilities, settings(question.asked), letters)
        told = time.monotonic()

        def heard(replies: int) -> None:
            nonlocal told
            if time.monotonic() - told > NEWS:
                told = time.monotonic()
                log.info("%s x %s: %d of %d", *question.trial.cell, replies, len(made))

        await ask_all(asker, made, answers, self.host.concurrency, heard)


def _needs(asked: Sequence[Question], dtype: str) -> Needs:
    written = [each.asked for each in asked if each.asked.task.generation]
    beams = [settings(each).beams for each in written]
    return Needs(
        likelihoods=any(each.asked.task.answered in ("option", "letter") for each in asked),
        beams=max(beams, default=1),
        dtype=dtype,
    )


def _wording(asked: Asked) -> Facts:
    return {
        "prompts_from": asked.template.origin,
        "comparable": str(asked.comparable).lower(),
        "prompts_template": asked.template.hash,
        "prompts_all": asked.test.hash,
        "rows_from": asked.where,
        **({"data_commit": asked.commit} if asked.commit else {}),
    }


def _first(error: BaseException) -> BaseException:
    """Requests at the same time fail together: the first says why."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error

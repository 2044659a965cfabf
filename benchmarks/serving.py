"""Rows a second of the benchmark's client, beside a plain loop of single requests and beside
lm-evaluation-harness's client, on the same rows and the same server.

    python benchmarks/serving.py                        the example's generator, served here
    python benchmarks/serving.py --endpoint URL --tokenizer DIR
    python benchmarks/serving.py --harness PYTHON       also the harness, in that environment

A row is a context with two continuations, whose log-probabilities are asked. The loop asks one
continuation at a time and waits. Ours and the harness have the same number of requests at a time.
Measurements take turns, and the server is warm. Imports and tokenizers' loading are not counted.
Writes `results/serving.md`.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from machine import machine, spread

from tabiflow.endpoint import Endpoint
from tabiflow.endpoint.preflight import Abilities, Needs, preflight
from tabiflow.endpoint.vocabulary import Local
from tabiflow.evaluation import store
from tabiflow.evaluation.asking import Asker, Request, ask_all, requests
from tabiflow.generative.prompts import Item
from tabiflow.registry.generators import generator
from tabiflow.serving.hosting import served
from tabiflow.spec import Generation

Where = tuple[str, str, Path]
"""Address, name of the model, folder of its tokenizer."""

HARNESS = """
import json, sys, time
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

told = json.load(sys.stdin)
model = LocalCompletionsAPI(
    base_url=told["url"] + "/v1/completions", model=told["model"], tokenizer=told["tokenizer"],
    num_concurrent=told["concurrency"], batch_size=1, max_length=1024,
)
asked = [
    Instance(request_type="loglikelihood", doc={}, arguments=(row["prompt"], each), idx=n)
    for row in told["rows"] for n, each in enumerate(row["continuations"])
]
began = time.monotonic()
model.loglikelihood(asked, disable_tqdm=True)
print(json.dumps({"seconds": time.monotonic() - began}))
"""


def items(rows: int) -> list[Item]:
    made = []
    for n in range(rows):
        prompt = f"Kasabaya giden {n}. yol sabah buz tutmuştu. Bunun nedeni şudur:"
        following = (" Gece hava çok soğumuştu.", f" Öğle vakti güneş {n} kez açmıştı.")
        made.append(Item(n, prompt, str(n), options=("a", "b"), continuations=following, gold=0))
    return made


@contextmanager
def server(arguments: argparse.Namespace) -> Iterator[Where]:
    if arguments.endpoint:
        yield arguments.endpoint, "", arguments.tokenizer
        return
    with served(generator("example-generator")) as found:
        yield found.url, found.model, found.folder


async def _looked_at(where: Where, concurrency: int, rows: int) -> tuple[Abilities, list[Request]]:
    url, model, folder = where
    async with Endpoint(url, model, concurrency=concurrency) as endpoint:
        found = await preflight(endpoint, Local(folder), Needs(dtype="float32"))
    return found, await requests(items(rows), Local(folder))


def plain_loop(where: Where, made: list[Request]) -> float:
    async def ask() -> None:
        async with Endpoint(where[0], where[1], concurrency=1) as endpoint:
            for request in made:
                for each in request.following:
                    ids = [*request.prompt, *each]
                    await endpoint.complete(ids, max_tokens=1, echo=True, logprobs=1)

    began = time.monotonic()
    asyncio.run(ask())
    return time.monotonic() - began


def ours(where: Where, made: list[Request], abilities: Abilities, concurrency: int) -> float:
    async def ask(folder: Path) -> None:
        with store.opened(folder, "benchmark") as answers:
            async with Endpoint(where[0], where[1], concurrency=concurrency) as endpoint:
                asker = Asker(endpoint, abilities, Generation(), letters=False)
                await ask_all(asker, made, answers, concurrency, lambda replies: None)

    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        asyncio.run(ask(Path(folder)))
        return time.monotonic() - began


def harness(python: str, where: Where, rows: int, concurrency: int) -> float:
    asked = [{"prompt": i.prompt, "continuations": list(i.continuations)} for i in items(rows)]
    told = {"url": where[0], "model": where[1], "tokenizer": str(where[2]), "rows": asked}
    done = subprocess.run(
        [python, "-c", HARNESS],
        input=json.dumps({**told, "concurrency": concurrency}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--endpoint")
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--harness", metavar="PYTHON")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    with server(arguments) as where:
        concurrency = arguments.concurrency
        abilities, made = asyncio.run(_looked_at(where, concurrency, arguments.rows))
        ways: dict[str, Callable[[], float]] = {
            "a plain loop": lambda: plain_loop(where, made),
            "tabiflow": lambda: ours(where, made, abilities, concurrency),
        }
        if arguments.harness:
            ways["lm-evaluation-harness"] = lambda: harness(
                arguments.harness, where, arguments.rows, concurrency
            )
        for way in ways.values():
            way()
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(arguments.runs):
            for name, way in ways.items():
                seconds[name].append(way())
    table = "\n".join(_table(arguments, seconds))
    arguments.results.mkdir(parents=True, exist_ok=True)
    (arguments.results / "serving.md").write_text(table + "\n")
    print(table)


def _table(arguments: argparse.Namespace, seconds: Mapping[str, list[float]]) -> Iterator[str]:
    rates = {name: [arguments.rows / each for each in found] for name, found in seconds.items()}
    yield "# Rows a second"
    yield ""
    yield f"Asked of {arguments.endpoint or 'the generator of the example, served here'}:"
    yield f"{arguments.rows} rows of two continuations, {arguments.concurrency} requests at a time,"
    yield f"medians (lowest to highest) of {arguments.runs} runs. {machine()}."
    yield ""
    yield "| client | rows/s | tabiflow's |"
    yield "| --- | --- | --- |"
    for name, found in rates.items():
        times = statistics.median(rates["tabiflow"]) / statistics.median(found)
        against = "" if name == "tabiflow" else f"{times:.2f} x"
        yield f"| {name} | {spread(found, '.1f')} | {against} |"


if __name__ == "__main__":
    main()

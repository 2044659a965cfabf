"""vLLM's CPU build under Ray Serve, two replicas of the tiny generator, against transformers.

In an environment of its own: `make test-serve`.
"""

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from transformers import AutoModelForCausalLM

from tabiflow.cli import execute
from tabiflow.endpoint import Answer, Endpoint
from tabiflow.endpoint.preflight import Needs, preflight
from tabiflow.endpoint.vocabulary import Local
from tabiflow.example import benchmark_folder
from tabiflow.registry.generators import generator
from tabiflow.serving.hosting import Served, served

pytestmark = pytest.mark.serve

PROMPTS = 100
TOKENS = 24
CLOSE = 1e-4
ENGINE = {"kv_cache_memory_bytes": 64 * 1024**2, "max_num_seqs": 32}


@pytest.fixture(scope="module")
def two_replicas() -> Iterator[Served]:
    changes = {"engine": "vllm", "replicas": 2, "cpus": 0.5, "arguments": ENGINE}
    row = generator("example-generator").model_copy(update={**changes, "dtype": "float32"})
    with served(row) as found:
        yield found


@pytest.fixture(scope="module")
def model(two_replicas: Served) -> Any:
    return AutoModelForCausalLM.from_pretrained(two_replicas.folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def prompts(two_replicas: Served) -> list[list[int]]:
    """Of different lengths, cut out of the example's texts."""
    text = " ".join(
        file.read_text(encoding="utf-8") for file in sorted(benchmark_folder().glob("*/test.jsonl"))
    )
    starts = [97 * n % (len(text) - 300) for n in range(PROMPTS)]
    pieces = [text[start : start + 15 + 2 * n] for n, start in enumerate(starts)]
    return [list(ids) for ids in asyncio.run(Local(two_replicas.folder).ids(pieces))]


def answers(found: Served, prompts: Sequence[Sequence[int]], **wishes: Any) -> list[Answer]:
    async def ask() -> list[Answer]:
        async with Endpoint(found.url, found.model, concurrency=16) as endpoint:
            return await asyncio.gather(*(endpoint.complete(ids, **wishes) for ids in prompts))

    return asyncio.run(ask())


@torch.inference_mode()
def logprobs(model: Any, ids: Sequence[int]) -> torch.Tensor:
    """Of every next token, after each of these."""
    found: torch.Tensor = model(torch.tensor([list(ids)])).logits[0].log_softmax(-1)
    return found


def test_it_passes_the_preflight_with_beams(two_replicas: Served) -> None:
    async def look() -> Any:
        async with Endpoint(two_replicas.url) as endpoint:
            needs = Needs(beams=5, dtype="float32")
            return await preflight(endpoint, Local(two_replicas.folder), needs)

    found = asyncio.run(look())
    assert (found.max_length, found.lists, found.token_ids) == (1024, True, True)
    assert (found.stops, found.most_logprobs) == (True, 20)


def test_likelihoods_are_those_of_transformers(
    two_replicas: Served, model: Any, prompts: list[list[int]]
) -> None:
    for ids, answer in zip(
        prompts,
        answers(two_replicas, prompts, max_tokens=1, echo=True, logprobs=1),
        strict=True,
    ):
        told = torch.tensor(answer.choices[0].logprobs[1 : len(ids)])
        known = logprobs(model, ids)[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        assert len(told) == len(known)
        assert (told - known).abs().max() < CLOSE


def test_greedy_texts_are_those_of_transformers(
    two_replicas: Served, model: Any, prompts: list[list[int]]
) -> None:
    """Where one differs, the two tokens were as likely as one another."""
    found = answers(two_replicas, prompts, max_tokens=TOKENS, return_token_ids=True)
    for ids, answer in zip(prompts, found, strict=True):
        written = list(answer.choices[0].ids or ())
        known = _generated(model, ids, beams=1)
        at = next((n for n, (a, b) in enumerate(zip(written, known, strict=False)) if a != b), None)
        if at is None:
            assert written == known
        else:
            following = logprobs(model, [*ids, *known[:at]])[-1]
            assert abs(following[written[at]] - following[known[at]]) < CLOSE


@torch.inference_mode()
def _generated(model: Any, ids: Sequence[int], beams: int) -> list[int]:
    output = model.generate(
        torch.tensor([list(ids)]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        do_sample=False,
        num_beams=beams,
        max_new_tokens=TOKENS,
        pad_token_id=0,
    )
    written: list[int] = output[0, len(ids) :].tolist()
    while written and written[-1] == 0:
        written.pop()
    return written


def test_beams_differ_from_transformers_by_the_length_penalty_alone(
    two_replicas: Served, model: Any, prompts: list[list[int]]
) -> None:
    """vLLM divides by the length of prompt and answer, transformers by the answer's: each must
    prefer its own by its own rule."""
    wishes = {"use_beam_search": True, "n": 5, "max_tokens": TOKENS, "return_token_ids": True}
    differing = 0
    for ids, answer in zip(prompts, answers(two_replicas, prompts, **wishes), strict=True):
        theirs, known = list(answer.choices[0].ids or ()), _generated(model, ids, beams=5)
        if theirs == known:
            continue
        differing += 1
        sums = {name: _sum(model, ids, each) for name, each in (("v", theirs), ("t", known))}
        assert len(theirs) != len(known)
        assert sums["v"] / (len(ids) + len(theirs)) > sums["t"] / (len(ids) + len(known)) - CLOSE
        assert sums["t"] / len(known) > sums["v"] / len(theirs) - CLOSE
    print(f"{differing} of {len(prompts)} differ")


def _sum(model: Any, ids: Sequence[int], written: Sequence[int]) -> float:
    whole = [*ids, *written]
    found = logprobs(model, whole)[len(ids) - 1 : -1]
    return float(found.gather(1, torch.tensor(written)[:, None]).sum())


def test_a_replica_that_is_killed_costs_no_row(
    two_replicas: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data" / "xcopa_tr"
    folder.mkdir(parents=True)
    row = {"question": "cause", "choice1": "Yağmur yağdı.", "choice2": "Güneş açtı.", "label": 0}
    lines = [json.dumps({**row, "premise": f"Yol {n} gün kapandı."}) for n in range(600)]
    (folder / "test.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "asked.yaml").write_text(
        "name: asked\nmodels: [example-generator]\ntasks: [xcopa_tr]\ndata: data\n"
    )
    answered = tmp_path / ".tabiflow" / "answers"
    killer = threading.Thread(target=_kill_one, args=(lambda: _lines(answered) > 100,))
    killer.start()
    code = execute(["cetvel", "asked.yaml", "--endpoint", two_replicas.url, "--json"])
    killer.join()
    (score,) = json.loads(capsys.readouterr().out)["scores"]
    assert (code, score["n"]) == (0, 600)


def _lines(folder: Path) -> int:
    return sum(each.read_bytes().count(b"\n") for each in folder.glob("*.jsonl"))


def _kill_one(due: Callable[[], bool]) -> None:
    while not due():
        time.sleep(0.01)
    named = ray.util.list_named_actors(all_namespaces=True)
    replicas = [each for each in named if "LLMServer" in each["name"]]
    assert len(replicas) == 2
    victim = ray.get_actor(replicas[0]["name"], namespace=replicas[0]["namespace"])
    os.kill(ray.get(victim.__ray_call__.remote(lambda self: os.getpid())), 9)

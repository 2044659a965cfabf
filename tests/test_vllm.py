"""vLLM's CPU build under Ray Serve, two replicas of the tiny generator, against transformers.

In an environment of its own: `make test-serve`.
"""

import asyncio
import json
import math
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from terminal import driver
from transformers import AutoModelForCausalLM

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
END = 3
"""The generator's own token for it."""
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
        pad_token_id=END,
    )
    written: list[int] = output[0, len(ids) :].tolist()
    return written[: written.index(END)] if END in written else written


def test_beams_differ_from_transformers_by_the_length_penalty_alone(
    two_replicas: Served, model: Any, prompts: list[list[int]]
) -> None:
    """One search, whose texts are vLLM's where its penalty counts the prompt's tokens, and those of
    transformers where it counts the answer's."""
    wishes = {"use_beam_search": True, "n": 5, "max_tokens": TOKENS, "return_token_ids": True}
    differing = 0
    for ids, answer in zip(prompts, answers(two_replicas, prompts, **wishes), strict=True):
        found, known = list(answer.choices[0].ids or ()), _generated(model, ids, beams=5)
        ended = _beams(model, ids)
        whole = [each.total / (len(ids) + len(each.written)) for each in ended]
        alone = [each.total / (len(each.written) + each.ended) for each in ended]
        assert _is_best(found, ended, whole) and _is_best(known, ended, alone)
        differing += found != known
    print(f"{differing} of {len(prompts)} differ")
    assert differing


@dataclass(frozen=True)
class Beam:
    total: float
    """Of log-probabilities, that of the end among them."""
    written: list[int]
    ended: bool = False


@torch.inference_mode()
def _beams(model: Any, ids: Sequence[int], width: int = 5) -> list[Beam]:
    """All that a search meets: texts that ended, and those that were the best at last."""
    beams, ended = [Beam(0.0, [])], []
    for _ in range(TOKENS):
        rows = torch.tensor([[*ids, *each.written] for each in beams])
        best = model(rows).logits[:, -1].log_softmax(-1).topk(2 * width)
        grown = [
            Beam(beam.total + value, [*beam.written, token])
            for beam, values, tokens in zip(
                beams, best.values.tolist(), best.indices.tolist(), strict=True
            )
            for value, token in zip(values, tokens, strict=True)
        ]
        ended += [Beam(e.total, e.written[:-1], True) for e in grown if e.written[-1] == END]
        alive = [each for each in grown if each.written[-1] != END]
        beams = sorted(alive, key=lambda each: -each.total)[:width]
    return ended + beams


def _is_best(written: list[int], beams: Sequence[Beam], scores: Sequence[float]) -> bool:
    """Or as good as the best."""
    pairs = zip(beams, scores, strict=True)
    own = max((score for beam, score in pairs if beam.written == written), default=-math.inf)
    return own > max(scores) - CLOSE / TOKENS


def test_a_replica_that_is_killed_costs_no_row(two_replicas: Served, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "xcopa_tr"
    folder.mkdir(parents=True)
    row = {"question": "cause", "choice1": "Yağmur yağdı.", "choice2": "Güneş açtı.", "label": 0}
    lines = [json.dumps({**row, "premise": f"Yol {n} gün kapandı."}) for n in range(300)]
    (folder / "test.jsonl").write_text("\n".join(lines), encoding="utf-8")
    sweep = "name: asked\nmodels: [example-generator]\ntasks: [xcopa_tr]\ndata: data\n"
    (tmp_path / "asked.yaml").write_text(sweep)
    verb = ["cetvel", "asked.yaml", "--endpoint", two_replicas.url, "--json"]
    process = _started(verb, tmp_path)
    while _lines(tmp_path / ".tabiflow" / "answers") < 100:
        assert process.poll() is None
        time.sleep(0.05)
    _kill_one()
    told, _ = process.communicate(timeout=600)
    (score,) = json.loads(told)["scores"]
    assert (process.returncode, score["n"], int(score["facts"]["retries"]) > 0) == (0, 300, True)


def _started(verb: Sequence[str], place: Path) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(driver(*verb), cwd=place, text=True, **pipes)


def _lines(folder: Path) -> int:
    return sum(each.read_bytes().count(b"\n") for each in folder.glob("*.jsonl"))


def _kill_one() -> None:
    named = ray.util.list_named_actors(all_namespaces=True)
    replicas = [each for each in named if "LLMServer" in each["name"]]
    assert len(replicas) == 2
    victim = ray.get_actor(replicas[0]["name"], namespace=replicas[0]["namespace"])
    os.kill(ray.get(victim.__ray_call__.remote(lambda self: os.getpid())), 9)


def test_the_quickstart_is_asked_of_vllm_and_says_what_it_does_in_plain_lines(
    tmp_path: Path,
) -> None:
    sweep = Path(__file__).parent.parent / "sweeps" / "cetvel-quickstart.yaml"
    process = _started(["cetvel", str(sweep), "--json"], tmp_path)
    told, said = process.communicate(timeout=900)
    found = json.loads(told)
    assert (found["missing"], len({each["category"] for each in found["scores"]})) == ([], 7)
    assert {each["facts"]["engine"] for each in found["scores"]} == {"vllm"}
    assert "example-generator answers at" in said and '{"asctime"' not in said

"""The embedded engine's arithmetic against transformers', row by row."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tabiflow.example.models import built_model
from tabiflow.serving.completions import Completer, Wish

TEXTS = (
    "Kasabanın kütüphanesi pazartesi dışında her gün açıktır.",
    "Ağaç",
    "Çocuğun ateşi çıktı. Bunun sonucunda şu oldu:",
)


@pytest.fixture(scope="module")
def folder() -> Path:
    return built_model("generator")


@pytest.fixture(scope="module")
def completer(folder: Path) -> Completer:
    return Completer(folder, "float32")


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def prompts(completer: Completer) -> list[list[int]]:
    return [completer.encode(text) for text in TEXTS]


@torch.inference_mode()
def logprobs(model: Any, ids: list[int]) -> torch.Tensor:
    found: torch.Tensor = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return found


def test_scores_of_a_padded_batch_are_those_of_each_prompt_alone(
    completer: Completer, model: Any, prompts: list[list[int]]
) -> None:
    for ids, tokens in zip(prompts, completer.score(prompts, top=2), strict=True):
        known = logprobs(model, ids)
        assert (tokens[0].id, tokens[0].logprob) == (ids[0], None)
        for place, token in enumerate(tokens[1:]):
            assert token.id == ids[place + 1]
            assert token.logprob == pytest.approx(float(known[place, token.id]), abs=1e-5)
            assert token.top[0][1] == pytest.approx(float(known[place].max()), abs=1e-5)


@pytest.mark.parametrize("beams", [1, 5])
def test_texts_of_a_padded_batch_are_those_of_each_prompt_alone(
    completer: Completer, model: Any, prompts: list[list[int]], beams: int
) -> None:
    written = completer.write(prompts, Wish(max_tokens=12, beams=beams))
    for ids, (best, *others) in zip(prompts, written, strict=True):
        output = model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            do_sample=False,
            num_beams=beams,
            max_new_tokens=12,
        )
        assert list(best.ids) == output[0, len(ids) :].tolist()
        assert len(others) == beams - 1


def test_greedy_text_ends_before_a_stop_and_tells_what_it_was_asked(
    completer: Completer, prompts: list[list[int]]
) -> None:
    ((whole,),) = completer.write(prompts[:1], Wish(max_tokens=12))
    stop = whole.text[4:7]
    ((cut,),) = completer.write(
        prompts[:1], Wish(max_tokens=12, stop=(stop,), top=1, also=(7, 1100))
    )
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.finish == "stop"
    assert [id for id, _ in cut.tokens[0].top[1:]] == [7, 1100]
    assert cut.tokens[0].logprob == cut.tokens[0].top[0][1]

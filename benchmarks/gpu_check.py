"""What only a GPU can show, in under five minutes: one script, one table.

    python benchmarks/gpu_check.py [--json]

bf16 in training and fp32 in scoring; the attention that was chosen; a real out-of-memory error and
the smaller part that follows it, with the same losses; compiled steps, with CUDA graphs and
without, beside the same losses; two trials packed on the GPU; peak memory.
Without a GPU it says so and exits with 0; with one, it exits with 1 when a check does not hold.
"""

import argparse
import json
import math
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import PIPE, STDOUT, run
from sys import executable
from typing import Any

import torch

HERE = Path(__file__).parent
ROWS, LENGTH, BATCH = 64, 384, 32
SHARE = 0.4
"""Of the memory that a whole batch takes: what the trial is then allowed."""
TOLERANCE = 2e-2
"""Relative, between losses in bf16 of a whole batch and of its parts, or compiled."""


@dataclass(frozen=True)
class Check:
    name: str
    found: str
    holds: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    as_data = parser.parse_args().json
    if not torch.cuda.is_available():
        print(json.dumps({"gpu": None, "checks": []}) if as_data else "no GPU: nothing was checked")
        return
    device = torch.cuda.get_device_name()
    checks = list(_checks())
    if as_data:
        print(json.dumps({"gpu": device, "checks": [asdict(each) for each in checks]}))
    else:
        print(f"{device}, torch {torch.__version__}\n")
        for each in checks:
            print(f"{'ok  ' if each.holds else 'FAIL'} {each.name}: {each.found}")
    raise SystemExit(0 if all(each.holds for each in checks) else 1)


def _checks() -> Iterator[Check]:
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        os.environ["TABIFLOW_CACHE"] = str(Path(folder) / "cache")
        for made in (_memory, _compiled, _packed):
            try:
                yield from made(Path(folder))
            except Exception as error:  # a check that breaks is a finding, not the end
                yield Check(made.__name__.strip("_"), f"{type(error).__name__}: {error}", False)


# One trial alone: precision, attention, memory.


def _memory(folder: Path) -> Iterator[Check]:
    whole = _trained(folder)
    facts = whole["facts"]
    able = torch.cuda.is_bf16_supported(including_emulation=False)
    wanted = "bf16" if able else "fp32"
    yield Check("precision", facts["precision"], facts["precision"] == wanted)
    yield Check("attention", facts["attention"], facts["attention"] != "eager")
    peak, memory = facts["peak_memory_mb"], facts["device_memory_mb"]
    yield Check("peak memory", f"{peak} of {memory} MB, a whole batch", 0 < peak <= memory)
    # A limit of the allocator's own is a real error of the real allocator, without a full GPU.
    torch.cuda.set_per_process_memory_fraction(min(1.0, SHARE * peak / memory))
    try:
        short = _trained(folder)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    part = short["facts"]["largest_part"]
    halved = isinstance(part, int) and part <= math.ceil(BATCH / 2)
    yield Check("out of memory", f"at most {part} rows at a time afterwards", halved)
    apart = _apart(whole, short)
    yield Check("losses after it", f"{apart:.1e} apart (relative)", apart <= TOLERANCE)


def _compiled(folder: Path) -> Iterator[Check]:
    plain = _trained(folder)
    steps = plain["facts"]["train_seconds"]
    for how in ("default", "cuda_graphs"):
        other = _trained(folder, compile=how)
        facts, apart = other["facts"], _apart(plain, other)
        found = f"{facts['train_seconds']} s of steps instead of {steps}"
        found += f", {facts['compile_seconds']} s of compiling, losses {apart:.1e} apart"
        right = apart <= TOLERANCE and facts["compiled"] == how
        yield Check(f"compiled steps, {how}", found, right)


def _apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    pairs = zip(one["losses"], other["losses"], strict=True)
    return max(abs(first - second) / abs(first) for first, second in pairs)


def _trained(folder: Path, **protocol: str) -> dict[str, Any]:
    """A trial of long rows, so that activations outweigh the weights."""
    from tabiflow.plan import plan
    from tabiflow.registry import resolve
    from tabiflow.runners import Job, finetune
    from tabiflow.spec import Sweep

    sweep = Sweep.read(_sweep(folder, **protocol))
    cell = plan(sweep, resolve(sweep)).cells[0]
    epochs, losses = finetune.run(Job(cell.trials[0], 1, cell.model, cell.dataset)), []
    while True:
        try:
            losses.append(next(epochs).metrics["train_loss"])
        except StopIteration as end:
            return {"facts": end.value.facts, "losses": losses}


def _sweep(folder: Path, gpus: float = 1.0, **protocol: str) -> Path:
    """A wide encoder with random weights on made-up rows of one length."""
    encoder, data = folder / "encoder", folder / "rows"
    if not encoder.exists():
        _write_encoder(encoder)
        _write_rows(data)
    content = {
        "name": "gpu-check",
        "models": [{"name": "wide", "path": str(encoder), "gpus": gpus}],
        "search": [
            {
                "datasets": [{"name": "rows", "path": str(data), "task": "classification"}],
                "space": {"learning_rate": [1e-5, 2e-5], "batch_size": BATCH},
            }
        ],
        "protocol": {"epochs": 2, "patience": None, "dropout": 0.0, **protocol},
    }
    file = folder / "gpu-check.yaml"
    file.write_text(json.dumps(content))
    return file


def _write_encoder(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = {word: place for place, word in enumerate(["[PAD]", "[UNK]", *_words()])}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=made, model_max_length=512, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(words), num_hidden_layers=6)).save_pretrained(folder)


def _words() -> list[str]:
    return [f"w{number}" for number in range(1000)]


def _write_rows(folder: Path) -> None:
    from random import Random

    folder.mkdir()
    pick = Random(0)
    for split in ("train", "validation", "test"):
        rows = (
            {"text": " ".join(pick.choices(_words(), k=LENGTH)), "label": place % 2}
            for place in range(ROWS)
        )
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))


# Two trials on one GPU, through the whole engine.


def _packed(folder: Path) -> Iterator[Check]:
    from tabiflow.ledger import open_ledger

    address = f"sqlite:///{folder / 'mlflow.db'}"
    environment = {**os.environ, "MLFLOW_TRACKING_URI": address, "PYTHONPATH": str(HERE.parent)}
    command = [executable, "-c", "from tabiflow.cli import main; main()", "sweep"]
    done = run(
        [*command, str(_sweep(folder, gpus=0.5)), "--workers", "2"],
        cwd=folder,
        env=environment,
        stdout=PIPE,
        stderr=STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        yield Check("two packed trials", done.stdout[-400:], False)
        return
    ended = list(open_ledger(address).outcomes().values())
    overlap = _overlap([(each.started, each.started + each.seconds) for each in ended])
    peaks = ", ".join(f"{each.tags['peak_memory_mb']} MB" for each in ended)
    workers = len({each.tags["worker"] for each in ended})
    found = f"{workers} workers, {overlap:.1f} s at the same time, peaks {peaks}"
    yield Check("two packed trials", found, workers == len(ended) == 2 and overlap > 0)


def _overlap(spans: list[tuple[float, float]]) -> float:
    return max(0.0, min(end for _, end in spans) - max(start for start, _ in spans))


if __name__ == "__main__":
    main()

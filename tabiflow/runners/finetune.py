"""The runner that fine-tunes a model for real: loads, trains, reports, and opens the test split.

Whatever one trial could leave to the next in the same process is reset here; imports, tokenizers
and encoded splits stay.
"""

import gc
import os
import random
import resource
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from transformers import MODEL_MAPPING, AutoConfig, PretrainedConfig, PreTrainedModel
from transformers.utils import is_flash_attn_2_available

from tabiflow import compiling, data
from tabiflow.encoding import Encoded, Ragged, TextEncoder, cached, text_encoder
from tabiflow.errors import Interrupted, ModelError, SealError, TabiflowError
from tabiflow.registry.kinds import KINDS
from tabiflow.runners import Job
from tabiflow.runners.failures import one_line
from tabiflow.runners.keeping import Keeper
from tabiflow.runners.metrics import Additional
from tabiflow.tasks import TASKS
from tabiflow.training import Kept, Material, Recipe, Training
from tabiflow.trial import Epoch, Opening, Result, canonical
from tabiflow.unpadded import unpad

Facts = dict[str, str | int | float]
SAME = ("data_train", "data_validation", "tokenizer", "model_commit")
"""Facts in which a checkpoint must agree with the trial that takes it up."""


def run(job: Job) -> Generator[Epoch, None, Result]:
    """Raises SealError before anything is loaded when a test trial has no opening of its own."""
    opening = _opening(job)
    device = _reset(job)
    try:
        return (yield from _trial(job, opening, device))
    finally:
        # By now the trial's frame is gone, and with it every name that held the model.
        _release(device)


class Clock:
    """Seconds by phase, as facts."""

    def __init__(self) -> None:
        self.seconds: Facts = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[f"{name}_seconds"] = round(time.perf_counter() - started, 3)


class Splits:
    """A data set as one model sees it, encoded once for all trials of the node."""

    def __init__(self, job: Job, text: TextEncoder) -> None:
        self.job, self.text, self.task = job, text, TASKS[job.dataset.task]
        self.settings = job.trial.protocol
        self.data = data.load(job.dataset, job.trial.limit)
        # Counting tokens costs as much as encoding, so the few numbers are kept just as well.
        prints = self.data.fingerprints
        counted = cached(self._key(prints["train"], "lengths", {}), self._count)
        self.lengths = {name: int(np.asarray(value)[0]) for name, value in counted.items()}
        self.train = self._encoded(prints["train"], self.data.train, training=True)
        self.validation = self._encoded(prints["validation"], self.data.validation)

    def test(self, opened: data.TestData) -> Encoded:
        return self._encoded(opened.fingerprint, opened.rows)

    def facts(self) -> Facts:
        left_out = self.train.get("excluded")
        excluded = dict(self.data.excluded)
        if left_out is not None and int(np.asarray(left_out)[0]):
            excluded["unanswerable within max_length"] = int(np.asarray(left_out)[0])
        return {
            **{f"max_length_{name}": length for name, length in self.lengths.items()},
            **{f"data_{split}": print_ for split, print_ in self.data.fingerprints.items()},
            "data_commit": self.data.commit,
            "model_commit": self.text.commit,
            "tokenizer": self.text.fingerprint,
            "split_rule": self.data.split_rule,
            "train_rows": self.task.rows(self.train),
            "validation_rows": self.task.rows(self.validation),
            "excluded_rows": sum(excluded.values()),
            "excluded": ", ".join(f"{reason}: {rows}" for reason, rows in excluded.items()),
        }

    def _count(self) -> Encoded:
        lengths = self.task.lengths(self.data.train, self.text, self.settings)
        return {name: np.array([length]) for name, length in lengths.items()}

    def _encoded(self, fingerprint: str, rows: pa.Table, *, training: bool = False) -> Encoded:
        encode = partial(
            self.task.encode, rows, self.text, self.data.schema, self.lengths, self.settings
        )
        key = self._key(fingerprint, "training" if training else "scoring", self.lengths)
        return cached(key, partial(encode, training=training))

    def _key(self, fingerprint: str, purpose: str, lengths: Mapping[str, int]) -> str:
        """Everything that an encoding depends on."""
        return canonical(
            {
                "purpose": purpose,
                "task": self.job.dataset.task,
                "version": KINDS[self.job.dataset.task].version,
                "rows": fingerprint,
                "schema": [*self.data.schema.labels],
                "tokenizer": [self.text.fingerprint, self.text.limit],
                "settings": [self.settings.max_length, self.settings.doc_stride],
                "lengths": dict(lengths),
            }
        )


def _opening(job: Job) -> Opening | None:
    """The opening of a confirming trial; a sweep's trial has none, whatever its job carries."""
    if job.trial.split != "test":
        return None
    if job.opening is None or job.opening.trial != job.trial.id:
        raise SealError(
            f"the test split of `{job.dataset.name}` is sealed: no opening of trial {job.trial.id}",
            hint="`tabiflow confirm` records one",
        )
    return job.opening


def _trial(
    job: Job, opening: Opening | None, device: torch.device
) -> Generator[Epoch, None, Result]:
    clock, trial, before = Clock(), job.trial, _fresh_peak()
    with clock.phase("start"):
        metrics = Additional(job.metrics)
        text = text_encoder(job.model)
    with clock.phase("data"):
        splits = Splits(job, text)
    recipe = Recipe(trial.trained, trial.protocol, trial.seed, device)
    with clock.phase("model"):
        model = _model(job, splits, recipe)
    _seed(trial.seed)
    material = Material(splits.task, splits.data.schema, splits.train, splits.validation, metrics)
    training = Training(model, material, recipe)
    keeper = Keeper(job, {name: splits.facts()[name] for name in SAME})
    told = keeper.take_up(training)
    yield from told
    with compiling.explained():
        kept = yield from _kept_up(training, keeper)
    spent = {name: round(seconds, 3) for name, seconds in kept.seconds.items()}
    facts = {**splits.facts(), **clock.seconds, **spent, **_machine(job, model, recipe, before)}
    if told:
        earlier = {name: sum(each.metrics[name] for each in told) for name in kept.seconds}
        facts |= {"resumed_after_epoch": len(told)}
        facts |= {f"earlier_{name}": round(seconds, 3) for name, seconds in earlier.items()}
    figures = kept.epoch.metrics
    facts |= {name: round(figures[name], 3) for name in ("train_tokens", "train_padding")}
    facts |= {"trained_epochs": kept.trained, "largest_part": kept.largest_part or "all"}
    if metrics.left_out:
        facts["metrics_left_out"] = ", ".join(sorted(metrics.left_out))
    result = Result(
        epoch=kept.epoch.epoch,
        score=kept.epoch.score,
        metrics=kept.epoch.metrics,
        facts=facts,
    )
    return result if opening is None else _tested(result, opening, splits, training)


def _kept_up(training: Training, keeper: Keeper) -> Generator[Epoch, None, Kept]:
    """The training's epochs, each written down before it is told where that is worth it."""
    run = training.run()
    while True:
        try:
            epoch = next(run)
        except StopIteration as end:
            kept: Kept = end.value
            return kept
        keeper.ended(epoch, training)
        try:
            yield epoch
        except Interrupted:
            keeper.write(training)
            raise


def _tested(result: Result, opening: Opening, splits: Splits, training: Training) -> Result:
    """The result with the test split's figures, which the kept weights are asked for once."""
    opened = data.load_test(splits.job.dataset, splits.job.trial.limit, opening)
    encoded = splits.test(opened)
    scores = training.evaluate(encoded).scores
    items = len(scores.predictions)
    rows = opened.rows["row"].to_pylist() if items == opened.rows.num_rows else range(items)
    diagnosis = splits.task.diagnose(scores, encoded, opened.rows, splits.data)
    figures = {**scores.metrics, **diagnosis, **training.material.metrics(scores)}
    return replace(
        result,
        test=scores.headline,
        n=items,
        metrics={**result.metrics, **{f"test_{name}": each for name, each in figures.items()}},
        facts={**result.facts, "data_test": opened.fingerprint},
        predictions=tuple(
            {"row": row, "prediction": prediction, "reference": reference}
            for row, prediction, reference in zip(
                rows, scores.predictions, scores.references, strict=True
            )
        ),
    )


def _model(job: Job, splits: Splits, recipe: Recipe) -> torch.nn.Module:
    """Raises ModelError for whatever the library makes of a broken or unfit model."""
    source = splits.text.source
    if not job.model.trust_remote_code:
        _refuse_pickled(job.model.name, Path(source))
    try:
        loading = _loading(job, splits.text, recipe)
        # The head is drawn here, whatever has drawn from the generators before.
        _seed(job.trial.seed)
        model = splits.task.model(source, splits.data.schema, loading).to(recipe.device)
    except TabiflowError:
        raise
    except Exception as error:
        raise ModelError(
            f"`{job.model.name}` cannot be loaded: {one_line(error)}", where=source
        ) from error
    _must_embed(model, splits)
    # Nobody has measured it on a GPU; a compiler would meet new lengths in every batch.
    if recipe.device.type == "cpu" and recipe.compiled is None:
        unpad(model)
    return model


def _refuse_pickled(name: str, folder: Path) -> None:
    """transformers would only miss the other file, and not say what to do."""
    pickled = sorted(file.name for file in folder.glob("*.bin"))
    if pickled and not any(folder.glob("*.safetensors")):
        raise ModelError(
            f"`{name}` has only pickled weights, which may run code: {pickled[0]}",
            where=str(folder),
            hint="save them as safetensors, or set `trust_remote_code: true` in its row",
        )


def _must_embed(model: torch.nn.Module, splits: Splits) -> None:
    """An id without an embedding would break the CUDA context for all later trials."""
    highest = max(
        int(array.values.max(initial=0))
        for encoded in (splits.train, splits.validation)
        for name, array in encoded.items()
        if isinstance(array, Ragged) and name.endswith("input_ids")
    )
    known = next(_pretrained(model)).get_input_embeddings().num_embeddings
    if highest >= known:
        raise ModelError(
            f"`{splits.job.model.name}` embeds {known} ids, its tokenizer makes id {highest}",
            where=splits.text.source,
        )


def _pretrained(model: torch.nn.Module) -> Iterator[PreTrainedModel]:
    return (each for each in model.modules() if isinstance(each, PreTrainedModel))


def _loading(job: Job, text: TextEncoder, recipe: Recipe) -> dict[str, Any]:
    """What `from_pretrained` is told."""
    trust = job.model.trust_remote_code
    origin = {"trust_remote_code": trust, **({"revision": text.commit} if text.commit else {})}
    config = AutoConfig.from_pretrained(text.source, **origin)
    # transformers 5 would otherwise take the precision that the weights were saved in.
    loading = {**origin, "dtype": torch.float32, "use_safetensors": None if trust else True}
    if _takes_flash_attention(config, recipe):
        loading["attn_implementation"] = "flash_attention_2"
    dropout = recipe.protocol.dropout
    return loading if dropout is None else {**loading, **dict.fromkeys(_dropouts(config), dropout)}


def _takes_flash_attention(config: PretrainedConfig, recipe: Recipe) -> bool:
    """Otherwise transformers takes sdpa where the architecture has it, else eager."""
    if not recipe.bf16 or not is_flash_attn_2_available():
        return False
    able = torch.cuda.get_device_capability(recipe.device) >= (8, 0)
    architecture = MODEL_MAPPING.get(type(config), None)
    return able and bool(getattr(architecture, "_supports_flash_attn", False))


def _dropouts(config: PretrainedConfig) -> list[str]:
    return [name for name in config.to_dict() if "dropout" in name or name.endswith("pdrop")]


def _machine(job: Job, model: torch.nn.Module, recipe: Recipe, before: float | None) -> Facts:
    """What computed the trial, for whoever must explain a difference."""
    cuda = recipe.device.type == "cuda"
    return {
        **_memory(recipe.device, before),
        "device": torch.cuda.get_device_name(recipe.device) if cuda else "cpu",
        "threads": torch.get_num_threads(),
        "precision": "bf16" if recipe.bf16 else "fp32",
        "compiled": recipe.compiled or "no",
        "attention": str(next(_pretrained(model)).config._attn_implementation),
        "parameters": sum(each.numel() for each in model.parameters()),
        "trust_remote_code": str(job.model.trust_remote_code).lower(),
        # A string of torch's own kind would make the driver import torch to read it.
        "torch": str(torch.__version__),
        "transformers": version("transformers"),
    }


def _memory(device: torch.device, before: float | None) -> Facts:
    """The trial's peak. On the CPU what its process grew by where Linux tells, else the process's
    own peak, which may be an earlier trial's."""
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        whole = torch.cuda.get_device_properties(device).total_memory
        known = {"device_memory_mb": round(whole / 2**20)}
        return {**known, "peak_memory_mb": round(peak / 2**20), "peak_memory_of": "trial"}
    highest = _resident("VmHWM")
    if before is None or highest is None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"peak_memory_mb": round(peak / 2**10), "peak_memory_of": "process"}
    known = {"process_memory_mb": round(highest / 2**10)}
    grown = max(0.0, highest - before)
    return {**known, "peak_memory_mb": round(grown / 2**10), "peak_memory_of": "trial"}


def _fresh_peak() -> float | None:
    """Kilobytes that the process holds, its peak forgotten; None where only Linux could."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _resident("VmRSS")


def _resident(name: str) -> float | None:
    """A line of the process's status, in kilobytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((float(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)


def _reset(job: Job) -> torch.device:
    """Puts back whatever an earlier trial or a library may have changed in this process."""
    # cuBLAS is deterministic only with a workspace of fixed size, read when CUDA starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(max(1, int(job.cpus)))
    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Deterministic mode would fill every new tensor with NaN first.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    return device


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed % 2**63)


def _release(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()

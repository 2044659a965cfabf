"""Exceptions as their libraries raise them, and the kind that each one is."""

import errno
import subprocess
import sys
from pathlib import Path

import httpx2
import pyarrow as pa
import pytest
import requests
import torch
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from ray.exceptions import NodeDiedError
from safetensors import SafetensorError, safe_open

import tabiflow.device  # noqa: F401 - memory can only have run out where this is loaded
from tabiflow.errors import (
    DataError,
    Diverged,
    EnvironmentFault,
    ModelError,
    SealError,
    TimedOut,
    TrialError,
)
from tabiflow.runners.failures import kind_of, one_line


def answered(status: int) -> httpx2.Response:
    return httpx2.Response(status, request=httpx2.Request("GET", "http://127.0.0.1/model"))


def because(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Diverged("loss is nan"), "diverged"),
        (TimedOut("took 3 hours"), "timeout"),
        (EnvironmentFault("disk"), "environment"),
        (DataError("no rows"), "data"),
        (ModelError("no weights"), "model"),
        (TrialError("metric failed"), "bug"),
        (SealError("sealed"), "bug"),
        (torch.OutOfMemoryError("CUDA out of memory"), "oom"),
        (MemoryError(), "oom"),
        (OSError(errno.ENOSPC, "No space left on device"), "environment"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "environment"),
        (OSError(errno.EIO, "Input/output error"), "environment"),
        (OSError(errno.ESTALE, "Stale file handle"), "environment"),
        (OSError(errno.ENOENT, "No such file"), "bug"),
        (ConnectionResetError(), "environment"),
        (TimeoutError(), "environment"),
        (httpx2.ReadTimeout("slow"), "environment"),
        (httpx2.ConnectError("refused"), "environment"),
        (requests.ConnectionError("refused"), "environment"),
        (requests.Timeout("slow"), "environment"),
        (HfHubHTTPError("bad gateway", response=answered(502)), "environment"),
        (HfHubHTTPError("slow down", response=answered(429)), "environment"),
        (NodeDiedError("gone"), "node_lost"),
        (SafetensorError("incomplete metadata"), "model"),
        (pa.ArrowInvalid("not parquet"), "data"),
        (ValueError("shape"), "bug"),
        (RuntimeError("CUDA error: device-side assert"), "bug"),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_the_type_of_an_exception_says_its_kind(error, kind):
    assert kind_of(error) == kind


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (httpx2.ConnectError("refused"), "environment"),
        (HfHubHTTPError("unavailable", response=answered(503)), "environment"),
        (OSError(errno.ENOSPC, "No space left on device"), "environment"),
        (torch.OutOfMemoryError("CUDA out of memory"), "oom"),
        (RepositoryNotFoundError("no such model", response=answered(404)), "model"),
        (pa.ArrowInvalid("a bug elsewhere"), "model"),
        (KeyError("weight"), "model"),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_a_model_is_only_to_blame_when_no_machine_is(cause, kind):
    wrapped = because(OSError("cannot load"), cause)
    assert kind_of(because(ModelError("cannot be loaded"), wrapped)) == kind


def test_memory_that_ends_on_the_cpu_is_oom():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(10**16)
    assert kind_of(caught.value) == "oom"


def test_what_an_error_hides_on_purpose_does_not_decide():
    with pytest.raises(ValueError) as caught:
        try:
            raise ConnectionError
        except ConnectionError:
            raise ValueError("unrelated") from None
    assert kind_of(caught.value) == "bug"


def test_an_error_that_is_its_own_cause_ends():
    first, second = ValueError("first"), ValueError("second")
    assert kind_of(because(first, because(second, first))) == "bug"


def test_a_truncated_weights_file_is_the_models_fault(tmp_path: Path):
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"\x40\x00\x00\x00\x00\x00\x00\x00{")
    with pytest.raises(SafetensorError) as caught, safe_open(weights, "pt"):
        pass
    assert kind_of(caught.value) == "model"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ModelError("broken", where="models/x"), "models/x: broken"),
        (ValueError("first line\nsecond line"), "ValueError: first line"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_a_failure_is_told_in_one_line(error, line):
    assert one_line(error) == line


def test_deciding_a_kind_imports_no_heavy_library():
    script = (
        "import sys; from tabiflow.runners.failures import kind_of; kind_of(ValueError());"
        "print([each for each in ('torch', 'ray', 'pyarrow') if each in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"

"""`torch.compile` of training steps, where a protocol asks for it. Scoring is never compiled."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch.nn import Module

from tabiflow.errors import ModelError

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "cuda_graphs": {"triton.cudagraphs": True},
}
"""A protocol's word -> what torch's compiler is told."""


class Compiled:
    """A model as training steps call it. What it compiles, at its first calls, ends what an earlier
    model of this process has compiled.

    Lengths are symbols: a batch is as long as its longest row. Random numbers are drawn as without
    compiling, so that dropout drops the same and a pass can be repeated.
    """

    def __init__(self, model: Module, how: str) -> None:
        from torch._dynamo.callback import on_compile_end, on_compile_start

        # Earlier models' code would count towards the limit at which dynamo gives up.
        torch._dynamo.reset()
        on_compile_start(self._started)
        on_compile_end(self._ended)
        told = {"fallback_random": True, "compile_threads": torch.get_num_threads(), **OPTIONS[how]}
        self.model = cast(Module, torch.compile(model, dynamic=True, options=told))
        self._seconds, self._since = 0.0, 0.0

    def seconds(self) -> float:
        """Spent compiling since this was last asked."""
        spent, self._seconds = self._seconds, 0.0
        return spent

    def _started(self, _: Any) -> None:
        self._since = time.perf_counter()

    def _ended(self, _: Any) -> None:
        self._seconds += time.perf_counter() - self._since


@contextmanager
def explained() -> Iterator[None]:
    """Raises ModelError where the compiler gives up."""
    try:
        yield
    except RuntimeError as error:
        dynamo = sys.modules.get("torch._dynamo.exc")
        if dynamo is None or not isinstance(error, dynamo.TorchDynamoException):
            raise
        reason = getattr(error, "inner_exception", error)
        first = str(reason).strip().splitlines()[:1]
        raise ModelError(
            f"torch.compile gives up: {type(reason).__name__}: {''.join(first)}",
            hint="leave `compile` out of the protocol",
        ) from error

"""What a device gives a training: memory that may end, and random numbers that can be put back."""

import math
import random
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

Result = TypeVar("Result")
Generators = dict[str, Any]


class Room:
    """How many rows fit into memory at once: unlimited until proven otherwise."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.largest = sys.maxsize

    @property
    def unlimited(self) -> bool:
        return self.largest == sys.maxsize

    def fit(
        self, cut: Callable[[int], list[np.ndarray]], work: Callable[[list[np.ndarray]], Result]
    ) -> Result:
        """`work` over the parts that `cut` makes, again in halves as long as memory runs out.

        The random state is put back before each attempt. Raises the device's own error when single
        rows do not fit.
        """
        random = random_state(self.device)
        while True:
            parts = cut(self.largest)
            try:
                return work(parts)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error) or max(map(len, parts)) == 1:
                    raise
            # Outside the handler, whose traceback would keep the failed attempt's tensors alive.
            self.largest = math.ceil(max(map(len, parts)) / 2)
            set_random_state(self.device, random)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()


def out_of_memory(error: BaseException) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # torch raises a bare RuntimeError where the CPU's memory ends: there is only its text to go by.
    return type(error) is RuntimeError and "DefaultCPUAllocator" in str(error)


def random_state(device: torch.device) -> tuple[Tensor, ...]:
    """What dropout draws from, on the CPU and on the device."""
    cpu = torch.get_rng_state()
    return (cpu, torch.cuda.get_rng_state(device)) if device.type == "cuda" else (cpu,)


def set_random_state(device: torch.device, state: tuple[Tensor, ...]) -> None:
    torch.set_rng_state(state[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state[1], device)


def generators(device: torch.device) -> Generators:
    """The state of everything that could draw: torch, numpy and Python. Plain values and tensors,
    to be written down between two epochs."""
    algorithm, keys, *rest = cast(Any, np.random.get_state(legacy=True))
    version, numbers, normal = random.getstate()
    return {
        "torch": random_state(device),
        "numpy": (str(algorithm), torch.from_numpy(keys.astype(np.int64)), *rest),
        "python": (version, torch.tensor(numbers), normal),
    }


def set_generators(device: torch.device, state: Generators) -> None:
    set_random_state(device, state["torch"])
    algorithm, keys, *rest = state["numpy"]
    np.random.set_state((algorithm, keys.numpy().astype(np.uint32), *rest))
    version, numbers, normal = state["python"]
    random.setstate((version, tuple(numbers.tolist()), normal))

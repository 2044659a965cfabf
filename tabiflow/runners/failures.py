"""Which kind of failure an exception is, decided by its type and the types behind it.

Libraries are looked up only where something has imported them: an exception cannot come from one
that is not there.
"""

import errno
import sys
from collections.abc import Iterator, Mapping

from tabiflow.errors import (
    DataError,
    Diverged,
    EnvironmentFault,
    ModelError,
    Superseded,
    TabiflowError,
    TimedOut,
)
from tabiflow.redaction import redacted
from tabiflow.trial import FailureKind

OURS: Mapping[type[BaseException], FailureKind] = {
    Diverged: "diverged",
    TimedOut: "timeout",
    ModelError: "model",
    DataError: "data",
    Superseded: "node_lost",
}
PHYSICAL: tuple[tuple[str, str, FailureKind], ...] = (
    ("ray.exceptions", "OutOfMemoryError", "oom"),
    ("ray.exceptions", "NodeDiedError", "node_lost"),
    ("ray.exceptions", "RayActorError", "node_lost"),
    ("ray.exceptions", "LocalRayletDiedError", "node_lost"),
    ("ray.exceptions", "WorkerCrashedError", "node_lost"),
    ("ray.exceptions", "ObjectLostError", "node_lost"),
    ("ray.exceptions", "ActorUnschedulableError", "node_lost"),
    ("ray.exceptions", "ActorPlacementGroupRemoved", "node_lost"),
    ("ray.exceptions", "TaskPlacementGroupRemoved", "node_lost"),
    ("ray.exceptions", "RaySystemError", "node_lost"),
    ("ray.exceptions", "RpcError", "node_lost"),
    ("ray.exceptions", "OutOfDiskError", "environment"),
    ("ray.exceptions", "ObjectStoreFullError", "environment"),
    ("ray.exceptions", "RuntimeEnvSetupError", "environment"),
    ("socket", "gaierror", "environment"),
    ("httpx2", "TransportError", "environment"),
    ("httpx", "TransportError", "environment"),
    ("requests", "ConnectionError", "environment"),
    ("requests", "Timeout", "environment"),
    ("aiohttp", "ClientConnectionError", "environment"),
)
"""Module, class, kind: whatever was tried, it failed because the machine or the network did."""
CONTENT: tuple[tuple[str, str, FailureKind], ...] = (
    ("safetensors", "SafetensorError", "model"),
    ("pyarrow", "ArrowInvalid", "data"),
    ("datasets.exceptions", "DatasetsError", "data"),
)
"""The same for what only one kind of input can cause."""
SHORTAGES = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE),
        *(errno.EMFILE, errno.ENFILE, errno.EAGAIN),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH),
    }
)
"""What an OSError says of a disk, of a file system behind a network, or of a process's limits."""
BUSY = frozenset({408, 429})
"""HTTP answers that, like all from 500 on, ask to try again later."""


def kind_of(error: BaseException) -> FailureKind:
    """What to do about an error follows from its kind; `bug` is everything unforeseen.

    Memory, disk and network decide wherever they stand in the chain: a model that cannot be loaded
    because the hub is down is not a broken model.
    """
    chain = tuple(_chain(error))
    for each in chain:
        kind = _physical(each)
        if kind is not None:
            return kind
    for each in chain:
        for type_, kind in OURS.items():
            if isinstance(each, type_):
                return kind
    return next((kind for each in chain for kind in _looked_up(each, CONTENT)), "bug")


def one_line(error: BaseException) -> str:
    """What a person reads in a list of failures; without secrets."""
    lines = redacted(str(error)).strip().splitlines()
    if isinstance(error, TabiflowError):
        return " ".join(lines)
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what led to it, the way a traceback tells it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        hidden = error.__suppress_context__
        error = error.__cause__ or (None if hidden else error.__context__)


def _physical(error: BaseException) -> FailureKind | None:
    if _out_of_memory(error):
        return "oom"
    if isinstance(error, EnvironmentFault | ConnectionError | TimeoutError):
        return "environment"
    if isinstance(error, OSError) and error.errno in SHORTAGES:
        return "environment"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(status, int) and (status >= 500 or status in BUSY):
        return "environment"
    return next(_looked_up(error, PHYSICAL), None)


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    device = sys.modules.get("tabiflow.device")
    return device is not None and bool(device.out_of_memory(error))


def _looked_up(
    error: BaseException, table: tuple[tuple[str, str, FailureKind], ...]
) -> Iterator[FailureKind]:
    for module, name, kind in table:
        type_ = getattr(sys.modules.get(module), name, None)
        if isinstance(type_, type) and isinstance(error, type_):
            yield kind

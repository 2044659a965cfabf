"""Is this machine fit to run a sweep? Looks at versions, device, ledger, disk and hub."""

import os
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from tabiflow import ledger
from tabiflow.errors import TabiflowError, UserError
from tabiflow.registry.datasets import DATASETS
from tabiflow.registry.local import cache_folder, check_cache

LEAST_FREE = 5 * 1024**3
HUB_TIMEOUT = 5.0


@dataclass(frozen=True)
class Finding:
    subject: str
    state: Literal["ok", "warning", "fault"]
    """A warning limits what can be run; a fault stops every sweep."""
    detail: str
    advice: str = ""


def examine() -> Iterator[Finding]:
    """Every check, in the order in which a fault would show."""
    yield _python()
    yield from _packages()
    checks: tuple[Callable[[], Finding], ...] = (_device, _ledger, _cache, _local_data, _hub)
    for check in checks:
        yield check()


def _python() -> Finding:
    return Finding("python", "ok", sys.version.split()[0])


def _packages() -> Iterator[Finding]:
    """What tabiflow's own metadata asks for, against what is installed."""
    for line in requires("tabiflow") or ():
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        yield _package(requirement)


def _package(requirement: Requirement) -> Finding:
    try:
        found = version(requirement.name)
    except PackageNotFoundError:
        advice = f"pip install '{requirement}'"
        return Finding(requirement.name, "fault", "not installed", advice)
    if requirement.specifier.contains(found, prereleases=True):
        return Finding(requirement.name, "ok", found)
    wanted = f"{found}, but tabiflow needs {requirement.specifier}"
    return Finding(requirement.name, "fault", wanted, f"pip install '{requirement}'")


def _device() -> Finding:
    try:
        import torch
    except ImportError as error:
        return Finding("device", "fault", f"torch does not import: {error}", "reinstall torch")
    if not torch.cuda.is_available():
        cores = os.cpu_count()
        return Finding("device", "ok", f"no GPU; {cores} CPU cores, attention sdpa, fp32")
    names = ", ".join(
        torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())
    )
    attention = "flash-attn" if find_spec("flash_attn") else "sdpa"
    precision = "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    return Finding("device", "ok", f"{names}; attention {attention}, {precision}")


def _ledger() -> Finding:
    address = ledger.shown_address()
    if not ledger.exists():
        return Finding("ledger", "ok", f"{address} (none yet; the first sweep makes it)")
    try:
        count = len(ledger.open_ledger().outcomes())
    except TabiflowError as error:
        return Finding("ledger", "fault", str(error))
    return Finding("ledger", "ok", f"{address}, {count} trials known")


def _cache() -> Finding:
    folder = cache_folder()
    try:
        check_cache()
    except UserError as error:
        return Finding("cache", "fault", f"{folder}: {error.message}", error.hint or "")
    free = shutil.disk_usage(folder).free
    state: Literal["ok", "warning"] = "ok" if free >= LEAST_FREE else "warning"
    advice = "" if state == "ok" else "free some space, or set TABIFLOW_CACHE elsewhere"
    return Finding("cache", state, f"{folder}, {free / 1024**3:.0f} GiB free", advice)


def _local_data() -> Finding:
    offer = os.environ.get("TABIFLOW_DATA")
    if not offer:
        return Finding("local data", "ok", "TABIFLOW_DATA is not set; data sets come from the hub")
    folder = Path(offer).expanduser()
    if not folder.is_dir():
        return Finding("local data", "fault", f"TABIFLOW_DATA={offer} is no folder")
    known = {row.name for row in DATASETS}
    found = sorted(each.name for each in folder.iterdir() if each.name in known)
    if not found:
        advice = "name each folder like a data set of `tabiflow list datasets`"
        return Finding("local data", "warning", f"{folder} holds no known data set", advice)
    return Finding("local data", "ok", f"{folder}: {', '.join(found)}")


def _hub() -> Finding:
    """Only a warning: a sweep over local rows needs no hub."""
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    if os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
        return Finding("hub", "warning", "HF_HUB_OFFLINE is set; only cached rows can be loaded")
    try:
        with urllib.request.urlopen(f"{address}/api/models?limit=1", timeout=HUB_TIMEOUT):
            return Finding("hub", "ok", address)
    except urllib.error.HTTPError as error:
        return Finding("hub", "warning", f"{address} answers {error.code}")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        advice = "rows of the hub cannot be loaded; local ones can"
        return Finding("hub", "warning", f"{address} cannot be reached: {reason}", advice)

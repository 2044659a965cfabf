"""What every benchmark says of where it ran, and how it shows a number that was measured often."""

import os
import platform
import statistics
from collections.abc import Sequence
from importlib.metadata import version


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB, Python "
        f"{platform.python_version()}, Ray {version('ray')}"
    )


def spread(values: Sequence[float], form: str = ".4f") -> str:
    if not values:
        return "–"
    middle = format(statistics.median(values), form)
    return f"{middle} ({min(values):{form}} to {max(values):{form}})"

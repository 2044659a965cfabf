"""The Ray that a command starts for itself, in a process of its own: this one has another."""

import subprocess
import sys

import pytest

LOCAL = """
import os
from pathlib import Path

import ray
from tabiflow.cluster import joined


def ours(process):
    return process.joinpath("stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid())


with joined(workers=1):
    assert ray.get(ray.remote(lambda: 1).remote()) == 1
    children = [each for each in Path("/proc").glob("[0-9]*") if ours(each)]
    told = [each.joinpath("cmdline").read_text().split("\\0") for each in children]
print(*(Path(word).name for each in told for word in each), sep="\\n")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_ray_of_ones_own_is_started_with_nothing_that_nobody_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", LOCAL], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert {"gcs_server", "raylet"} <= set(done.stdout.split("\n"))
    assert not {"dashboard.py", "monitor.py", "log_monitor.py"} & set(done.stdout.split("\n"))

"""The embedded example: small Turkish data sets made from templates, and two tiny encoders."""

from importlib.resources import files
from pathlib import Path


def benchmark_folder() -> Path:
    """The folder with `<task>/{validation,test}.jsonl` of the generative benchmark's example."""
    return Path(str(files("tabiflow.example"))) / "cetvel"


def data_folder(name: str) -> Path:
    """The folder with `{train,validation,test}.jsonl` of a shipped data set."""
    return Path(str(files("tabiflow.example"))) / "data" / name

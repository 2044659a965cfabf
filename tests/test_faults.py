"""Real faults in real trials: what kind each is reported as, and what the sweep then does.

Models are folders whose own code misbehaves, the disk is a file system that is too small, memory is
ended by Ray's monitor, the hub is one on the loopback or nobody. Prints a table a sweep.
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hub import loopback
from samples import LABELS, sample
from tiny import tiny_model

from tabiflow.ledger.records import Run
from tabiflow.ledger.store import Store

SCRIPT = Path(__file__).with_name("sweeping.py")
CODE = """
import torch
from transformers import BertForSequenceClassification

class Faulty(BertForSequenceClassification):
    kept = []

    def forward(self, *args, **inputs):
        {fault}
        return super().forward(*args, **inputs)
"""
FAULTS = {
    "cramped": "if len(inputs['input_ids']) > 4: raise torch.cuda.OutOfMemoryError('CUDA')",
    "oversized": "raise torch.cuda.OutOfMemoryError('CUDA out of memory')",
    "undefined": "self.classifier.weight.data[0, 0] = float('nan')",
    "buggy": "return inputs['nothing']",
    "hungry": "self.kept.append(bytearray(b'x') * 2**28) if len(self.kept) < 40 else None",
}
"""What a model does in every step, by its name."""


def _model(folder: Path, name: str) -> dict[str, Any]:
    """A row, with its folder."""
    home = tiny_model(folder / name)
    if name == "truncated":
        weights = home / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1000])
    if name not in FAULTS:
        return {"name": name, "path": name}
    config = json.loads((home / "config.json").read_text())
    config["auto_map"] = {"AutoModelForSequenceClassification": "faulty.Faulty"}
    (home / "config.json").write_text(json.dumps(config))
    (home / "faulty.py").write_text(CODE.format(fault=FAULTS[name]))
    return {"name": name, "path": name, "trust_remote_code": True}


def _splits() -> dict[str, bytes]:
    tables = {split: sample("classification", 40) for split in ("train", "validation", "test")}
    return {
        f"{split}.jsonl": "\n".join(map(json.dumps, table.drop(["row"]).to_pylist())).encode()
        for split, table in tables.items()
    }


def _swept(
    folder: Path,
    models: Sequence[str],
    *,
    datasets: Sequence[Mapping[str, Any]] = (),
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    **changes: Any,
) -> dict[tuple[str, str], list[Run]]:
    """The attempts of each cell, in order."""
    (folder / "data").mkdir()
    for name, content in _splits().items():
        (folder / "data" / name).write_bytes(content)
    local = {"name": "local", "path": "data", "task": "classification"}
    rates = {"learning_rate": [1e-3, 2e-3], "batch_size": 8}
    content = {
        "name": "faults",
        "models": [_model(folder, name) for name in models],
        "search": [{"datasets": [*(datasets or [local])], "space": rates}],
        "protocol": {"epochs": 3, "patience": None},
        "limits": {"retries": 1},
        **changes,
    }
    file = folder / "faults.yaml"
    file.write_text(json.dumps(content))
    done = subprocess.run(
        [*prefix, sys.executable, str(SCRIPT), str(file), "0.1"],
        cwd=folder,
        env={**os.environ, **_own(folder), **(environment or {})},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    store = Store.open(f"sqlite:///{folder / '.tabiflow' / 'mlflow.db'}")
    found = defaultdict(list)
    for run in store.tracking.runs("trial"):
        found[run.tags["model"], run.tags["dataset"]].append(run)
    return found


def _own(folder: Path) -> dict[str, str]:
    return {
        "MLFLOW_TRACKING_URI": "",
        "RAY_ADDRESS": "",
        "TABIFLOW_CACHE": str(folder / "cache"),
        "HF_HOME": str(folder / "home"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


def _told(runs: Sequence[Run]) -> tuple[list[str], list[int]]:
    """How the cell's trials ended, and the attempts that each had."""
    attempts = defaultdict(list)
    for run in runs:
        attempts[run.tags["trial"]].append(run)
    last = [found[-1].tags for found in attempts.values()]
    kinds = sorted(tags.get("failure_kind", tags["status"]) for tags in last)
    return kinds, sorted(map(len, attempts.values()))


def _print(found: Mapping[tuple[str, str], Sequence[Run]]) -> None:
    print("\n| injected | reported | attempts of each trial |\n| --- | --- | --- |")
    for (model, dataset), runs in found.items():
        kinds, attempts = _told(runs)
        print(f"| {model} on {dataset} | {', '.join(kinds)} | {', '.join(map(str, attempts))} |")


@pytest.mark.slow
def test_faults_of_models_and_data_are_known_by_their_kind(tmp_path: Path) -> None:
    names = ["sound", "cramped", "oversized", "undefined", "buggy", "truncated"]
    found = _swept(tmp_path, names, cpus=2)
    _print(found)
    told = {model: _told(runs) for (model, _), runs in found.items()}

    assert told["sound"] == (["done", "done"], [1, 1])
    assert told["cramped"] == (["done", "done"], [1, 1])
    assert {run.tags["largest_part"] for run in found["cramped", "local"]} == {"4"}
    assert told["oversized"] == (["oom", "oom"], [1, 1])
    assert told["undefined"] == (["diverged", "diverged"], [1, 1])
    assert told["buggy"] == (["bug", "bug"], [1, 1])
    assert told["truncated"] == (["model", "model"], [1, 1])


@pytest.mark.slow
def test_a_label_that_the_schema_lacks_is_the_datas_fault_and_holds_the_cell(
    tmp_path: Path,
) -> None:
    with loopback() as hub:
        hub.publish("datasets", "owner/labelled", _splits())
        row = {"name": "labelled", "hub": "owner/labelled", "task": "classification"}
        found = _swept(
            tmp_path,
            ["sound"],
            datasets=[{**row, "labels": [LABELS["classification"][0]]}],
            environment={"HF_ENDPOINT": hub.url},
        )
    _print(found)
    assert _told(found["sound", "labelled"]) == (["data", "data"], [1, 1])


@pytest.mark.slow
def test_a_hub_out_of_reach_is_tried_again_and_holds_nothing(tmp_path: Path) -> None:
    row = {"name": "away", "hub": "owner/away", "task": "classification"}
    found = _swept(
        tmp_path, ["sound"], datasets=[row], environment={"HF_ENDPOINT": "http://127.0.0.1:9"}
    )
    _print(found)
    assert _told(found["sound", "away"]) == (["environment", "environment"], [2, 2])


@pytest.mark.slow
def test_a_disk_that_is_full_is_tried_again_and_holds_nothing(tmp_path: Path) -> None:
    """In a name space of its own, where whoever may not mount otherwise may."""
    (tmp_path / "small").mkdir()
    mount = 'mount -t tmpfs -o size=64k none small && exec "$@"'
    found = _swept(
        tmp_path,
        ["sound"],
        prefix=["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"],
        storage="small",
        checkpoint="epoch",
    )
    _print(found)
    assert _told(found["sound", "local"]) == (["environment", "environment"], [2, 2])
    errors = {run.tags.get("error", run.tags.get("cause", "")) for run in found["sound", "local"]}
    assert all("No space left on device" in error for error in errors), errors


def _used() -> float:
    """The share of memory that is in use."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    sizes = {fields[0]: int(fields[1]) for fields in lines}
    return 1 - sizes["MemAvailable:"] / sizes["MemTotal:"]


@pytest.mark.slow
def test_a_trial_that_ends_its_nodes_memory_is_tried_alone_and_takes_nobody_with_it(
    tmp_path: Path,
) -> None:
    memory = {
        "RAY_memory_usage_threshold": f"{_used() + 0.15:.2f}",
        "RAY_memory_monitor_refresh_ms": "100",
    }
    found = _swept(
        tmp_path,
        ["hungry", "sound"],
        environment=memory,
        protocol={"epochs": 20, "patience": None},
        checkpoint="epoch",
    )
    _print(found)
    assert _told(found["sound", "local"])[0] == ["done", "done"]
    kinds, attempts = _told(found["hungry", "local"])
    assert kinds == ["oom", "oom"] and min(attempts) >= 2

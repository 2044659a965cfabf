"""Models on Ray Serve: what is refused before it starts, and the embedded engine end to end."""

import asyncio
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
import ray
from terminal import driver

from tabiflow.cli import execute
from tabiflow.endpoint import Endpoint
from tabiflow.endpoint.preflight import Needs, preflight
from tabiflow.endpoint.vocabulary import Local
from tabiflow.errors import ModelError, UserError
from tabiflow.registry.generators import generator
from tabiflow.serving.hosting import served
from tabiflow.serving.start import Start
from tabiflow.spec import Generator, Replicas

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"gpus": 1.0}, "no room for 1 replica with 1 CPU and 1 GPU: 0 of the 1 fit"),
        ({"cpus": 64.0}, "no room for 1 replica with 64 CPU and 0 GPU"),
        ({"replicas": 3}, "no room for 3 replicas with 1 CPU and 0 GPU: 2 of the 3 fit"),
    ],
)
def test_what_no_node_could_hold_is_refused_at_once(
    local_ray: None, changes: dict[str, object], told: str
) -> None:
    row = generator("example-generator").model_copy(update=changes)
    with pytest.raises(UserError, match=told), served(row):
        raise AssertionError("it was served")


def test_replicas_that_may_grow_are_scaled_by_ray() -> None:
    row = Generator(name="m", hub="a/m", replicas=Replicas(min=1, max=4, ongoing=8))
    assert Start(row, Path(), "float32", 0.0).scaling == {
        "autoscaling_config": {"min_replicas": 1, "max_replicas": 4, "target_ongoing_requests": 8}
    }


def test_an_unknown_model_gets_a_near_name() -> None:
    with pytest.raises(UserError, match="did you mean `example-generator`"):
        generator("example-generater")


@pytest.mark.slow
def test_two_replicas_of_the_embedded_engine_answer_as_the_protocol_says(local_ray: None) -> None:
    row = generator("example-generator").model_copy(update={"engine": "embedded", "replicas": 2})
    with served(row) as found:

        async def look() -> object:
            async with Endpoint(found.url) as endpoint:
                needs = Needs(beams=5, dtype="float32")
                return await preflight(endpoint, Local(found.folder), needs)

        assert asyncio.run(look()).notes == []  # type: ignore[attr-defined]
    assert found.seconds > 0


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_is_said_and_taken_down(
    local_ray: None, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    row = Generator(name="broken", path=tmp_path, engine="embedded")
    with pytest.raises(ModelError, match=r"cannot be served: .*Error"), served(row):
        raise AssertionError("it was served")


@pytest.mark.slow
def test_a_replica_that_dies_leaves_all_rows_and_nothing_but_the_result_on_standard_output(
    local_ray: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    model = {"name": "example-generator", "build": "generator", "engine": "embedded", "replicas": 2}
    content = {"name": "dies", "models": [model], "tasks": ["xcopa_tr"], "data": "data"}
    (tmp_path / "dies.yaml").write_text(json.dumps(content))
    folder = tmp_path / "data" / "xcopa_tr"
    folder.mkdir(parents=True)
    row = {"question": "cause", "choice1": "Yağmur yağdı.", "choice2": "Güneş açtı.", "label": 0}
    lines = [json.dumps({**row, "premise": f"Yol {n} gün kapandı."}) for n in range(2000)]
    (folder / "test.jsonl").write_text("\n".join(lines), encoding="utf-8")
    killer = threading.Thread(target=_kill_a_replica, args=[tmp_path / ".tabiflow" / "answers"])
    killer.start()
    code = execute(["cetvel", "dies.yaml", "--json"])
    killer.join()
    (score,) = json.loads(capsys.readouterr().out)["scores"]
    assert (code, score["n"], int(score["facts"]["retries"]) > 0) == (0, 2000, True)


def _kill_a_replica(answers: Path) -> None:
    """Once there are answers."""
    while not any(file.stat().st_size for file in answers.glob("*.jsonl")):
        time.sleep(0.05)
    named = ray.util.list_named_actors(all_namespaces=True)
    name, namespace = next((e["name"], e["namespace"]) for e in named if "#embedded#" in e["name"])
    victim = ray.get_actor(name, namespace=namespace)
    os.kill(ray.get(victim.__ray_call__.remote(lambda self: os.getpid())), 9)


@pytest.mark.slow
def test_a_model_that_is_served_says_where_in_one_line_and_goes_with_sigterm(
    tmp_path: Path,
) -> None:
    verb = ["serve", "example-generator", "--engine", "embedded", "--port", "0", "--json"]
    # As a script's shell starts what it does not wait for.
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *driver(*verb)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, cwd=tmp_path, text=True, **pipes)
    assert server.stdout is not None
    told = json.loads(_object(server.stdout))
    server.terminate()
    rest, _ = server.communicate(timeout=120)
    assert (told["engine"], rest, server.returncode) == ("embedded", "", 130)


def _object(lines: Iterable[str]) -> str:
    """Up to the brace that closes it."""
    found = []
    for line in lines:
        found.append(line)
        if line.startswith("}"):
            break
    return "".join(found)


@pytest.mark.slow
def test_the_quickstart_asks_every_category_within_three_minutes(tmp_path: Path) -> None:
    verb = ["cetvel", str(ROOT / "sweeps" / "cetvel-quickstart.yaml"), "--json"]
    done = subprocess.run(
        driver(*verb),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    found = json.loads(done.stdout)
    assert len({each["category"] for each in found["scores"]}) == 7
    assert found["missing"] == []
    assert {each["facts"]["engine"] for each in found["scores"]} == {"embedded"}

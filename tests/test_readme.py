"""What the README shows must parse, exist and be whole."""

import re
import shlex
from pathlib import Path

import click
import pytest

from tabiflow.cli import verbs
from tabiflow.registry.kinds import KINDS
from tabiflow.source import Source
from tabiflow.spec import Sweep
from tabiflow.spec.evaluation import Evaluation

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, flags=re.DOTALL)
COMMANDS = [
    line.split("#")[0].strip()
    for language, block in BLOCKS
    if language == "bash"
    for line in block.splitlines()
    if line.startswith("tabiflow ")
]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_tour_is_one_that_the_verbs_take(line: str) -> None:
    name, *arguments = shlex.split(line)[1:]
    verb = verbs.commands[name]
    with click.Context(verbs) as context:
        made = verb.make_context(name, arguments, parent=context)
    sweep = made.params.get("sweep")
    assert sweep is None or (ROOT / sweep).is_file()


def test_the_sweep_by_example_is_one(tmp_path: Path) -> None:
    (example,) = [block for _, block in BLOCKS if "sweeps/mine.yaml" in block]
    (tmp_path / "sweeps" / "my_metric").mkdir(parents=True)
    (tmp_path / "search_spaces").mkdir()
    space = (ROOT / "search_spaces" / "tabibench.yaml").read_text()
    (tmp_path / "search_spaces" / "tabibench.yaml").write_text(space)
    file = tmp_path / "sweeps" / "mine.yaml"
    file.write_text(example, encoding="utf-8")
    assert Sweep.read(file).name == "mine"


def test_the_evaluation_by_example_is_one(tmp_path: Path) -> None:
    (example,) = [block for _, block in BLOCKS if "sweeps/mine-cetvel.yaml" in block]
    for folder in ("models/mine", "data/gecturk_boun", "data/tumlu", "cetvel", "sweeps"):
        (tmp_path / folder).mkdir(parents=True)
    file = tmp_path / "sweeps" / "mine-cetvel.yaml"
    file.write_text(example, encoding="utf-8")
    assert len(Evaluation.read(file).tasks) == 3


@pytest.mark.parametrize("name", ["tabibench", "tpe"])
def test_a_space_by_example_is_the_shipped_one(name: str, tmp_path: Path) -> None:
    (example,) = [block for _, block in BLOCKS if block.startswith(f"# search_spaces/{name}.yaml")]
    file = tmp_path / f"{name}.yaml"
    file.write_text(example, encoding="utf-8")
    shipped = Source.read(ROOT / "search_spaces" / f"{name}.yaml")
    assert Source.read(file).plain == shipped.plain


def test_the_sweep_of_winners_by_example_is_the_shipped_one(tmp_path: Path) -> None:
    (example,) = [block for _, block in BLOCKS if block.startswith("# sweeps/seeds.yaml")]
    file = tmp_path / "seeds.yaml"
    file.write_text(example, encoding="utf-8")
    assert Source.read(file).plain == Source.read(ROOT / "sweeps" / "seeds.yaml").plain


def test_every_file_of_the_map_exists_and_every_module_is_on_it() -> None:
    named = set(re.findall(r"`(tabiflow/[\w./]+)`", TEXT))
    assert all((ROOT / name).exists() for name in named)
    modules = {path for path in (ROOT / "tabiflow").iterdir() if path.suffix == ".py"}
    packages = {path.parent for path in (ROOT / "tabiflow").glob("*/__init__.py")}
    missing = [
        path.name
        for path in modules | packages
        if path.name.strip("_") not in ("init__.py", "init.py") and path.name not in TEXT
    ]
    assert missing == []


def test_every_kind_of_task_is_in_the_table() -> None:
    assert all(f"| `{kind}` |" in TEXT for kind in KINDS)

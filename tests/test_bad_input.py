"""Mistakes in data, models and ledgers as a person meets them: one line, exit code 2, no record."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from terminal import Terminal, opened

ROWS = [{"text": f"metin {index}", "label": ("a", "b")[index % 2]} for index in range(8)]
SWEEP = """\
name: study
models:
  - {name: tiny, path: model}
search:
  - datasets:
      - {name: mine, path: data, task: classification, labels: [a, b]}
    space: {learning_rate: 1e-4}
"""


@pytest.fixture
def terminal(
    tmp_path: Path,
    ledger_template: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Terminal:
    """A sound sweep of one cell over local files, to be spoiled."""
    terminal = opened(tmp_path, ledger_template, capsys, monkeypatch)
    monkeypatch.setenv("TABIFLOW_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "data").mkdir()
    for split in ("train", "validation", "test"):
        write(tmp_path, split, ROWS)
    (tmp_path / "study.yaml").write_text(SWEEP)
    return terminal


def write(folder: Path, split: str, rows: Sequence[Mapping[str, object]]) -> None:
    lines = (json.dumps(row) for row in rows)
    (folder / "data" / f"{split}.jsonl").write_text("\n".join(lines))


def edit(old: str, new: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        file = folder / "study.yaml"
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    return change


def test_the_sound_sweep_is_sound(terminal: Terminal) -> None:
    assert terminal.json("plan", "study.yaml")["todo"] == 1


@pytest.mark.parametrize("verb", ["plan", "sweep", "report"])
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda f: write(f, "train", [{"txt": "x", "label": "a"}] * 4), "did you mean `txt`"),
        (lambda f: write(f, "validation", [{"text": "x", "label": "c"}]), "`c`"),
        (lambda f: write(f, "validation", []), "validation.jsonl"),
        (lambda f: (f / "data" / "train.jsonl").write_bytes(b"\xff\xfe{"), "train.jsonl"),
        (lambda f: (f / "data" / "train.jsonl").write_text('{"text": '), "train.jsonl"),
        (lambda f: (f / "data" / "train.jsonl").rename(f / "data" / "train.parquet"), "parquet"),
        (lambda f: (f / "model" / "config.json").unlink(), "study.yaml:3: "),
        (edit("path: data,", "path: dta,"), "study.yaml:6: "),
        (edit("path: model", "path: modl"), "study.yaml:3: "),
        (edit("name: tiny, path: model", "hub: tiny, path: model"), "study.yaml:3: "),
        (edit("learning_rate: 1e-4", "learning_rate: {log_uniform: [1e-5, 1e-3]}"), "samples"),
        (edit("labels: [a, b]", "labels: [a, b"), "study.yaml:"),
        (edit("task: classification", "task: clasification"), "did you mean `classification`?"),
        (
            edit("name: study", "name: study\nprotocol: {max_length: 4}"),
            "study.yaml:2: `max_length`",
        ),
        (edit("name: study", "nme: study"), "study.yaml:1: unknown key `nme`"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_trace(
    spoil: Callable[[Path], object], said: str, verb: str, terminal: Terminal
) -> None:
    spoil(terminal.folder)
    before = terminal.ledger.read_bytes()
    answer = terminal(verb, "study.yaml")
    assert answer.code == 2 and answer.err.count("\n") == 1, answer.err
    assert said in answer.err
    assert terminal.ledger.read_bytes() == before and terminal.runs() == []


@pytest.mark.parametrize(
    ("tags", "said"),
    [(["PER", "O"], "tag `PER` is not IOB2"), ([1, 0], "`labels` names them in order")],
)
def test_tags_that_tell_no_entities_are_said_before_anything_runs(
    tags: list[object], said: str, terminal: Terminal
) -> None:
    edit("task: classification, labels: [a, b]", "task: ner")(terminal.folder)
    for split in ("train", "validation", "test"):
        write(terminal.folder, split, [{"tokens": ["Ali", "geldi"], "tags": tags}] * 4)
    answer = terminal("sweep", "study.yaml")
    assert answer.code == 2 and said in answer.err and "train.jsonl" in answer.err


def test_a_metric_that_cannot_be_loaded_starts_no_trial(terminal: Terminal) -> None:
    edit("name: study", 'name: study\nmetrics: ["evaluate:./broken"]')(terminal.folder)
    (terminal.folder / "broken").mkdir()
    (terminal.folder / "broken" / "broken.py").write_text("import nothing_of_this_name")
    answer = terminal("sweep", "study.yaml")
    assert answer.code == 2 and "broken: metric cannot be loaded" in answer.err, answer.err
    assert terminal.runs() == []


def as_folder(file: Path) -> None:
    file.mkdir()


def as_text(file: Path) -> None:
    file.write_text("some words, and no database at all; " * 9)


@pytest.mark.parametrize("make", [as_folder, as_text])
@pytest.mark.parametrize("verb", ["plan", "sweep"])
def test_a_ledger_that_cannot_be_used_is_one_line(
    make: Callable[[Path], None], verb: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = terminal.folder / "ledger"
    make(made)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{made}")
    answer = terminal("sweep" if made.is_dir() else verb, "study.yaml")
    assert answer.code == 2 and answer.err.count("\n") == 1 and "ledger" in answer.err


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cpus: 100", "a trial takes 100 CPUs"),
        ("storage: data/train.jsonl/below", "storage cannot be written"),
        ("storage: nothing-knows://bucket", "no installed package can open this storage"),
    ],
)
def test_what_no_trial_could_run_with_is_said_before_anything_is_recorded(
    line: str, said: str, terminal: Terminal
) -> None:
    edit("name: study", f"name: study\n{line}")(terminal.folder)
    before = terminal.ledger.read_bytes()
    answer = terminal("sweep", "study.yaml")
    assert (answer.code, terminal.runs()) == (2, []) and said in answer.err
    assert terminal.ledger.read_bytes() == before


def test_a_cache_that_cannot_be_written_is_said_before_anything_is_recorded(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABIFLOW_CACHE", "study.yaml/below")
    answer = terminal("sweep", "study.yaml")
    assert answer.code == 2 and "the cache cannot be written" in answer.err
    assert terminal.runs() == []

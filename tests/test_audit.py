"""What the audit finds: nothing on clean data, each seeded defect, what real data are known for."""

import json
import logging
import re
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from samples import LABELS
from terminal import Terminal, opened
from tiny import LINES, tiny_model

from tabiflow import data
from tabiflow.audit import Audit, Finding, audit
from tabiflow.audit.judging import of_row
from tabiflow.audit.texts import folded
from tabiflow.errors import SealError
from tabiflow.registry import resolve
from tabiflow.registry.datasets import DATASETS
from tabiflow.spec import Sweep

REAL = Path(__file__).parents[2] / "shared" / "data" / "tabibench"
DEPARTS = "split-rule-deviation"
WORDS = sorted({word for line in LINES for word in line.split() if word.isalpha()})
Rows = dict[str, list[dict[str, Any]]]


def text(number: int, most: int = 6) -> str:
    """Another one for each number, of words that the tiny tokenizers know."""
    return " ".join(WORDS[(number * 7 + place * (number // 31 + 1)) % 47] for place in range(most))


def rows(row: Callable[[int], Mapping[str, Any]]) -> Rows:
    sizes = {"train": range(24), "validation": range(24, 34), "test": range(34, 44)}
    return {split: [dict(row(number)) for number in numbers] for split, numbers in sizes.items()}


def qa(number: int) -> dict[str, Any]:
    context = f"{text(number)} ve {text(number + 50)}"
    answers = {"text": [context.split()[0]], "answer_start": [0]}
    return {"context": context, "question": text(number, 3), "answers": answers}


CLEAN: Mapping[str, Callable[[int], dict[str, Any]]] = {
    "classification": lambda n: {"text": text(n), "label": ("bad", "good")[n % 2]},
    "nli": lambda n: {
        "premise": text(n),
        "hypothesis": text(n + 50),
        "label": ("entailment", "neutral")[n % 2],
    },
    "sts": lambda n: {"sentence1": text(n), "sentence2": text(n + 50), "score": n % 5},
    "ner": lambda n: {"tokens": text(n).split(), "tags": ["B-PER", "I-PER", "O", "O", "O", "O"]},
    "pos": lambda n: {"tokens": text(n).split(), "tags": ["B-PER", "I-PER", "O", "O", "O", "O"]},
    "qa": qa,
    "retrieval": lambda n: {"anchor": text(n), "positive": text(n + 50)},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABIFLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TABIFLOW_DATA", raising=False)


def write(folder: Path, splits: Rows) -> Path:
    folder.mkdir(parents=True)
    for name, content in splits.items():
        lines = "\n".join(json.dumps(row) for row in content)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return folder


def swept(folder: Path, models: Any, datasets: Any, **fields: Any) -> Path:
    search = [{"datasets": datasets, "space": {"learning_rate": 1e-5}}]
    content = {"name": "study", "models": models, "search": search, **fields}
    file = folder / "study.yaml"
    file.write_text(json.dumps(content))
    return file


def study(folder: Path, model: Path, task: str, splits: Rows, **fields: Any) -> Path:
    """A sweep of one cell; `fields` are the sweep's."""
    row: dict[str, Any] = {
        "name": "mine",
        "path": str(write(folder / "mine", splits)),
        "task": task,
    }
    row |= {"labels": LABELS[task]} if task in LABELS else {}
    row |= {"label_range": [0, 5]} if task == "sts" else {}
    return swept(folder, [{"name": "tiny", "path": str(model)}], [row], **fields)


def audited(file: Path) -> Audit:
    sweep = Sweep.read(file)
    return audit(sweep, resolve(sweep))


def by_code(found: Audit) -> dict[str, Finding]:
    return {each.code: each for each in found.findings}


@pytest.mark.parametrize("task", CLEAN)
def test_a_clean_set_has_no_findings(task: str, tmp_path: Path, model: Path) -> None:
    found = audited(study(tmp_path, model, task, rows(CLEAN[task])))
    assert found.findings == ()
    splits = found.datasets[0].contents.splits
    assert [splits[name].rows for name in ("train", "validation", "test")] == [24, 10, 10]
    assert found.cells[0].measured.tokens.fertility > 0


def repeated(splits: Rows) -> None:
    splits["test"][3] = splits["train"][5]


def nearly_repeated(splits: Rows) -> None:
    splits["test"][3] = {**splits["train"][5], "text": splits["train"][5]["text"].upper() + " !"}


def python_cased(splits: Rows) -> None:
    """`str.upper` and `str.lower` know nothing of dotted and dotless i."""
    splits["train"][5]["text"] = "ışıklı İzmir ilçesi"
    splits["validation"][3]["text"] = splits["train"][5]["text"].upper()
    splits["test"][3]["text"] = splits["train"][5]["text"].lower()


def respelt(splits: Rows) -> None:
    splits["train"][5]["text"] = "güzel ﬁlm, çok"
    splits["test"][3]["text"] = unicodedata.normalize("NFD", "Güzel film\u200b\u00a0çok")


def foreign(splits: Rows) -> None:
    splits["validation"][2]["label"] = "ugly"


def emptied(splits: Rows) -> None:
    splits["train"][7]["text"] = " \n"


def invisible(splits: Rows) -> None:
    splits["train"][7]["text"] = "\u200b\ufeff \u2060"


def constant(splits: Rows) -> None:
    for row in splits["train"]:
        row["label"] = "good"


def long(splits: Rows) -> None:
    splits["test"][4]["text"] = " ".join(text(number) for number in range(60, 100))


def twice(splits: Rows) -> None:
    splits["train"][9] = splits["train"][11]


def torn(splits: Rows) -> None:
    splits["train"][9] = {"text": splits["train"][12]["text"], "label": "good"}


def unlabelled(splits: Rows) -> None:
    splits["train"][9]["label"] = None


def blank(splits: Rows) -> None:
    """As tables write a missing value."""
    splits["train"][9]["label"] = " "


def textless(splits: Rows) -> None:
    splits["test"][9]["text"] = None


def strange(splits: Rows) -> None:
    splits["train"] = [{**row, "text": "漢字 " * 3 + row["text"]} for row in splits["train"]]


DEFECTS = {
    repeated: ("duplicate-across-splits", "serious"),
    nearly_repeated: ("duplicate-across-splits", "warning"),
    python_cased: ("duplicate-across-splits", "warning"),
    respelt: ("duplicate-across-splits", "warning"),
    foreign: ("label-outside-schema", "serious"),
    invisible: ("empty-text", "warning"),
    blank: ("rows-excluded", "note"),
    emptied: ("empty-text", "warning"),
    constant: ("constant-label", "serious"),
    long: ("rows-cut", "warning"),
    twice: ("duplicate-within-split", "warning"),
    torn: ("label-noise", "warning"),
    unlabelled: ("rows-excluded", "note"),
    textless: ("rows-excluded", "warning"),
    strange: ("unknown-tokens", "warning"),
}


@pytest.mark.parametrize("spoil", DEFECTS)
def test_a_seeded_defect_is_found(
    spoil: Callable[[Rows], None], tmp_path: Path, model: Path
) -> None:
    splits = rows(CLEAN["classification"])
    spoil(splits)
    found = by_code(audited(study(tmp_path, model, "classification", splits)))
    code, severity = DEFECTS[spoil]
    assert found[code].severity == severity and found[code].dataset == "mine"
    assert found[code].message and found[code].advice


def test_several_defects_hide_none_of_each_other(tmp_path: Path, model: Path) -> None:
    splits = rows(CLEAN["classification"])
    for spoil in (constant, repeated, foreign, emptied, long):
        spoil(splits)
    found = by_code(audited(study(tmp_path, model, "classification", splits)))
    wanted = {DEFECTS[spoil][0] for spoil in (constant, repeated, foreign, emptied, long)}
    assert wanted <= set(found)
    assert found["label-outside-schema"].numbers == {"validation": {"ugly": 1}}


def test_near_duplicates_are_counted_in_every_pair_of_splits(tmp_path: Path, model: Path) -> None:
    splits = rows(CLEAN["classification"])
    python_cased(splits)
    (found,) = audited(study(tmp_path, model, "classification", splits)).datasets
    pairs = {(each.earlier, each.later): each.nearly for each in found.contents.shared}
    whole = {("train", "validation"), ("train", "test"), ("validation", "test")}
    assert pairs == dict.fromkeys(whole, 1)


@pytest.mark.parametrize(
    ("task", "column", "value", "code"),
    [
        ("sts", "score", 7, "score-outside-range"),
        ("ner", "tags", ["B-DOG", "O", "O", "O", "O", "O"], "label-outside-schema"),
        ("pos", "tags", ["X", "O", "O", "O", "O", "O"], "label-outside-schema"),
        ("ner", "tags", ["O"], "unreadable"),
        ("ner", "tokens", ["a", " ", "b", "c", "d", "e"], "empty-text"),
        ("sts", "score", "high", "unreadable"),
        ("qa", "answers", {"text": ["Ankara"], "answer_start": [3]}, "answer-misplaced"),
        ("qa", "answers", {"text": "x"}, "unreadable"),
        ("qa", "answers", {"text": ["", " "], "answer_start": [0, 0]}, "rows-excluded"),
        ("nli", "label", "maybe", "label-outside-schema"),
        ("retrieval", "positive", "", "empty-text"),
    ],
)
def test_each_kind_of_task_has_its_defects(
    task: str, column: str, value: Any, code: str, tmp_path: Path, model: Path
) -> None:
    splits = rows(CLEAN[task])
    splits["test"][2][column] = value
    assert code in by_code(audited(study(tmp_path, model, task, splits)))


def test_one_label_in_all_splits_is_found_without_a_declared_schema(
    tmp_path: Path, model: Path
) -> None:
    write(tmp_path / "mine", rows(lambda n: {"text": text(n), "label": "same"}))
    row = {"name": "mine", "path": "mine", "task": "classification"}
    found = audited(swept(tmp_path, [{"name": "tiny", "path": str(model)}], [row])).findings
    assert [(each.code, each.severity) for each in found] == [("constant-label", "serious")] * 3


def test_a_class_that_training_lacks_is_found(tmp_path: Path, model: Path) -> None:
    splits = rows(CLEAN["nli"])
    splits["train"] = [row for row in splits["train"] if row["label"] == "neutral"]
    assert by_code(audited(study(tmp_path, model, "nli", splits)))[
        "class-not-in-train"
    ].numbers == {"entailment": 10}


def test_rows_that_cannot_be_read_leave_the_other_splits_audited(
    tmp_path: Path, model: Path
) -> None:
    file = study(tmp_path, model, "nli", rows(CLEAN["nli"]))
    (tmp_path / "mine" / "test.jsonl").write_text("no json")
    found = audited(file)
    assert by_code(found)["unreadable"].numbers == {"splits": ["test"]}
    assert set(found.datasets[0].contents.splits) == {"train", "validation"}
    assert found.cells[0].measured.lengths[0].splits.keys() == {"train", "validation"}


def test_shared_contexts_are_serious_where_they_are_the_rule(tmp_path: Path, model: Path) -> None:
    splits = rows(CLEAN["qa"])
    for row, of_train in zip(splits["test"], splits["train"], strict=False):
        row |= {"context": of_train["context"], "answers": of_train["answers"]}
    finding = by_code(audited(study(tmp_path, model, "qa", splits)))["shared-context"]
    assert finding.severity == "serious" and finding.numbers["rows"] == 10


def late(number: int) -> dict[str, Any]:
    """Every second answer stands at the end of its context."""
    row = qa(number)
    last = row["context"].rindex(" ") + 1
    if number % 2:
        row["answers"] = {"text": [row["context"][last:]], "answer_start": [last]}
    return row


def tagged(number: int) -> dict[str, Any]:
    return {"tokens": text(number, 12).split(), "tags": ["B-PER", "I-PER", "O"] * 4}


@pytest.mark.parametrize(
    ("task", "row", "length", "unseen", "score"),
    [
        ("pos", tagged, 8, 60, 50.0),
        ("ner", tagged, 8, 60, 100 * 2 / 3),  # 2 of 4 entities: precision 1, recall 1/2
        ("qa", late, 14, 5, 50.0),
    ],
)
def test_the_ceiling_is_the_score_of_gold_answers_as_far_as_they_are_seen(
    task: str,
    row: Callable[[int], dict[str, Any]],
    length: int,
    unseen: int,
    score: float,
    tmp_path: Path,
    model: Path,
) -> None:
    file = study(tmp_path, model, task, rows(row), protocol={"max_length": length})
    found = audited(file)
    ceiling = found.cells[0].measured.lengths[0].ceilings["test"]
    assert ceiling.unseen == unseen and ceiling.score == pytest.approx(score)
    assert by_code(found)["ceiling"].numbers["ceiling"]["test"] == ceiling.score


def test_a_bundle_that_training_lacks_is_out_of_reach_and_no_multi_word_range(
    tmp_path: Path, model: Path
) -> None:
    tags = [*["Case=Nom", "_"] * 2, "Case=Acc", "Case=Acc"]
    splits = rows(lambda n: {"tokens": text(n).split(), "tags": tags})
    splits["test"][0]["tags"] = ["Case=Dat", *tags[1:]]
    write(tmp_path / "mine", splits)
    row = {"name": "mine", "path": "mine", "task": "pos", "bundles": True}
    found = audited(swept(tmp_path, [{"name": "tiny", "path": str(model)}], [row]))
    (finding,) = found.findings
    assert (finding.code, finding.numbers["unseen"]["test"]) == ("ceiling", 1)


def test_a_length_of_the_space_is_measured_like_one_of_the_protocol(
    tmp_path: Path, model: Path
) -> None:
    file = study(tmp_path, model, "nli", rows(CLEAN["nli"]))
    content = json.loads(file.read_text())
    content["search"][0]["space"]["max_length"] = [8, 16]
    file.write_text(json.dumps(content))
    assert [each.max_length for each in audited(file).cells[0].measured.lengths] == [8, 16]


@pytest.mark.parametrize(("protocol", "lengths"), [({}, [8, 16]), ({"max_length": 24}, [24])])
def test_winners_are_measured_at_the_lengths_of_the_sweep_that_they_are_of(
    protocol: dict[str, int], lengths: list[int], tmp_path: Path, model: Path
) -> None:
    file = study(tmp_path, model, "nli", rows(CLEAN["nli"]))
    content = json.loads(file.read_text())
    content["search"][0]["space"]["max_length"] = [8, 16]
    file.write_text(json.dumps(content))
    search = [{"datasets": ["mine"], "space": {"winners_of": "study"}}]
    again = tmp_path / "again.yaml"
    winners = {"name": "again", "models": ["tiny"], "search": search, "protocol": protocol}
    again.write_text(json.dumps(winners))
    assert [each.max_length for each in audited(again).cells[0].measured.lengths] == lengths


def test_fertility_is_relative_to_the_first_model(tmp_path: Path, model: Path) -> None:
    write(tmp_path / "mine", rows(CLEAN["classification"]))
    other = tiny_model(tmp_path / "bytes", "modernbert")
    models = [{"name": each.name, "path": str(each)} for each in (model, other)]
    dataset = {"name": "mine", "path": "mine", "task": "classification"}
    first, second = audited(swept(tmp_path, models, [dataset])).models
    assert first.fertility == 1.0 == first.relative and first.unknown_rate == 0
    assert second.relative == pytest.approx(second.fertility)


def test_row_limits_are_those_of_the_trials(tmp_path: Path, model: Path) -> None:
    splits = rows(CLEAN["nli"])
    found = audited(study(tmp_path, model, "nli", splits, limit={"train": 8}))
    train = found.datasets[0].contents.splits["train"]
    assert (train.rows, train.whole) == (8, 24)


def test_the_data_sets_that_depart_from_the_split_rule_are_named() -> None:
    named = [each.dataset for row in DATASETS for each in of_row(row) if each.code == DEPARTS]
    assert named == ["gender_hate_speech", "multinli_tr", "tquad"]


def test_the_test_split_is_read_with_a_log_line_and_stays_sealed(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = study(tmp_path, model, "nli", rows(CLEAN["nli"]))
    with caplog.at_level(logging.INFO):
        found = audited(file)
    assert "audit reads the test split of mine" in caplog.text
    with pytest.raises(SealError):
        data.load_split(found.rows[0], "test", {})


@pytest.mark.parametrize(
    ("written", "other"),
    [
        ("Iğdır'da  KAR!", "ığdır da kar"),
        ("İYİ, çok iyi.", "iyi çok iyi"),
        ("a\tb", "a b"),
        ("İstanbul ışığı", "İstanbul ışığı".upper()),
        ("İSTANBUL IŞIĞI", "İSTANBUL IŞIĞI".lower()),
        ("ＡＢＣ ½", "abc 1⁄2"),
    ],
)
def test_texts_that_differ_in_case_and_punctuation_are_nearly_one(written: str, other: str) -> None:
    assert folded(written) == folded(other)


def test_texts_of_nothing_but_punctuation_stay_different() -> None:
    assert folded(":)") != folded(":(")


@pytest.fixture
def terminal(
    tmp_path: Path,
    ledger_template: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Terminal:
    return opened(tmp_path, ledger_template, capsys, monkeypatch)


@pytest.mark.parametrize(
    ("spoil", "options", "code"),
    [(foreign, (), 0), (foreign, ("--strict",), 3), (twice, ("--strict",), 0)],
)
def test_strict_exits_with_3_for_serious_findings_only(
    spoil: Callable[[Rows], None],
    options: tuple[str, ...],
    code: int,
    terminal: Terminal,
    model: Path,
) -> None:
    splits = rows(CLEAN["classification"])
    spoil(splits)
    said = terminal("audit", study(terminal.folder, model, "classification", splits), *options)
    assert said.code == code and DEFECTS[spoil][0] in said.out


def test_json_and_the_page_say_what_the_tables_say(terminal: Terminal, model: Path) -> None:
    splits = rows(CLEAN["classification"])
    foreign(splits)
    splits["train"][0]["text"] = "<script>alert(1)</script>"
    file = study(terminal.folder, model, "classification", splits)
    said = terminal("audit", file, "--json", "--html", terminal.folder / "pages" / "audit.html")
    page = (terminal.folder / "pages" / "audit.html").read_text(encoding="utf-8")
    codes = [each["code"] for each in said.data["findings"]]
    assert "label-outside-schema" in codes and all(code in page for code in codes)
    assert said.data["counts"]["serious"] == 1 and said.data["datasets"][0]["dataset"] == "mine"
    assert not re.search(r"<script|<link|src=|url\(|https?://", page)


def test_a_wrong_sweep_is_a_mistake_and_no_finding(terminal: Terminal, model: Path) -> None:
    said = terminal("audit", swept(terminal.folder, ["berturc"], ["stsb_tr"]))
    assert said.code == 2 and "study.yaml:" in said.err and said.out == ""


# Real data, where a checkout has them beside it; else rows that hold what those are known for.


@pytest.fixture(scope="module")
def offer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of local copies."""
    return REAL if REAL.is_dir() else stand_in(tmp_path_factory.mktemp("offer"))


@pytest.fixture(scope="module")
def benchmark(offer: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Finding, ...]:
    folder = tmp_path_factory.mktemp("benchmark")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TABIFLOW_CACHE", str(folder / "cache"))
        patched.setenv("TABIFLOW_DATA", str(offer))
        names = ["posud_imst", "stsb_tr", "xquad_tr"]
        return audited(swept(folder, ["example-bert"], names)).findings


def stand_in(folder: Path) -> Path:
    contexts = rows(CLEAN["qa"])
    for row, of_train in zip(contexts["test"], contexts["train"], strict=False):
        row |= {"context": of_train["context"], "answers": of_train["answers"]}
    ranges = rows(lambda n: {"tokens": text(n).split(), "pos_tags": ["NOUN", "_"] * 3})
    pairs = rows(CLEAN["sts"])
    pairs["test"][0] = pairs["train"][0]
    for name, splits in {"xquad_tr": contexts, "posud_imst": ranges, "stsb_tr": pairs}.items():
        write(folder / name, splits)
    return folder


def of_code(findings: tuple[Finding, ...], code: str, dataset: str) -> list[Finding]:
    return [each for each in findings if (each.code, each.dataset) == (code, dataset)]


def into_test(findings: list[Finding]) -> Mapping[str, Any]:
    """What test shares with train."""
    (found,) = [
        each.numbers
        for each in findings
        if (each.numbers["earlier"], each.numbers["later"]) == ("train", "test")
    ]
    return found


def test_the_shared_paragraphs_of_xquad_are_found(benchmark: tuple[Finding, ...]) -> None:
    contexts = of_code(benchmark, "shared-context", "xquad_tr")
    assert contexts[0].severity == "serious"
    assert into_test(contexts)["rows"] in (176, 10)


def test_the_multi_word_rows_of_imst_are_found(benchmark: tuple[Finding, ...]) -> None:
    (ranges,) = of_code(benchmark, "multiword-rows", "posud_imst")
    assert ranges.numbers["test"] in (278, 30)


def test_duplicates_of_the_benchmark_are_those_of_a_plain_loop(
    benchmark: tuple[Finding, ...], offer: Path
) -> None:
    train, test = (pairs(offer / "stsb_tr", split) for split in ("train", "test"))
    shared = sum(pair in train for pair in test)
    found = into_test(of_code(benchmark, "duplicate-across-splits", "stsb_tr"))
    assert found["rows"] == shared > 0


def pairs(folder: Path, split: str) -> list[tuple[str, str]]:
    file = folder / f"{split}.parquet"
    if file.is_file():
        content = parquet.read_table(file).to_pylist()
    else:
        content = [json.loads(line) for line in (folder / f"{split}.jsonl").open()]
    return [(row["sentence1"], row["sentence2"]) for row in content]

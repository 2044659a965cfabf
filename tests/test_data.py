"""Rows from files to canonical splits: every kind of task, every kind of fault, and the seal."""

import json
import subprocess
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tabiflow import data
from tabiflow.errors import DataError, SealError, TabiflowError
from tabiflow.rows import NO_ANSWER, NO_LABEL
from tabiflow.spec import Dataset
from tabiflow.trial import Opening

REAL = Path(__file__).parents[2] / "shared" / "data"
OPENING = Opening(trial="0" * 12, who="a test", at="2026-01-01T00:00:00Z", code="-")
CONTEXT = "İSTANBUL'un Iğdır'a uzaklığı: İKİ günlük yoldur."
ROWS = {
    "classification": {"text": "iyi", "label": "pos"},
    "nli": {"premise": "a", "hypothesis": "b", "label": 1},
    "ner": {"tokens": ["Ali", "geldi"], "tags": ["B-PER", "O"]},
    "pos": {"tokens": ["Ali", "geldi"], "tags": ["PROPN", "VERB"]},
    "sts": {"sentence1": "a", "sentence2": "b", "score": 2.5},
    "qa": {
        "context": CONTEXT,
        "question": "Kaç gün?",
        "answers": {"text": ["İKİ"], "answer_start": [30]},
    },
    "retrieval": {"anchor": "soru", "positive": "yanıt"},
}
OTHER = {"classification": {"label": "neg"}, "nli": {"label": 2}}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "set"


def write(folder, **splits):
    """Each split's rows, as JSON Lines."""
    folder.mkdir(exist_ok=True)
    for name, rows in splits.items():
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def written(folder, task, *changed, **fields):
    """A small sound data set; `changed` are further rows of its training split."""
    rows = [ROWS[task] | OTHER.get(task, {})] + [ROWS[task]] * 3
    write(folder, train=[*rows, *changed], validation=rows, test=rows)
    return Dataset(name="tiny", path=folder, task=task, **fields)


def texts(*labels):
    return [{"text": f"metin {row}", "label": label} for row, label in enumerate(labels)]


def classified(folder, **fields):
    return Dataset(name="tiny", path=folder, task="classification", **fields)


def refused(dataset):
    with pytest.raises(DataError) as caught:
        data.check(dataset)
    return str(caught.value)


@pytest.mark.parametrize("task", ROWS)
def test_each_kind_of_task_has_its_columns_and_row_numbers(folder, task):
    loaded = data.load(written(folder, task), {})
    made_up = {"row", "id"} if task == "qa" else {"row"}
    assert set(loaded.train.column_names) == {*ROWS[task]} | made_up
    assert loaded.train["row"].to_pylist() == [0, 1, 2, 3]
    assert loaded.split_rule == "as given"


@pytest.mark.parametrize("task", ROWS)
def test_parquet_and_json_lines_give_the_same_rows(folder, tmp_path, task):
    dataset = written(folder, task)
    other = tmp_path / "parquet"
    other.mkdir()
    for file in folder.glob("*.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        parquet.write_table(pa.Table.from_pylist(rows), other / f"{file.stem}.parquet")
    twin = dataset.model_copy(update={"path": other})
    assert data.load(twin, {}).fingerprints == data.load(dataset, {}).fingerprints


def test_columns_are_renamed_and_others_dropped(folder):
    row = {"cümle": "a", "sınıf": "x", "more": 1}
    write(folder, train=[row, row | {"sınıf": "y"}], validation=[row], test=[row])
    loaded = data.load(classified(folder, columns={"text": "cümle", "label": "sınıf"}), {})
    assert loaded.train.column_names == ["text", "label", "row"]


def test_labels_are_the_union_of_all_splits_names(folder):
    write(folder, train=texts("b", "a"), validation=texts("c"), test=texts("d", "a"))
    assert data.load(classified(folder), {}).schema.labels == ("a", "b", "c", "d")


def test_declared_labels_keep_their_order_and_numbers_become_names(folder):
    write(folder, train=texts(2, 0), validation=texts(1), test=texts(1))
    loaded = data.load(classified(folder, labels=(2, 1, 0)), {})
    assert loaded.schema.labels == ("2", "1", "0")
    assert loaded.train["label"].to_pylist() == ["2", "0"]


def test_numbers_that_pandas_made_floats_are_the_same_labels(folder):
    folder.mkdir()
    for split in ("train", "validation", "test"):
        columns = {"text": ["a", "b", "c"], "label": pa.array([0.0, 1.0, float("nan")])}
        parquet.write_table(pa.table(columns), folder / f"{split}.parquet")
    loaded = data.load(classified(folder), {})
    assert loaded.train["label"].to_pylist() == ["0", "1"]
    assert loaded.excluded == {"no label": 2}


@pytest.mark.parametrize(
    ("labels", "expected"), [(("kötü", "iyi"), ["iyi", "kötü"]), ((0, 1), ["1", "0"])]
)
def test_class_labels_of_a_file_become_names_where_the_schema_has_names(folder, labels, expected):
    folder.mkdir()
    feature = {"label": {"names": ["kötü", "iyi"], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": feature}})}
    table = pa.table({"text": ["a", "b"], "label": [1, 0]}).replace_schema_metadata(metadata)
    for split in ("train", "validation", "test"):
        parquet.write_table(table, folder / f"{split}.parquet")
    assert data.load(classified(folder, labels=labels), {}).train["label"].to_pylist() == expected


def test_class_labels_of_a_file_are_the_schema_where_none_is_declared(folder):
    folder.mkdir()
    feature = {"tags": {"feature": {"names": ["O", "B-X"], "_type": "ClassLabel"}, "_type": "List"}}
    metadata = {"huggingface": json.dumps({"info": {"features": feature}})}
    table = pa.table({"tokens": [["a", "b"]], "tags": [[1, 0]]}).replace_schema_metadata(metadata)
    for split in ("train", "validation", "test"):
        parquet.write_table(table, folder / f"{split}.parquet")
    loaded = data.load(Dataset(name="tiny", path=folder, task="ner"), {})
    assert loaded.schema.labels == ("O", "B-X")
    assert loaded.train["tags"].to_pylist() == [["B-X", "O"]]


def test_tags_that_are_numbers_are_places_in_the_declared_labels(folder):
    row = {"tokens": ["Ali", "geldi"], "tags": [2, 0]}
    write(folder, train=[row], validation=[row], test=[row])
    dataset = Dataset(name="tiny", path=folder, task="ner", labels=("O", "B-LOC", "B-PER"))
    assert data.load(dataset, {}).train["tags"].to_pylist() == [["B-PER", "O"]]


def test_rows_without_label_or_text_are_left_out_and_counted(folder):
    rows = [*texts(0, 1, -1, None), {"text": None, "label": 1}]
    write(folder, train=rows, validation=texts(1), test=texts(0))
    loaded = data.load(classified(folder, labels=(0, 1)), {})
    assert loaded.excluded == {"no label": 2, "no text": 1}
    assert loaded.train["row"].to_pylist() == [0, 1]


def test_minus_one_among_undeclared_classes_must_be_declared_or_not(folder):
    write(folder, train=texts(-1, 0, 1), validation=texts(0), test=texts(1))
    with pytest.raises(DataError, match="label -1 is a class to some"):
        data.load(classified(folder), {})


def test_minus_one_is_a_label_where_it_is_declared(folder):
    write(folder, train=texts(-1, 0, 1), validation=texts(-1), test=texts(1))
    loaded = data.load(classified(folder, labels=(-1, 0, 1)), {})
    assert loaded.train["label"].to_pylist() == ["-1", "0", "1"]


def test_empty_text_is_text(folder):
    dataset = written(folder, "classification", {"text": "", "label": "pos"})
    assert data.load(dataset, {}).train["text"].to_pylist()[-1] == ""


def test_text_that_looks_like_a_date_stays_text(folder):
    rows = [{"text": "2026-01-01", "label": label} for label in "ab"]
    write(folder, train=rows, validation=rows, test=rows)
    assert data.load(classified(folder), {}).train["text"].to_pylist() == ["2026-01-01"] * 2


def test_both_released_layouts_of_answers_are_read(folder):
    structs = ROWS["qa"] | {"answers": [{"text": "İKİ", "answer_start": 30}]}
    write(folder, train=[ROWS["qa"]], validation=[structs], test=[structs])
    loaded = data.load(Dataset(name="tiny", path=folder, task="qa"), {})
    for table in (loaded.train, loaded.validation):
        assert table["answers"].to_pylist() == [ROWS["qa"]["answers"]]


def test_training_leaves_out_an_answer_that_is_elsewhere_and_scoring_keeps_it(folder):
    moved = ROWS["qa"] | {"answers": {"text": ["İKİ"], "answer_start": [31]}}
    write(folder, train=[ROWS["qa"]] * 2 + [moved], validation=[ROWS["qa"], moved], test=[moved])
    loaded = data.load(Dataset(name="tiny", path=folder, task="qa"), {})
    assert (loaded.train.num_rows, loaded.validation.num_rows) == (2, 2)
    assert loaded.excluded == {"answer not at its offset": 1}


def test_the_range_of_scores_is_the_declared_or_the_seen_one(folder):
    far = ROWS["sts"] | {"score": 4}
    assert data.load(written(folder, "sts", far), {}).schema.label_range == (2.5, 4.0)
    declared = written(folder, "sts", far, label_range=(0, 5))
    assert data.load(declared, {}).schema.label_range == (0, 5)


@pytest.mark.parametrize(
    ("task", "row", "message"),
    [
        ("classification", {"text": "a", "label": "pso"}, "row 5: label `pso` is not in the sche"),
        ("nli", {"premise": "a", "hypothesis": "b", "label": 7}, "row 5: label `7`"),
        ("ner", {"tokens": ["a"], "tags": ["B-PRE"]}, "row 5: label `B-PRE`"),
        ("ner", {"tokens": ["a", "b"], "tags": ["O"]}, "row 5: 2 tokens but 1 tags"),
        ("pos", {"tokens": ["a", None], "tags": ["VERB", "VERB"]}, "row 5: a token is missing"),
        ("pos", {"tokens": ["a"], "tags": [None]}, "row 5: a tag is missing"),
        ("pos", {"tokens": "a b", "tags": ["VERB"]}, "row 5: `tokens` is text, but a list before"),
        ("sts", ROWS["sts"] | {"score": None}, "row 5: score None is not a number"),
        ("sts", ROWS["sts"] | {"score": 5.5}, "row 5: score 5.5 is outside 0 to 5"),
        ("sts", ROWS["sts"] | {"score": "high"}, "row 5: `score` is text, but a fr"),
        ("qa", ROWS["qa"] | {"answers": {"text": ["a"]}}, "row 5: answers need lists"),
        ("qa", ROWS["qa"] | {"answers": {"text": ["a"], "answer_start": [None]}}, "row 5: an ans"),
        ("retrieval", {"anchor": 3, "positive": "b"}, "row 5: `anchor` is a whole"),
    ],
)
def test_a_row_that_contradicts_the_schema_is_shown(folder, task, row, message):
    labels = {
        "classification": ("neg", "pos"),
        "nli": (0, 1, 2),
        "ner": ("O", "B-PER"),
        "pos": ("PROPN", "VERB"),
    }
    dataset = written(
        folder,
        task,
        row,
        labels=labels.get(task, ()),
        label_range=(0, 5) if task == "sts" else None,
    )
    assert message in refused(dataset)
    assert "train.jsonl" in refused(dataset)


@pytest.mark.parametrize(
    ("task", "column", "value", "message"),
    [
        ("classification", "text", 3, "column `text` holds int64, not text"),
        ("classification", "label", ["a"], "labels are list"),
        ("ner", "tokens", "a b", "column `tokens` holds string, not lists"),
        ("ner", "tokens", [1, 2], "column `tokens` holds int64, not text"),
        ("sts", "score", "4.5", "row 1: score '4.5' is not a number"),
        ("sts", "score", True, "row 1: score True is not a number"),
        ("qa", "answers", "İKİ", "row 1: answers need lists"),
    ],
)
def test_a_column_of_the_wrong_type_is_refused(folder, task, column, value, message):
    row = ROWS[task] | {column: value}
    write(folder, train=[row], validation=[row], test=[row])
    assert message in refused(Dataset(name="tiny", path=folder, task=task, labels=("O", "B-PER")))


def test_a_near_label_and_a_near_column_are_suggested(folder):
    dataset = written(
        folder, "classification", {"text": "a", "label": "pso"}, labels=("neg", "pos")
    )
    assert "did you mean `pos`?" in refused(dataset)
    renamed = dataset.model_copy(update={"columns": {"text": "txt"}})
    assert "no column `txt`; it has text, label; did you mean `text`?" in refused(renamed)


def test_a_column_that_the_task_does_not_know_is_no_column(folder):
    dataset = written(folder, "classification", columns={"txt": "text"})
    assert "has no `txt`; did you mean `text`?" in refused(dataset)


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_an_empty_split_is_refused(folder, split):
    dataset = written(folder, "classification")
    (folder / f"{split}.jsonl").write_text("")
    assert f"the {split} split is empty" in refused(dataset)


def test_a_split_without_usable_rows_is_refused(folder):
    write(folder, train=texts("a", "b"), validation=texts(None), test=texts("a"))
    assert "no usable rows: 1 with no label" in refused(classified(folder))


def test_a_split_too_small_to_cut_is_refused(folder):
    write(folder, train=texts("a", "b"), test=texts("a", "b"))
    told = "2 rows are too few to be cut: none is left for train (validation of test's size"
    assert told in refused(classified(folder))


def test_three_rows_are_too_few_for_three_splits_and_four_enough(folder):
    write(folder, train=texts("a", "b", "a"))
    assert "3 rows are too few to be cut: none is left for validation" in refused(
        classified(folder)
    )
    write(folder, train=texts("a", "b", "a", "b"))
    data.check(classified(folder))


def test_a_blank_label_is_a_missing_one_unless_it_is_declared(folder):
    write(folder, train=texts("a", "b", ""), validation=texts("a"), test=texts(" ", "b"))
    assert data.load(classified(folder), {}).schema.labels == ("a", "b")
    assert data.load(classified(folder), {}).excluded == {NO_LABEL: 1}
    declared = data.load(classified(folder, labels=("a", "b", "", " ")), {})
    assert declared.excluded == {} and declared.train.num_rows == 3


def test_blank_answers_are_none(folder):
    context = {"context": "Ankara güzel", "question": "nerede"}
    found = {"answers": {"text": [" ", "Ankara"], "answer_start": [0, 0]}}
    empty = {"answers": {"text": [""], "answer_start": [0]}}
    write(folder, train=[context | found, context | empty], validation=[context | found])
    write(folder, test=[context | found])
    loaded = data.load(Dataset(name="tiny", path=folder, task="qa"), {})
    assert loaded.excluded == {NO_ANSWER: 1}
    assert loaded.train["answers"].to_pylist() == [{"text": ["Ankara"], "answer_start": [0]}]


def test_two_columns_cannot_be_one_column_of_the_file(folder):
    dataset = written(folder, "sts", columns={"sentence2": "sentence1"})
    told = "`sentence1` and `sentence2` are all read from `sentence1`; name a column"
    assert told in refused(dataset)


def test_one_label_is_nothing_to_learn(folder):
    write(folder, train=texts("a"), validation=texts("a"), test=texts("a"))
    assert "only the label a" in refused(classified(folder))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "a", "label": "x"}\n{"text": ', ":2: not JSON"),
        (b'{"text": "a", "label": "x"}\n\n[1]\n', ":3: not a JSON object"),
        (b'{"text": "a", "label": "x"}\n{"text": "\xfe"}\n', ":2: not UTF-8 text"),
        (b'{"text": "\\ud800", "label": "x"}\n', ": column `text`"),
        (
            b'{"text": "a"}\n{"text": 1, "label": "x"}\n',
            ": row 2: `text` is a whole number, but text",
        ),
    ],
)
def test_a_broken_line_is_named(folder, content, message):
    dataset = written(folder, "classification")
    (folder / "train.jsonl").write_bytes(content)
    assert f"train.jsonl{message}" in refused(dataset)


@pytest.mark.parametrize("damage", ["garbage", "truncated", "overwritten", "not UTF-8"])
def test_a_broken_parquet_file_is_named(folder, damage):
    dataset = written(folder, "classification")
    (folder / "train.jsonl").unlink()
    file = folder / "train.parquet"
    values = pa.array([b"\xfe\xff", b"b"] * 500) if damage == "not UTF-8" else ["a", "b"] * 500
    text = values.view(pa.string()) if damage == "not UTF-8" else values
    parquet.write_table(pa.table({"text": text, "label": ["neg", "pos"] * 500}), file)
    whole = bytearray(file.read_bytes())
    if damage == "garbage":
        whole = bytearray(b"not parquet at all")
    elif damage == "truncated":
        whole = whole[: len(whole) // 2]
    elif damage == "overwritten":
        whole[4:200] = bytes(196)
    file.write_bytes(whole)
    assert str(file) in refused(dataset)


def test_a_mistake_stands_at_the_line_of_the_sweep_where_there_is_one(folder):
    dataset = written(folder, "classification", columns={"text": "txt"})
    with pytest.raises(DataError) as caught:
        data.check(dataset, "sweeps/mine.yaml:14")
    assert str(caught.value).startswith("sweeps/mine.yaml:14: data set `tiny`: ")
    assert "\n" not in str(caught.value)


def test_a_sound_data_set_passes_the_check(folder):
    for task in ROWS:
        data.check(written(folder, task))


@pytest.mark.parametrize(
    ("given", "rule", "sizes"),
    [
        (("train", "test"), "validation of test's size from train, stratified", (20, 20)),
        (("train", "validation"), "validation is test, a new one", (20, 20)),
        (("validation", "test"), "validation cut 80/20", (32, 8)),
        (("train",), "train cut 70/15/15, stratified", (28, 6)),
    ],
)
def test_missing_splits_are_cut_and_the_rule_is_told(folder, given, rule, sizes):
    rows = texts(*["a", "b"] * 20)
    smaller = {"test": rows[:20], "validation": rows[:20]} if "train" in given else {}
    write(folder, **{split: smaller.get(split, rows) for split in given})
    loaded = data.load(classified(folder), {})
    assert (loaded.train.num_rows, loaded.validation.num_rows) == sizes
    assert loaded.split_rule.startswith(rule)
    assert loaded.train["label"].to_pylist().count("a") * 2 == sizes[0]


def test_the_three_parts_of_a_single_split_share_no_row(folder):
    write(folder, train=texts(*["a", "b"] * 20))
    dataset = classified(folder)
    loaded, opened = data.load(dataset, {}), data.load_test(dataset, {}, OPENING)
    seen = [table["row"].to_pylist() for table in (loaded.train, loaded.validation, opened.rows)]
    assert sorted(chain(*seen)) == list(range(40))


def test_a_limit_keeps_so_many_rows_of_each_split(folder):
    write(folder, train=texts(*"ab" * 50), validation=texts(*"ab" * 10), test=texts(*"ab" * 10))
    dataset, limit = classified(folder), {"train": 30, "validation": 5, "test": 7}
    loaded = data.load(dataset, limit)
    assert (loaded.train.num_rows, loaded.validation.num_rows) == (30, 5)
    assert data.load_test(dataset, limit, OPENING).rows.num_rows == 7
    assert loaded.train["row"].to_pylist() == sorted(loaded.train["row"].to_pylist())


def test_fingerprints_follow_the_rows(folder):
    dataset = written(folder, "classification")
    first = data.load(dataset, {}).fingerprints
    assert first != data.load(dataset, {"train": 2}).fingerprints
    assert all(len(each) == 16 for each in first.values())
    changed = written(folder, "classification", *texts("pos"))
    again = data.load(changed.model_copy(update={"revision": "changed"}), {}).fingerprints
    assert (first["train"] != again["train"]) and first["validation"] == again["validation"]


def test_a_process_reads_a_data_set_once(folder):
    dataset = written(folder, "classification")
    assert data.load(dataset, {"train": 2}) is data.load(dataset, {"train": 2})


@pytest.mark.parametrize("call", [data.load_test, lambda *a: data.load_split(a[0], "test", {})])
def test_the_test_split_is_sealed_without_an_opening(folder, call):
    with pytest.raises(SealError, match="the test split is sealed"):
        call(written(folder, "classification"), {}, None)


def test_the_seal_holds_before_anything_is_read(tmp_path):
    with pytest.raises(SealError):
        data.load_split(classified(tmp_path / "nowhere"), "test", {})


def test_an_opening_lets_the_test_split_be_read(folder):
    dataset = written(folder, "classification")
    opened = data.load_test(dataset, {}, OPENING)
    assert opened.rows.num_rows == 4
    assert opened.rows.equals(data.load_split(dataset, "test", {}, OPENING))


def test_no_row_of_a_test_file_is_read_by_a_sweeps_trial(folder):
    dataset = written(folder, "classification", labels=("neg", "pos"))
    (folder / "test.jsonl").write_bytes(b"\xff\xfe not even text")
    assert data.load(dataset, {}).train.num_rows == 4


def test_an_unknown_split_is_named_and_is_no_way_around_the_seal(folder):
    with pytest.raises(TabiflowError, match="has no split `tests`; did you mean `test`"):
        data.load_split(written(folder, "classification"), "tests", {})


def test_importing_data_loads_neither_torch_nor_datasets():
    code = (
        "import sys, tabiflow.data; print({'torch', 'datasets', 'ray', 'mlflow'} & {*sys.modules})"
    )
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "set()\n"


def test_lower_casing_is_turkish_and_keeps_every_offset():
    assert data.turkish_lower("DIŞARI İSTANBUL ÇĞÖŞÜ") == "dışarı istanbul çğöşü"
    every = "".join(chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    assert len(data.turkish_lower(every)) == len(every)


def moved_answers(rows, lower):
    """Answers that are no longer at their offset once the context is lower-cased."""
    moved = 0
    for row in rows:
        text, start = row["answers"]["text"][0], row["answers"]["answer_start"][0]
        moved += lower(row["context"])[start : start + len(text)] != lower(text)
    return moved


def real_or_sample(*splits):
    """The rows of XQuAD where the real data is beside the project, else one row like them."""
    files = [REAL / "tabibench" / "xquad_tr" / f"{split}.parquet" for split in splits]
    tables = [parquet.read_table(file).to_pylist() for file in files if file.is_file()]
    return [ROWS["qa"], *chain(*tables)]


def test_answers_stay_at_their_offsets_where_the_naive_rule_moves_them():
    rows = real_or_sample("train", "validation", "test")
    assert moved_answers(rows, data.turkish_lower) == 0
    assert moved_answers(rows, lambda text: text.replace("I", "ı").lower()) > 0


REAL_SETS = [
    Dataset(
        name="posud_imst",
        path=REAL / "tabibench/posud_imst",
        task="pos",
        columns={"tags": "pos_tags"},
    ),
    Dataset(name="stsb_tr", path=REAL / "tabibench/stsb_tr", task="sts", label_range=(0, 5)),
    Dataset(name="xquad_tr", path=REAL / "tabibench/xquad_tr", task="qa"),
    Dataset(name="xquad_ir_tr", path=REAL / "extra/xquad_ir_tr", task="retrieval"),
    Dataset(name="irony_tr", path=REAL / "extra/irony_tr", task="classification"),
]


@pytest.mark.parametrize(
    "dataset", [each for each in REAL_SETS if each.path.is_dir()], ids=lambda each: each.name
)
def test_real_data_is_sound(dataset):
    data.check(dataset)
    loaded = data.load(dataset, {"train": 100, "validation": 50})
    assert (loaded.train.num_rows, loaded.validation.num_rows) == (100, 50)
    assert not loaded.excluded
    assert np.all(np.diff(loaded.train["row"].to_numpy()) > 0)

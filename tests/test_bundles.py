"""Bundles of features as tags, and lemmas beside words: from files to a trial's figures."""

import json
import math
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from tabiflow import data
from tabiflow.encoding import Ragged, text_encoder
from tabiflow.errors import DataError
from tabiflow.protocol import Protocol
from tabiflow.registry import resolve
from tabiflow.spec import Dataset, Sweep
from tabiflow.tasks import TASKS, sequences
from tests import samples
from tests.test_finetune import confirming, finish
from tests.tiny import tiny_model

OFFERED = Path(__file__).parents[2] / "shared" / "data" / "tabibench"
TASK = TASKS["pos"]
NOM, ACC = "Case=Nom|Number=Sing", "Case=Acc|Number=Sing"
NEW = "Case=Acc|Number=Plur"
TRAIN = [("Kedi/kedi uyuyor/uyu ./.", [NOM, "Tense=Pres", "_"]), ("Ayşe/Ayşe", [ACC])]
HELD_OUT = [("Kedi/kedi masanın/masa", [NOM, NEW]), ("Ayşe/Ayşe", [ACC])]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TABIFLOW_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def write(folder, held_out=HELD_OUT, columns=("tokens", "lemmas", "feats")):
    folder.mkdir(exist_ok=True)
    for split, rows in {"train": TRAIN, "validation": held_out, "test": held_out}.items():
        lines = []
        for words, feats in rows:
            forms, lemmas = zip(*(word.split("/") for word in words.split()), strict=True)
            row = {"tokens": forms, "lemmas": lemmas, "feats": feats, "tags": feats}
            lines.append(json.dumps({name: row[name] for name in columns}))
        (folder / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def dataset(folder, **fields):
    known = {"columns": {"tags": "feats"}, "bundles": True}
    return Dataset(name="m", path=folder, task="pos", **{**known, **fields})


def refused(row):
    with pytest.raises(DataError) as caught:
        data.check(row)
    return str(caught.value)


# Rows.


def test_the_schema_is_trainings_and_other_bundles_are_kept(tmp_path):
    loaded = data.load(dataset(write(tmp_path)), {})
    assert loaded.schema == data.Schema((ACC, NOM, "Tense=Pres", "_"), bundles=True)
    assert loaded.validation["tags"].to_pylist() == [[NOM, NEW], [ACC]]


def test_the_schema_does_not_depend_on_a_limit(tmp_path):
    row = dataset(write(tmp_path))
    assert data.load(row, {"train": 1}).schema == data.load(row, {}).schema


def test_a_bundle_in_another_order_is_the_same_one(tmp_path):
    swapped = [("Kedi/kedi", ["Number=Sing|Case=Nom"])]
    loaded = data.load(dataset(write(tmp_path, swapped)), {})
    assert loaded.validation["tags"].to_pylist() == [[NOM]]


@pytest.mark.parametrize("tag", ["NOUN", "Case=Nom|Case=Acc", "Case="])
def test_what_is_no_bundle_is_told_with_its_row(tmp_path, tag):
    message = refused(dataset(write(tmp_path, [*HELD_OUT, ("ev/ev", [tag])])))
    assert f"row 3: tag `{tag}` is no bundle of features" in message


def test_tags_that_are_no_bundles_at_all_are_told_with_their_row(tmp_path):
    message = refused(dataset(write(tmp_path), columns={"tags": "lemmas"}))
    assert "train.jsonl: row 1: tag `kedi` is no bundle of features" in message


@pytest.mark.parametrize("wrong", [{"task": "ner"}, {"labels": ("_", "Case=Nom")}])
def test_bundles_are_for_words_and_name_no_labels(tmp_path, wrong):
    with pytest.raises(ValidationError, match="`bundles` are for `task: pos`, without `labels`"):
        Dataset(**{"name": "m", "path": tmp_path, "task": "pos", "bundles": True, **wrong})


# Lemmas.


def test_lemmas_travel_and_are_no_part_of_the_fingerprints(tmp_path):
    with_lemmas = data.load(dataset(write(tmp_path / "with")), {})
    without = data.load(dataset(write(tmp_path / "no", columns=("tokens", "feats"))), {})
    assert with_lemmas.train["lemmas"].to_pylist()[1] == ["Ayşe"]
    assert "lemmas" not in without.train.column_names
    assert with_lemmas.fingerprints == without.fingerprints


def test_a_column_is_read_under_one_name(tmp_path):
    write(tmp_path)
    named = dataset(tmp_path, columns={"tags": "feats", "lemmas": "tokens"})
    assert set(data.load(named, {}).train.column_names) == {"tokens", "tags", "row"}
    tagged = dataset(tmp_path, columns={"tags": "lemmas"}, bundles=False)
    assert data.load(tagged, {}).train["tags"].to_pylist()[1] == ["Ayşe"]


@pytest.mark.parametrize(
    ("lemmas", "told"),
    [
        (["ev", "ev"], "row 1: 1 tokens but 2 lemmas"),
        ("ev", "column `lemmas` holds string, not lists"),
        ([1], "column `lemmas` holds int64, not text"),
    ],
)
def test_lemmas_that_do_not_fit_are_refused(tmp_path, lemmas, told):
    write(tmp_path)
    row = {"tokens": ["ev"], "feats": [NOM], "lemmas": lemmas}
    (tmp_path / "test.jsonl").write_text(json.dumps(row))
    assert told in refused(dataset(tmp_path))


def test_a_word_may_lack_its_lemma(tmp_path):
    write(tmp_path)
    rows = [{"tokens": ["ev"], "feats": [tag], "lemmas": None} for tag in (NOM, ACC)]
    rows[0]["lemmas"] = [None]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert data.load(dataset(tmp_path), {}).train["lemmas"].to_pylist() == [[None], None]


# Trials.


@pytest.fixture
def encoded(tmp_path):
    """The held-out rows as a trial has them: encoded, with what was loaded."""
    loaded = data.load(dataset(write(tmp_path / "data")), {})
    text = text_encoder(samples.row_of(tiny_model(tmp_path / "model")))
    rows, length = loaded.validation, {"text": text.limit}
    return loaded, TASK.encode(rows, text, loaded.schema, length, Protocol(), training=False)


def test_an_unlearnt_bundle_has_no_loss_and_keeps_its_word(encoded):
    rows = np.arange(2)
    labels = TASK.collate(encoded[1], rows)["labels"]
    assert sorted(labels[labels >= 0].tolist()) == [0, 1]
    assert TASK.weight(encoded[1], rows) == 2
    outputs = np.zeros((*labels.shape, 4), dtype=np.float32)
    outputs[..., 3] = 1
    decoded = TASK.decode(torch.from_numpy(outputs), encoded[1], rows)
    assert [each.tolist() for each in decoded] == [[3, 3], [3]]


def test_an_unlearnt_bundle_is_wrong_as_a_whole_and_right_in_parts(encoded):
    loaded, arrays = encoded
    scores = TASK.score([np.array([1, 0]), np.array([0])], arrays, loaded.schema)
    assert scores.references == [[NOM, NEW], [ACC]]
    assert scores.headline == scores.metrics["exact_bundle"] == pytest.approx(200 / 3)
    assert scores.metrics["new_bundles"] == pytest.approx(100 / 3)
    assert scores.metrics["sentence_exact"] == 50
    assert scores.metrics["features_accuracy"] == pytest.approx(100 * 5 / 6)
    assert "published_f1" not in scores.metrics


def test_a_diagnosis_is_by_feature_and_by_novelty(encoded):
    loaded, arrays = encoded
    scores = TASK.score([np.array([1, -1]), np.array([0])], arrays, loaded.schema)
    figures = TASK.diagnose(scores, arrays, loaded.validation, loaded)
    assert (figures["error_new_form_new_lemma"], figures["n_new_form_new_lemma"]) == (100, 1)
    assert (figures["error_known_form_known_lemma"], figures["n_known_form"]) == (0, 2)
    assert figures["feature_Case_recall"] == pytest.approx(200 / 3)
    assert (figures["feature_Case_precision"], figures["feature_Case_n"]) == (100, 3)
    assert math.isnan(figures["feature_Tense_f1"])


def test_a_missing_prediction_is_wrong_even_where_its_name_is_a_tag(encoded):
    schema = data.Schema(("O", "X"))
    loaded = replace(encoded[0], schema=schema)
    # Words and tokens are those of the bundles; only what their tags mean differs.
    tags = np.array([0, 1, 0])
    arrays = {**encoded[1], "tags": replace(sequences.ragged(encoded[1], "tags"), values=tags)}
    arrays["words"] = Ragged(np.array([1]), np.array([0, 1, 1]))
    scores = TASK.score([np.array([-1, 1]), np.array([-1])], arrays, schema)
    assert (scores.predictions, scores.metrics["precision"]) == ([["O", "X"], ["O"]], 100)
    figures = TASK.diagnose(scores, arrays, loaded.validation, loaded)
    assert (figures["tag_O_recall"], figures["tag_X_recall"]) == (0, 100)
    assert (figures["error_known_form"], figures["error_new_form"]) == (100, 0)


def job(folder):
    """A trial over bundles on the words of the samples."""
    made = samples.job(folder, "pos", epochs=1)
    for split in ("train", "validation", "test"):
        file = made.dataset.path / f"{split}.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        feats = {"O": "_", "B-PER": NOM, "I-PER": "Case=Nom|Number[psor]=Sing"}
        if split == "test":
            feats["O"] = NEW
        for row in rows:
            row["feats"] = [feats[tag] for tag in row["tags"]]
        file.write_text("\n".join(map(json.dumps, rows)))
    row = dataset(made.dataset.path, revision="0" * 16)
    trial = replace(made.trial, dataset_identity=row.identity)
    return replace(made, dataset=row, trial=trial)


def test_a_confirming_trial_records_what_went_wrong_where(tmp_path):
    epochs, result = finish(confirming(job(tmp_path)))
    assert "validation_features_f1" in epochs[0].metrics
    assert not any("error_" in name or "feature_" in name for name in epochs[0].metrics)
    figures = result.metrics
    assert figures["test_exact_bundle"] == result.test <= 100 - figures["test_new_bundles"]
    assert figures["test_n_known_form"] > 0
    assert figures["test_feature_Number.psor_n"] > 0
    assert any(NEW in each["reference"] for each in result.predictions)


def test_a_confirming_trial_over_entities_has_errors_by_form(tmp_path):
    _, result = finish(confirming(samples.job(tmp_path, "ner", epochs=1)))
    assert {"test_precision", "test_recall", "test_error_new_form"} <= result.metrics.keys()
    assert 0 <= result.metrics["test_error_known_form"] <= 100


# The shipped row.

real = pytest.mark.skipif(not OFFERED.is_dir(), reason="the real data is not beside the project")


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    monkeypatch.setenv("TABIFLOW_DATA", str(OFFERED))
    file = tmp_path / "sweep.yaml"
    search = "[{datasets: [posud_imst, posud_imst_feats], space: {learning_rate: [1e-5]}}]"
    file.write_text(f"name: s\nmodels: [berturk]\nsearch: {search}\nseeds: [25]\n")
    return resolve(Sweep.read(file)).datasets


@real
def test_the_features_of_imst_are_read_from_its_folder(shipped):
    tags, bundles = shipped
    assert (tags.path, tags.revision) == (bundles.path, bundles.revision)
    assert tags.identity != bundles.identity


@real
def test_the_features_of_imst_are_those_that_its_row_tells_of(shipped):
    bundles = shipped[1]
    data.check(bundles)
    loaded = data.load(bundles, {})
    assert len(loaded.schema.labels) == 861
    held_out = list(chain.from_iterable(loaded.validation["tags"].to_pylist()))
    new = sum(tag not in loaded.schema.labels for tag in held_out)
    assert f"{new} of the {len(held_out):,} words of validation" in bundles.notes[1]

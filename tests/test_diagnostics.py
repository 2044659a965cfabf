"""What a tagger gets wrong, by novelty, by tag and by feature: by hand and against scikit-learn."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.metrics import precision_recall_fscore_support

from tabiflow.rows import bundle, features
from tabiflow.tasks import metrics, morphology, novelty

REAL = Path(__file__).parents[2] / "shared" / "data" / "tabibench" / "posud_imst"
FIGURES = ("accuracy", "precision", "recall", "f1")


def approx(expected):
    return pytest.approx(expected, nan_ok=True)


# Bundles.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("_", {}),
        ("Case=Nom", {"Case": "Nom"}),
        ("Number=Sing|Number[psor]=Plur", {"Number": "Sing", "Number[psor]": "Plur"}),
        ("PronType=Int,Rel", {"PronType": "Int,Rel"}),
        ("", None),
        ("NOUN", None),
        ("Case=", None),
        ("Case=Nom|", None),
        ("Case=Nom=Acc", None),
        ("Case=Nom|Case=Acc", None),
        ("Case=Nom|_", None),
    ],
)
def test_a_bundle_is_names_with_values_each_name_once(text, expected):
    assert features(text) == expected


def test_a_bundle_has_one_spelling():
    assert bundle("Number=Sing|case=Nom|Abbr=Yes") == "Abbr=Yes|case=Nom|Number=Sing"
    assert bundle("NOUN") is None
    assert bundle("_") == "_"


@pytest.mark.parametrize(
    ("predicted", "accuracy", "precision", "recall", "f1"),
    [
        ("Case=Acc|Number=Sing", 100, 100, 100, 100),
        ("Case=Nom|Number=Sing", 50, 50, 50, 50),
        ("Case=Nom|Number=Plur", 0, 0, 0, 0),
        ("Case=Acc", 50, 100, 50, 200 / 3),
        ("Case=Acc|Number=Sing|Person=3", 200 / 3, 200 / 3, 100, 80),
        ("_", 0, math.nan, 0, 0),
        (None, 0, math.nan, 0, 0),
        ("O", 0, math.nan, 0, 0),
    ],
)
def test_absent_and_extra_features_are_wrong(predicted, accuracy, precision, recall, f1):
    found = morphology.counts(["Case=Acc|Number=Sing"], [predicted])
    expected = [accuracy, precision, recall, f1]
    figures = morphology.features_together(found)
    assert [figures[f"features_{name}"] for name in FIGURES] == approx(expected)


def test_each_feature_has_figures_of_its_own():
    gold = ["Case=Acc|Number=Sing", "Case=Nom", "Case=Nom", "_"]
    predicted = ["Case=Nom|Number=Sing", "Case=Nom", "_", "Case=Nom"]
    figures = morphology.features_apart(morphology.counts(gold, predicted), ["Person=3"])
    # Case: one right of four words that have it somewhere, of three gold, of three predicted ones.
    case = [figures[f"feature_Case_{name}"] for name in (*FIGURES, "n")]
    assert case == approx([25, 100 / 3, 100 / 3, 100 / 3, 3])
    assert [figures[f"feature_Number_{name}"] for name in (*FIGURES, "n")] == [100] * 4 + [1]
    assert [figures[f"feature_Person_{name}"] for name in (*FIGURES, "n")] == approx(
        [math.nan] * 4 + [0]
    )


def drawn(draw, words):
    """Bundles of two features, each of them absent now and then."""
    values = {"Case": ["", "Nom", "Acc", "Gen"], "Number[psor]": ["", "Sing", "Plur"]}
    picked = {name: draw.choice(known, words) for name, known in values.items()}
    each = [
        "|".join(f"{name}={picked[name][word]}" for name in picked if picked[name][word]) or "_"
        for word in range(words)
    ]
    return picked, each


@pytest.mark.parametrize("seed", range(5))
def test_a_features_figures_are_scikit_learns_over_its_values(seed):
    draw = np.random.default_rng(seed)
    (golds, gold), (told, predicted) = drawn(draw, 60), drawn(draw, 60)
    figures = morphology.features_apart(morphology.counts(gold, predicted), [])
    for name in golds:
        labels = sorted({*golds[name], *told[name]} - {""})
        oracle = precision_recall_fscore_support(
            golds[name], told[name], labels=labels, average="micro"
        )
        stem = f"feature_{metrics.metric_part(name)}"
        ours = [figures[f"{stem}_{each}"] for each in ("precision", "recall", "f1")]
        assert ours == approx([100 * each for each in oracle[:3]])
        some = (golds[name] != "") | (told[name] != "")
        accuracy = 100 * np.mean(golds[name][some] == told[name][some])
        assert figures[f"{stem}_accuracy"] == approx(accuracy)


# Tags and sentences.


@pytest.mark.parametrize("seed", range(5))
def test_a_tags_figures_are_scikit_learns(seed):
    draw = np.random.default_rng(seed)
    tags = ["ADJ", "NOUN", "VERB", "X"]
    gold = draw.choice(tags[:3], 40).tolist()
    predicted = [said if said != "-" else None for said in draw.choice([*tags[1:], "-"], 40)]
    figures = metrics.tag_scores(gold, predicted, [*tags, "_"])
    oracle = precision_recall_fscore_support(
        gold, [said or "-" for said in predicted], labels=[*tags, "_"], zero_division=np.nan
    )
    for name, values in zip(("precision", "recall", "f1"), oracle, strict=False):
        ours = [figures[f"tag_{tag}_{name}"] for tag in (*tags, "_")]
        assert ours == approx([100 * value for value in values])
    assert [figures[f"tag_{tag}_n"] for tag in (*tags, "_")] == oracle[3].tolist()


def test_one_wrong_word_spoils_a_sentence():
    gold = [np.array(tags, dtype=int) for tags in ([0, 1], [2], [], [1, 1, 1])]
    predicted = [np.array(tags, dtype=int) for tags in ([0, 1], [-1], [], [1, 1, 0])]
    assert metrics.sentence_exact(gold, predicted) == approx(100 / 3)
    assert math.isnan(metrics.sentence_exact(gold[2:3], predicted[2:3]))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("NOUN", "NOUN"), ("Number[psor]", "Number.psor"), (",", "x2C"), ("B/x", "Bx2Fx"), ("_", "_")],
)
def test_names_are_fit_for_a_ledger(name, expected):
    assert metrics.metric_part(name) == expected


# Novelty.


def rows(*sentences):
    """Each word written form/lemma; `form/` has no lemma, a form alone belongs to no lemmas."""
    words = [[word.split("/") for word in sentence.split()] for sentence in sentences]
    table = {"tokens": [[word[0] for word in sentence] for sentence in words]}
    if any(len(word) > 1 for sentence in words for word in sentence):
        table["lemmas"] = [[word[1] or None for word in sentence] for sentence in words]
    strings = pa.list_(pa.string())
    return pa.table({name: pa.array(lists, strings) for name, lists in table.items()})


TRAIN = rows("Evde/ev kedi/kedi var/var ./.", "yüz/yüz evdekiler/_")


def errors(test, wrong, train=TRAIN):
    return novelty.error_rates(novelty.words(test), novelty.words(train), np.array(wrong, bool))


def cell(figures, name):
    return figures[f"error_{name}"], figures[f"n_{name}"]


def test_errors_fall_into_four_cells():
    test = rows("evde/ev kediler/kedi kedi/kedi ./.", "yüz/yüzmek köpek/köpek kedim/kedi")
    figures = errors(test, [0, 1, 1, 1, 1, 1, 0])
    assert cell(figures, "known_form_known_lemma") == (50, 2)
    assert cell(figures, "new_form_known_lemma") == (50, 2)
    assert cell(figures, "known_form_new_lemma") == (100, 1)
    assert cell(figures, "new_form_new_lemma") == (100, 1)
    assert cell(figures, "known_form") == approx((200 / 3, 3))
    assert cell(figures, "new_form") == approx((200 / 3, 3))


def test_an_empty_cell_is_undefined():
    figures = errors(rows("evde/ev kedi/kedi"), [0, 0])
    assert cell(figures, "known_form_known_lemma") == (0, 2)
    for name in ("new_form_known_lemma", "known_form_new_lemma", "new_form_new_lemma", "new_form"):
        assert cell(figures, name) == approx((math.nan, 0))


def test_punctuation_is_in_no_cell():
    figures = errors(rows("./. !/! ?/kim"), [1, 1, 1])
    assert sum(value for name, value in figures.items() if name.startswith("n_")) == 2
    assert cell(figures, "new_form_new_lemma") == (100, 1)


@pytest.mark.parametrize("lemma", ["", "_"])
def test_a_word_without_a_lemma_is_in_none_of_the_four(lemma):
    figures = errors(rows(f"evdekiler/{lemma} evde/ev"), [1, 0])
    assert cell(figures, "known_form") == (50, 2)
    assert cell(figures, "known_form_known_lemma") == (0, 1)
    assert cell(figures, "known_form_new_lemma") == approx((math.nan, 0))


@pytest.mark.parametrize(
    ("train", "test"),
    [
        (rows("evde"), rows("evde kediler")),
        (TRAIN, rows("evde kediler")),
        (rows("evde"), rows("evde/ev kediler/kedi")),
    ],
    ids=["in neither", "in training only", "in test only"],
)
def test_without_lemmas_there_are_two_cells(train, test):
    figures = errors(test, [0, 1], train)
    assert set(figures) == {"error_known_form", "error_new_form", "n_known_form", "n_new_form"}
    assert cell(figures, "known_form") == (0, 1)
    assert cell(figures, "new_form") == (100, 1)


@pytest.mark.parametrize(("known", "seen"), [("Iğdır", "ığdır"), ("ığdır", "IĞDIR"), ("İç", "iç")])
def test_capitals_do_not_make_a_word_new(known, seen):
    assert cell(errors(rows(seen), [0], rows(known)), "known_form") == (0, 1)


def test_no_words_at_all_are_no_error():
    assert math.isnan(errors(rows(""), [], rows("ev"))["error_new_form"])


@pytest.mark.skipif(not REAL.is_dir(), reason="the real data is not beside the project")
def test_novelty_on_imst_is_what_the_literature_counts():
    split = {
        name: parquet.read_table(REAL / f"{name}.parquet", columns=["tokens", "lemmas"])
        for name in ("train", "test")
    }
    words = sum(len(sentence) for sentence in split["test"]["tokens"].to_pylist())
    figures = errors(split["test"], np.ones(words), split["train"])
    four = {name: n for name, n in figures.items() if name.startswith("n_") and "lemma" in name}
    new_form = four["n_new_form_known_lemma"] + four["n_new_form_new_lemma"]
    new_lemma = four["n_known_form_new_lemma"] + four["n_new_form_new_lemma"]
    # 33.2% and 10.2% of the words that are no punctuation; ours leaves out 17 without a lemma.
    assert 100 * new_form / sum(four.values()) == pytest.approx(33.2, abs=0.1)
    assert 100 * new_lemma / sum(four.values()) == pytest.approx(10.2, abs=0.1)

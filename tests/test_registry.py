"""Every shipped row, and the grid that they make together."""

import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tabiflow.plan import Plan, plan
from tabiflow.protocol import Params, Protocol, WeightDecay
from tabiflow.registry import resolve
from tabiflow.registry.datasets import DATASETS
from tabiflow.registry.kinds import KINDS
from tabiflow.registry.models import MODELS
from tabiflow.spec import Dataset, Model, Sweep
from tabiflow.trial import Trial

ROOT = Path(__file__).parent.parent
TABIBENCH = [row for row in DATASETS if "tabibench" in row.tags]
LABELLED = {"classification", "nli", "ner", "pos"}
every_dataset = pytest.mark.parametrize("row", DATASETS, ids=lambda row: row.name)
every_model = pytest.mark.parametrize("row", MODELS, ids=lambda row: row.name)


def planned(sweep: str) -> Plan:
    read = Sweep.read(ROOT / "sweeps" / f"{sweep}.yaml")
    return plan(read, resolve(read))


@every_dataset
def test_a_data_set_has_one_origin_and_its_tags(row: Dataset) -> None:
    assert (row.hub is None) != (row.build is None)
    tabibench = {"tabibench", row.category, row.task}
    wanted = {row.category} if row.files_of else tabibench if row.hub else {"example"}
    assert set(row.tags) == wanted


@every_dataset
def test_a_data_set_renames_only_columns_of_its_task(row: Dataset) -> None:
    assert set(row.columns) <= set(KINDS[row.task].columns)


@every_dataset
def test_a_data_set_says_what_its_answers_are(row: Dataset) -> None:
    assert bool(row.labels) == (row.task in LABELLED and not row.bundles)
    assert len(set(row.labels)) == len(row.labels)
    assert len(row.label_names) in (0, len(row.labels))
    assert (row.label_range is not None) == (row.task == "sts")


@every_dataset
def test_a_data_set_says_what_people_ask_of_it(row: Dataset) -> None:
    assert set(row.sizes) == {"train", "validation", "test"}
    assert min(row.sizes.values()) > 0
    assert row.title and row.metric and row.licence and row.redistribution and row.processing


def test_a_row_over_another_ones_files_is_pinned_to_the_same_ones() -> None:
    rows = {row.name: row for row in DATASETS}
    shared = [(row, rows[row.files_of]) for row in DATASETS if row.files_of]
    assert shared
    assert all((row.hub, row.revision) == (own.hub, own.revision) for row, own in shared)


@every_dataset
def test_a_data_set_is_pinned_to_a_whole_commit_or_not_at_all(row: Dataset) -> None:
    length = 40 if row.hub else 16
    assert row.revision is None or len(row.revision) == length
    assert row.build is None or row.revision is not None


@pytest.mark.parametrize(
    "row", [row for row in DATASETS if row.task == "ner"], ids=lambda r: r.name
)
def test_every_entity_type_of_a_row_can_begin(row: Dataset) -> None:
    inside = {str(label)[2:] for label in row.labels if str(label).startswith("I-")}
    begins = {str(label)[2:] for label in row.labels if str(label).startswith("B-")}
    assert "O" in row.labels
    assert inside <= begins


@every_model
def test_a_model_has_one_origin_its_tag_and_its_limit(row: Model) -> None:
    assert row.tags == (("encoders",) if row.hub else ("example",))
    assert row.context is not None and row.title and row.notes
    assert not row.trust_remote_code


@pytest.mark.parametrize(
    ("name", "hub", "parameters", "context", "lowercase"),
    [
        ("turkishbertweet", "VRLLab/TurkishBERTweet", 162_842_112, 512, "turkish"),
        ("ytu-cosmos-bert", "ytu-ce-cosmos/turkish-base-bert-uncased", 110_617_344, 512, "turkish"),
        ("berturk", "dbmdz/bert-base-turkish-cased", 110_617_344, 512, None),
        ("tabibert", "boun-tabilab/TabiBERT", 148_866_816, 8192, None),
        ("mmbert", "jhu-clsp/mmBERT-base", 306_939_648, 8192, None),
    ],
)
def test_the_five_encoders_are_those_of_the_paper(
    name: str, hub: str, parameters: int, context: int, lowercase: str | None
) -> None:
    row = next(row for row in MODELS if row.name == name)
    assert (row.hub, row.parameters, row.context) == (hub, parameters, context)
    assert row.lowercase == lowercase
    assert row.add_prefix_space == (name == "turkishbertweet")


def test_names_are_unique_and_no_name_is_also_a_tag() -> None:
    for rows in (MODELS, DATASETS):
        names = [row.name for row in rows]
        assert len(set(names)) == len(names)
        assert not set(names) & {tag for row in rows for tag in row.tags}


def test_tabibench_has_27_data_sets_in_8_categories() -> None:
    assert Counter(row.category for row in TABIBENCH) == {
        "text_classification": 4,
        "token_classification": 4,
        "sts": 2,
        "nli": 2,
        "qa": 2,
        "academic_understanding": 3,
        "information_retrieval": 6,
        "code_retrieval": 4,
    }


def test_published_test_rows_add_up() -> None:
    """The paper's total; it holds only with the 3,770 rows that it gives Apps-TR."""
    assert sum(row.sizes["test"] for row in TABIBENCH) == 153_558


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("wiki_ner", 39),
        ("wikiann_tr", 7),
        ("posud_boun", 17),
        ("posud_imst", 15),
        ("bil_tweet_news", 5),
        ("gender_hate_speech", 3),
        ("thesis_abstract_11k", 187),
    ],
)
def test_label_schemas_are_as_large_as_the_released_ones(name: str, labels: int) -> None:
    assert len(next(row for row in DATASETS if row.name == name).labels) == labels


def test_the_papers_grid_is_2160_trials_in_135_cells() -> None:
    grid = planned("tabibench")
    assert grid.counts["trials"] == grid.counts["distinct"] == 2160
    assert len({trial.id for trial in grid.trials}) == 2160
    assert grid.counts["cells"] == 135


def test_the_quickstart_is_56_trials() -> None:
    assert planned("quickstart").counts["trials"] == 56


def test_planning_tabibench_is_quick_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from pathlib import Path; from tabiflow.spec import Sweep\n"
        "from tabiflow.registry import resolve; from tabiflow.plan import plan\n"
        "sweep = Sweep.read(Path('sweeps/tabibench.yaml'))\n"
        "assert plan(sweep, resolve(sweep)).counts['todo'] == 2160\n"
        "print(*sorted({'torch', 'ray', 'mlflow', 'transformers', 'datasets'} & set(sys.modules)))"
    )
    before = children_seconds()
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == ""
    assert children_seconds() - before < 2


def children_seconds() -> float:
    """CPU time, which a busy machine does not stretch as it does a clock's."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def by_hand(**changes: object) -> Trial:
    fields = {
        "model": "tabibert",
        "dataset": "stsb_tr",
        "model_identity": {"hub": "boun-tabilab/TabiBERT", "revision": "main", "context": 8192},
        "dataset_identity": {"hub": "boun-tabilab/STSb-TR", "task": "sts", "version": 1},
        "params": Params(learning_rate=2e-5, weight_decay=1e-5, batch_size=16),
    }
    return Trial(**{**fields, **changes})


@pytest.mark.parametrize(
    ("trial", "pinned"),
    [
        (by_hand(), "27edf2a60dc4"),
        (by_hand(seed=26), "dd7aa7e5841c"),
        (by_hand(split="test"), "76597c745ad6"),
        (by_hand(limit={"train": 64}), "2c8734b82fab"),
        (by_hand(protocol=Protocol(epochs=3)), "4f82b957a1cc"),
        (by_hand(protocol=Protocol(weight_decay=WeightDecay(mode="adamw"))), "894d2ab51d6e"),
        (by_hand(params=Params(learning_rate=3e-5)), "c9ed21562420"),
    ],
)
def test_ids_stay_what_they_are(trial: Trial, pinned: str) -> None:
    """A change here makes every recorded trial unknown: raise a `version` instead."""
    assert trial.id == pinned

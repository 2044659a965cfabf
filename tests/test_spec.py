"""What a sweep file means, and what is said of each mistake in it."""

import math
from pathlib import Path
from typing import Any

import pytest
from studies import RATES, dataset, model, searched, written

from tabiflow.errors import SpecError
from tabiflow.protocol import Protocol
from tabiflow.spec import Choice, Dataset, Model, Range, Space, Sweep, configured, label

SWEEP = """\
name: study
models:
  - name: model
    hub: owner/model
search:
  - datasets:
      - {name: data, hub: owner/data, task: nli}
    space:
      learning_rate: [1e-5, 2e-5]
"""
ROW = "name: model\n    hub: owner/model"
DATASET = "{name: data, hub: owner/data, task: nli}"
SPACE = "\n      learning_rate: [1e-5, 2e-5]"
END = "2e-5]\n"


def _read(folder: Path, text: str) -> Sweep:
    (folder / "study.yaml").write_text(text)
    return Sweep.read(folder / "study.yaml")


def _space(folder: Path, **space: Any) -> Space:
    return Sweep.read(written(folder, search=searched(**space))).search[0].space


def test_a_sweep_is_read_whole(tmp_path: Path) -> None:
    sweep = _read(tmp_path, SWEEP)

    assert (sweep.name, sweep.runner, sweep.seeds, sweep.confirm.seeds) == (
        "study",
        "finetune",
        (25,),
        (25,),
    )
    assert sweep.models == (Model(name="model", hub="owner/model"),)
    assert sweep.search[0].datasets == (Dataset(name="data", hub="owner/data", task="nli"),)
    assert list(sweep.search[0].space.grid()) == [{"learning_rate": 1e-5}, {"learning_rate": 2e-5}]


def test_names_are_kept_for_the_registry(tmp_path: Path) -> None:
    sweep = Sweep.read(written(tmp_path, models=["encoders", model()]))

    assert sweep.models == ("encoders", Model(name="model", hub="owner/model"))


def test_paths_start_at_the_sweep_file(tmp_path: Path) -> None:
    row = {"name": "model", "path": "../models/mine"}
    [read] = Sweep.read(written(tmp_path, models=[row])).models

    assert isinstance(read, Model) and read.path == (tmp_path / "../models/mine").resolve()


def test_rehearsing_is_another_experiment(tmp_path: Path) -> None:
    sweep = Sweep.read(written(tmp_path), rehearse=True)

    assert (sweep.name, sweep.runner) == ("study-rehearsal", "rehearse")


def test_pruning_may_be_a_word_or_a_mapping(tmp_path: Path) -> None:
    short = Sweep.read(written(tmp_path, pruning="asha")).pruning
    long = Sweep.read(written(tmp_path, pruning={"grace_period": 2})).pruning

    assert short is not None and (short.grace_period, short.reduction_factor) == (1, 3)
    assert long is not None and long.grace_period == 2


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        # unknown keys, at every level
        (END, END + "sed: 1\n", 10, "unknown key `sed`; did you mean `seeds`?"),
        (END, END + "epochs: 1\n", 10, "unknown key `epochs`; it belongs under `protocol`"),
        ("    space:", "    spac: 1\n    space:", 8, "unknown key `spac`; did you mean `space`?"),
        (ROW, ROW + "\n    lowercas: x", 5, "unknown key `lowercas`; did you mean `lowercase`?"),
        ("task: nli", "task: nli, label: x", 7, "unknown key `label`; did you mean `labels`?"),
        (END, END + "protocol:\n  epoch: 1\n", 11, "unknown key `epoch`; did you mean `epochs`?"),
        (END, END + "limits: {retry: 1}\n", 10, "unknown key `retry`; did you mean `retries`?"),
        (END, END + "limit: {trian: 1}\n", 10, "unknown key `trian`; did you mean `train`?"),
        (END, END + "confirm: {seed: 1}\n", 10, "unknown key `seed`; did you mean `seeds`?"),
        (END, END + "pruning:\n  grace_periods: 1\n", 11, "unknown key `grace_periods`; did you"),
        (END, END + "rehearse: {second: 1}\n", 10, "unknown key `second`; did you mean `seconds`?"),
        # missing keys
        ("name: study\n", "", 1, "`name` is missing"),
        (SWEEP, "name: study\nmodels: [berturk]\n", 1, "`search` is missing"),
        ("name: model\n    ", "", 3, "`name` is missing"),
        (", task: nli", "", 7, "`task` is missing"),
        # origins
        ("\n    hub: owner/model", "", 3, "`models`: `model` needs one of `path` and `hub`"),
        (ROW, ROW + "\n    path: .", 3, "`models`: `model` needs one of `path` and `hub`"),
        ("hub: owner/data, ", "", 7, "`datasets`: `data` needs one of `path` and `hub`"),
        # kinds of value
        ("name: study", "name: a b", 1, "`name`: must be made of letters, digits"),
        ("name: study", "name: ../x", 1, "`name`: must be made of letters, digits"),
        ("name: study", "name: 5", 1, "`name`: must be text, not 5; put it in quotes"),
        (f"  - {ROW}", "  - 5", 3, "`models`: must be a name or a mapping of keys to values"),
        (f"\n  - {ROW}", " berturk", 2, '`models`: must be a list, not "berturk"'),
        (f"\n  - {ROW}", " []", 2, "`models`: must be a list that is not empty"),
        (f"\n  - {ROW}", "", 2, "`models`: must be a list, not nothing"),
        (DATASET, "[a]", 7, "`datasets`: must be a name or a mapping of keys to values"),
        ("task: nli", "task: nlii", 7, "`task`: must be 'classification', 'nli', "),
        ("task: nli", "task: nli, labels: [a, a]", 7, "`labels`: a stands there 2 times"),
        ("task: nli", "task: sts, label_range: [0]", 7, "`label_range`: must be longer"),
        ("task: nli", "task: sts, label_range: [5, 0]", 7, "`datasets`: `data`: `label_range` is"),
        (END, END + "seeds: 25\n", 10, "`seeds`: must be a list, not 25"),
        (END, END + "seeds: [1, x]\n", 10, '`seeds`: must be a whole number, not "x"'),
        (END, END + "seeds: [1, 1]\n", 10, "`seeds`: 1 stands there 2 times"),
        (END, END + "seeds: [-1]\n", 10, "`seeds`: must be at least 0, not -1"),
        (END, END + "confirm: {seeds: []}\n", 10, "`seeds`: must be a list that is not empty"),
        (END, END + "protocol: {epochs: 0}\n", 10, "`epochs`: must be above 0, not 0"),
        (END, END + "protocol: {epochs: true}\n", 10, "`epochs`: must be a whole number"),
        (END, END + "protocol: {epsilon: .inf}\n", 10, "`epsilon`: must be a finite number"),
        (END, END + "protocol: 3\n", 10, "`protocol`: must be a mapping of keys to values, not 3"),
        (END, END + "limit: {train: 0}\n", 10, "`train`: must be above 0, not 0"),
        (END, END + "limits: {hours: -1}\n", 10, "`hours`: must be above 0"),
        (END, END + "pruning: hyperband\n", 10, "`pruning`: must be 'asha', not \"hyperband\""),
        (END, END + "runner: finetuned\n", 10, "`runner`: must be 'finetune' or 'rehearse'"),
        # spaces
        (SPACE, " nowhere", 8, "unknown space `nowhere`: no search_spaces/nowhere.yaml"),
        (SPACE, " nowhere.yaml", 8, "space `nowhere.yaml`: there is no "),
        (SPACE, " 5", 8, "`space`: must be text or a mapping of keys to values, not 5"),
        (SPACE, "", 8, "`space`: must be text or a mapping of keys to values, not nothing"),
        (SPACE, " {}", 8, "a space needs `learning_rate`"),
        ("1e-5, 2e-5]", "]", 9, "`learning_rate` has no values"),
        ("1e-5, 2e-5", "1e-5, 0.00001", 9, "`learning_rate` holds a value twice"),
        ("1e-5, 2e-5", "1e-5,\n  fast", 10, '`learning_rate`: must be a number, not "fast"'),
        ("1e-5, 2e-5", "0", 9, "`learning_rate`: must be above 0"),
        ("1e-5, 2e-5", ".nan", 9, "`learning_rate`: must be a finite number, not NaN"),
        ("learning_rate:", "learning_rat:", 9, "unknown hyper-parameter `learning_rat`; did you"),
        (END, END + "      batch_size: 16.5\n", 10, "`batch_size`: must be a whole number"),
        (END, END + "      version: 2\n", 10, "unknown hyper-parameter `version`"),
        (END, END + "      samples: many\n", 10, "`samples`: must be a whole number above 0"),
        (END, END + "    samples: 0\n", 10, "`samples`: must be above 0, not 0"),
        # ranges
        ("[1e-5, 2e-5]", "{uniform: [1, 2]}", 9, "`learning_rate` is a range, so the search needs"),
        ("[1e-5, 2e-5]", "{unifrom: [1, 2]}", 9, "`learning_rate`: `unifrom` is no range; known"),
        ("[1e-5, 2e-5]", "{}", 9, "`learning_rate`: a range is one of log_uniform, uniform, int_"),
        ("[1e-5, 2e-5]", "{int_uniform: [1, 2]}", 9, "`learning_rate` takes any number: `uni"),
        ("[1e-5, 2e-5]", "{uniform: 1}", 9, "`learning_rate`: `uniform` takes [low, high]"),
        ("[1e-5, 2e-5]", "{uniform: [1]}", 9, "`learning_rate`: `uniform` takes [low, high]"),
        ("[1e-5, 2e-5]", "{uniform: [2, 1]}", 9, "`learning_rate`: a range is [low, high] with"),
        ("[1e-5, 2e-5]", "{uniform: [2, x]}", 9, '`learning_rate`: must be a number, not "x"'),
        (
            END,
            END + "      weight_decay: {log_uniform: [0, 1]}\n",
            10,
            "`weight_decay`: a range is",
        ),
        (
            END,
            END + "      batch_size: {uniform: [8, 9]}\n",
            10,
            "`batch_size` takes whole numbers",
        ),
        (
            END,
            END + "    samples: 1\nseeds: [1, 2]\n",
            11,
            "a search with `samples` takes one seed",
        ),
        # metrics
        (END, END + "metrics: [f1]\n", 10, "metric `f1` is not `evaluate:<folder>`"),
        (END, END + "metrics: [evaluate:]\n", 10, "metric `evaluate:` is not `evaluate:<folder>`"),
        (END, END + "metrics: [evaluate:./f1]\n", 10, "metric `evaluate:./f1`: there is no "),
        (END, END + "metrics: [evaluate:f1]\n", 10, "metric `evaluate:f1` would run code from the"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(
    tmp_path: Path, old: str, new: str, line: int, told: str
) -> None:
    assert SWEEP.count(old) == 1
    with pytest.raises(SpecError) as caught:
        _read(tmp_path, SWEEP.replace(old, new))

    assert str(caught.value).startswith(f"{tmp_path}/study.yaml:{line}: {told}")
    assert "\n" not in str(caught.value)


def test_lists_are_crossed_and_the_first_is_the_slowest(tmp_path: Path) -> None:
    space = _space(tmp_path, learning_rate=[1e-5, 2e-5], batch_size=[16, 32], weight_decay=0.1)

    assert [tuple(point.values()) for point in space.grid()] == [
        (1e-5, 16, 0.1),
        (1e-5, 32, 0.1),
        (2e-5, 16, 0.1),
        (2e-5, 32, 0.1),
    ]
    assert space.varying == ("learning_rate", "batch_size")
    assert space.samples is None


def test_values_are_those_of_their_fields(tmp_path: Path) -> None:
    space = _space(tmp_path, learning_rate=[1], patience=[None, 2], dropout=0, max_length=[256])
    [first, second] = space.grid()

    assert first == {"learning_rate": 1.0, "patience": None, "dropout": 0.0, "max_length": 256}
    assert {type(first["learning_rate"]), type(first["dropout"])} == {float}
    assert second["patience"] == 2


def test_a_protocol_field_under_search_goes_to_the_protocol() -> None:
    settings = {"learning_rate": 1e-5, "weight_decay": 0.1, "epochs": 3}

    params, protocol = configured(Protocol(patience=1), settings)

    assert (params.learning_rate, params.weight_decay, params.batch_size) == (1e-5, 0.1, 16)
    assert protocol == Protocol(patience=1, epochs=3)


@pytest.mark.parametrize(
    ("written_range", "read"),
    [
        ({"log_uniform": [1e-6, 1e-4]}, Range(low=1e-6, high=1e-4, log=True)),
        ({"uniform": [1e-6, 1e-4]}, Range(low=1e-6, high=1e-4)),
    ],
)
def test_ranges_are_read(tmp_path: Path, written_range: dict[str, Any], read: Range) -> None:
    space = _space(tmp_path, learning_rate=written_range, batch_size=[16, 32], samples=7)

    assert space == Space({"learning_rate": read, "batch_size": Choice(values=(16, 32))}, samples=7)
    assert space.varying == ("learning_rate", "batch_size")


@pytest.mark.parametrize(
    ("space", "samples"),
    [
        ({"learning_rate": RATES, "samples": 2}, 2),
        ({"learning_rate": RATES, "samples": 3}, None),
        ({"learning_rate": RATES, "samples": 99}, None),
        ({"learning_rate": RATES, "batch_size": {"int_uniform": [8, 9]}, "samples": 99}, 6),
        ({"learning_rate": {"uniform": [1, 2]}, "samples": 99}, 99),
    ],
)
def test_there_are_never_more_samples_than_configurations(
    tmp_path: Path, space: dict[str, Any], samples: int | None
) -> None:
    assert _space(tmp_path, **space).samples == samples


def test_samples_of_the_search_go_before_those_of_the_space(tmp_path: Path) -> None:
    space = {"learning_rate": {"uniform": [1, 2]}, "samples": 5}
    search = [{"datasets": [dataset()], "space": space, "samples": 7}]

    assert Sweep.read(written(tmp_path, search=search)).search[0].space.samples == 7


def _spaces(folder: Path, text: str) -> Path:
    """A folder of sweeps beside a folder with the space `mine`."""
    for name in ("sweeps", "search_spaces"):
        (folder / name).mkdir()
    (folder / "search_spaces" / "mine.yaml").write_text(text)
    return folder / "sweeps"


@pytest.mark.parametrize("name", ["mine", "../search_spaces/mine.yaml"])
def test_a_space_has_a_file_of_its_own(tmp_path: Path, name: str) -> None:
    folder = _spaces(tmp_path, "learning_rate: {log_uniform: [1e-6, 1e-4]}\nsamples: 4\n")
    search = [{"datasets": [dataset()], "space": name}]

    space = Sweep.read(written(folder, search=search)).search[0].space

    assert (space.samples, space.varying) == (4, ("learning_rate",))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("batch_size: 16\nlearning_rat: 1\n", "mine.yaml:2: unknown hyper-parameter"),
        ("batch_size: 16\n", "mine.yaml:1: a space needs `learning_rate`"),
        ("\nlearning_rate: {uniform: [1, 2]}\n", "mine.yaml:2: `learning_rate` is a range, so"),
        ("learning_rate: 1\nsamples: 0\n", "mine.yaml:2: `samples`: must be a whole number"),
        ("learning_rate: [1, 2\n", "mine.yaml:2: not valid YAML"),
        ("- 1\n", "mine.yaml:1: is not a mapping"),
    ],
)
def test_a_mistake_in_a_space_is_shown_in_its_file(tmp_path: Path, text: str, told: str) -> None:
    search = [{"datasets": [dataset()], "space": "mine"}]
    with pytest.raises(SpecError, match=told):
        Sweep.read(written(_spaces(tmp_path, text), search=search))


def test_an_unknown_space_has_a_near_name(tmp_path: Path) -> None:
    search = [{"datasets": [dataset()], "space": "mien"}]
    with pytest.raises(SpecError, match=r"unknown space `mien`.*did you mean `mine`"):
        Sweep.read(written(_spaces(tmp_path, "learning_rate: 1\n"), search=search))


def test_a_local_metric_is_made_absolute(tmp_path: Path) -> None:
    (tmp_path / "my_metric").mkdir()
    names = ["evaluate:./my_metric", "evaluate:my_metric"]

    assert set(Sweep.read(written(tmp_path, metrics=names)).metrics) == {
        str(tmp_path / "my_metric")
    }


def test_a_hub_metric_needs_the_opt_in(tmp_path: Path) -> None:
    allowed = written(tmp_path, metrics=["evaluate:accuracy"], allow_hub_metrics=True)

    assert Sweep.read(allowed).metrics == ("accuracy",)


def test_the_identity_of_a_row_holds_what_changes_results_only() -> None:
    plain = Model(name="model", hub="owner/model")
    dressed = Model(name="other", hub="owner/model", title="T", notes="n", tags=("a",), gpus=0.5)

    assert plain.identity == dressed.identity == {"hub": "owner/model"}
    assert Model(name="model", hub="owner/model", lowercase="turkish").identity != plain.identity


def test_where_a_folder_lies_is_not_part_of_the_identity() -> None:
    here, there = (Model(name="model", path=Path(path), revision="1") for path in ("/a", "/b"))

    assert here.identity == there.identity == {"revision": "1"}


@pytest.mark.parametrize(
    ("value", "held"), [(1.0, True), (2, True), (2.1, False), (None, False), ("1", False)]
)
def test_a_range_holds_what_lies_in_it(value: object, held: bool) -> None:
    assert Range(low=1, high=2).holds(value) == held


def test_the_size_of_a_space_is_the_number_of_its_configurations() -> None:
    choice, whole, real = (
        Choice(values=(1, 2)),
        Range(low=8, high=10, integer=True),
        Range(low=0, high=1),
    )

    assert Space({"a": choice, "b": whole}).size == 6
    assert Space({"a": choice, "b": real}).size == math.inf


@pytest.mark.parametrize(
    ("varying", "shown"),
    [
        (("learning_rate", "batch_size"), "lr=2e-05 bs=32"),
        (("weight_decay", "seed"), "wd=1e-06 seed=25"),
        (("patience",), "patience=None"),
        ((), "the only configuration"),
    ],
)
def test_a_label_shows_what_varies(varying: tuple[str, ...], shown: str) -> None:
    settings = {
        "learning_rate": 2e-5,
        "weight_decay": 1e-6,
        "batch_size": 32,
        "seed": 25,
        "patience": None,
    }

    assert label(settings, varying) == shown

"""Sweeps that confirm the winners of another: more seeds, another length, nothing trained twice."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from studies import RATES, dataset, known, model, opened, outcome, scored, searched, written
from terminal import Terminal
from terminal import opened as terminal_in

from tabiflow.errors import SpecError
from tabiflow.plan import Plan
from tabiflow.protocol import Protocol
from tabiflow.registry import resolve
from tabiflow.selection import confirmation, planned, winners
from tabiflow.spec import Sweep
from tabiflow.splits import NAMES
from tabiflow.statistics import welch
from tabiflow.trial import Outcome, Status, Trial
from tabiflow.work import missing

SWEEPS = Path(__file__).parent.parent / "sweeps"
SEEDS = [7, 25, 42, 100, 1234]


def declared(folder: Path, file: str = "seeds.yaml", **changes: Any) -> Path:
    """A sweep file that confirms what `study.yaml` has found, with two seeds."""
    content = {
        "name": "seeds",
        "models": ["model"],
        "search": [{"datasets": ["data"], "space": {"winners_of": "study"}}],
        "confirm": {"seeds": [25, 7]},
        **changes,
    }
    (folder / file).write_text(json.dumps(content))
    return folder / file


def asked(file: Path, outcomes: Iterable[Outcome] = ()) -> Plan:
    sweep = Sweep.read(file)
    return planned(sweep, resolve(sweep), known(outcomes))


def won(folder: Path, **changes: Any) -> list[Outcome]:
    """The outcomes of `study.yaml`, where the second trial of each cell wins."""
    cells = asked(written(folder, **changes)).cells
    return [
        each
        for cell in cells
        for each in scored(cell.trials, *(1.0 + (rank == 1) for rank in range(len(cell.trials))))
    ]


def trials(folder: Path, base: dict[str, Any], **changes: Any) -> list[Trial]:
    return list(asked(declared(folder, **changes), won(folder, **base)).trials)


# What is asked for.


def test_the_winner_of_a_cell_is_confirmed_with_every_seed(tmp_path: Path) -> None:
    outcomes = won(tmp_path)
    whole = asked(declared(tmp_path), outcomes)

    assert [each.id for each in whole.trials] == [
        replace(outcomes[1].trial, split="test", seed=seed).id for seed in (25, 7)
    ]
    assert (whole.counts["trials"], whole.counts["todo"]) == (2, 2)
    assert missing(whole) == ()
    [winner] = winners(whole)
    assert (winner.trial, winner.score, winner.complete) == (outcomes[1].trial, 2.0, True)


def test_a_seed_that_was_confirmed_before_is_known(tmp_path: Path) -> None:
    outcomes = won(tmp_path)
    before = opened(outcomes[1].trial, sweep="study")
    whole = asked(declared(tmp_path), [*outcomes, before])

    assert (whole.counts["known"], whole.counts["todo"]) == (1, 1)
    found = confirmation(winners(whole), "seeds", (25, 7), known([*outcomes, before]))
    assert [each.seed for each in found.todo] == [7] and not found.conflicts


def test_the_protocol_is_the_named_sweeps_but_for_what_is_set(tmp_path: Path) -> None:
    base = {"protocol": {"epochs": 3, "patience": 1}, "limit": {"test": 9, "train": 5}}
    changes = {"protocol": {"max_length": 512, "patience": None}, "limit": {"train": None}}
    [trial, _] = trials(tmp_path, base, **changes)

    assert trial.protocol == Protocol(epochs=3, patience=None, max_length=512)
    assert trial.limit == {"test": 9}


def test_what_the_space_has_found_of_the_protocol_is_kept(tmp_path: Path) -> None:
    base = {"search": searched(learning_rate=1e-5, epochs=[1, 2, 3])}
    [trial, _] = trials(tmp_path, base, protocol={"max_length": 64})

    assert (trial.protocol.epochs, trial.protocol.max_length) == (2, 64)


def test_names_restrict_the_cells_and_stand_for_the_named_sweeps_rows(tmp_path: Path) -> None:
    rows = [dataset("data"), dataset("other", tags=["hard"])]
    space = {"learning_rate": RATES}
    base = {"models": [model("m1"), model("m2")], "search": [{"datasets": rows, "space": space}]}
    search = [{"datasets": ["hard"], "space": {"winners_of": "study"}}]

    found = trials(tmp_path, base, models=["m2"], search=search)

    assert {each.cell for each in found} == {("m2", "other")} and len(found) == 2


def test_a_sweep_of_winners_can_be_named_in_turn(tmp_path: Path) -> None:
    outcomes = won(tmp_path)
    declared(tmp_path, protocol={"max_length": 64})
    search = [{"datasets": ["data"], "space": {"winners_of": "seeds"}}]
    file = declared(tmp_path, "again.yaml", name="again", search=search, protocol={"clip": 1.0})

    [first, _] = asked(file, outcomes).trials

    assert first.protocol == Protocol(max_length=64, clip=1.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "study has finished 2 of its 3"),
        ({"models": [model("new")]}, "it is no cell of study"),
    ],
)
def test_a_cell_without_a_winner_waits_and_says_why(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    whole = asked(declared(tmp_path, **changes), won(tmp_path)[:2])
    [cell] = whole.cells

    assert (cell.awaits, cell.trials, cell.decided) == (reason, (), False)
    assert (whole.counts["trials"], whole.counts["todo"], winners(whole)) == (2, 2, ())


def test_a_winner_that_was_confirmed_beside_failed_trials_is_taken(tmp_path: Path) -> None:
    first, best, last = won(tmp_path)
    failed = outcome(last.trial, Status.FAILED, kind="diverged")
    confirmed = opened(best.trial)
    file = declared(tmp_path)

    assert {each.params for each in asked(file, [first, best, failed, confirmed]).trials} == {
        best.trial.params
    }
    for outcomes in (
        [first, best, failed],
        [first, best, confirmed],  # the last is still to be run
        [first, best, failed, opened(first.trial)],
        [first, best, failed, opened(best.trial, sweep="other")],
    ):
        assert asked(file, outcomes).cells[0].awaits == "study has finished 2 of its 3"


def test_a_row_of_the_same_name_that_is_another_one_waits(tmp_path: Path) -> None:
    whole = asked(declared(tmp_path, models=[model(context=64)]), won(tmp_path))

    assert whole.cells[0].awaits == "`model` is another row in study"


def test_failed_confirming_trials_are_counted(tmp_path: Path) -> None:
    outcomes = won(tmp_path)
    failed = outcome(replace(outcomes[1].trial, split="test", seed=7), Status.FAILED)

    counts = asked(declared(tmp_path), [*outcomes, failed]).counts

    assert (counts["failed"], counts["todo"], counts["trials"]) == (1, 1, 2)


def test_epochs_are_fixed_as_the_released_code_records_them(tmp_path: Path) -> None:
    base = {"confirm": {"fixed_epochs": True}, "protocol": {"epochs": 9}}
    outcomes = [
        replace(each, tags={"trained_epochs": "6", "trial": each.trial.id})
        for each in won(tmp_path, **base)
    ]
    [winner] = winners(asked(tmp_path / "study.yaml", outcomes))
    [first, _] = asked(declared(tmp_path), outcomes).trials

    assert winner.trial.protocol == Protocol(epochs=9)
    assert first == replace(winner.final, split="test")
    assert first.protocol == Protocol(epochs=4, patience=None)


@pytest.mark.parametrize(
    ("name", "cells", "asked_for"), [("seeds", 135, 675), ("context-ablation", 2, 2)]
)
def test_shipped_sweeps_wait_for_tabibench(name: str, cells: int, asked_for: int) -> None:
    whole = asked(SWEEPS / f"{name}.yaml")

    assert (whole.counts["cells"], whole.counts["trials"]) == (cells, asked_for)
    assert {cell.awaits for cell in whole.cells} == {"tabibench has finished 0 of its 16"}


# Mistakes.


@pytest.mark.parametrize(
    ("space", "told"),
    [
        ("{winners_of: stud}", r"seeds.yaml:5: unknown sweep `stud`.*mean `study`"),
        ("{winners_of: no/where.yaml}", r"seeds.yaml:5: unknown sweep `no/where.yaml`"),
        ("{winners_of: [study]}", r"seeds.yaml:5: `winners_of` takes the name of a sweep"),
        ("{winners_of: }", r"seeds.yaml:5: `winners_of` takes the name of a sweep, not nothing"),
        ("{winners_of: seeds}", r"seeds.yaml:5: .*leads back to this sweep"),
        ("{winners_of: circle}", r"circle.yaml:5: .*leads back to this sweep"),
        ("{winners_of: study, epochs: 3}", r"seeds.yaml:5: `epochs` cannot stand beside"),
        ("{winners_of: study}\n    samples: 3", r"seeds.yaml:6: winners are not sampled"),
        ("{winners_of: study}\nseeds: [1]", r"seeds.yaml:6: .*no `seeds` of its own; `confirm"),
        ("{winners_of: study}\npruning: asha", r"seeds.yaml:6: .*no `pruning` of its own"),
        ("{winners_of: study}\nrunner: rehearse", r"seeds.yaml:6: .*no `runner` of its own"),
        ("{winners_of: study}\nconfirm: {fixed_epochs: true}", r"seeds.yaml:6: .*`fixed_epochs`"),
        (
            "{winners_of: study}\n  - {datasets: [data], space: {learning_rate: 1}}",
            r"seeds.yaml:6: all searches of a sweep take the winners of the same sweep",
        ),
        ("{winners_of: namesake}", r"seeds.yaml:1: `namesake` has the same name"),
    ],
)
def test_mistakes_are_said_where_they_stand(tmp_path: Path, space: str, told: str) -> None:
    text = "name: seeds\nmodels: [model]\nsearch:\n  - datasets: [data]\n    space: "
    (tmp_path / "seeds.yaml").write_text(f"{text}{space}\n")
    (tmp_path / "circle.yaml").write_text(f"{text}{{winners_of: seeds}}\n")
    written(tmp_path, name="seeds").rename(tmp_path / "namesake.yaml")
    written(tmp_path)

    with pytest.raises(SpecError, match=told):
        Sweep.read(tmp_path / "seeds.yaml")


def test_an_unknown_model_of_the_named_sweep_has_a_near_name(tmp_path: Path) -> None:
    written(tmp_path)

    with pytest.raises(SpecError, match=r"unknown model `modell`; did you mean `model`"):
        asked(declared(tmp_path, models=["modell"]))


# From end to end, rehearsed.


@pytest.fixture
def terminal(
    tmp_path: Path,
    ledger_template: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    local_ray: None,
) -> Terminal:
    return terminal_in(tmp_path, ledger_template, capsys, monkeypatch)


def _study(folder: Path) -> Path:
    models = [model("m1"), model("m2")]
    rows = [{"datasets": [dataset(sizes={"test": 9})], "space": {"learning_rate": RATES[:2]}}]
    return written(folder, models=models, search=rows, runner="rehearse", protocol={"epochs": 2})


def test_five_seeds_and_an_ablation_from_end_to_end(terminal: Terminal) -> None:
    base = _study(terminal.folder)
    seeds = declared(terminal.folder, models=["m1", "m2"], confirm={"seeds": SEEDS})
    early = terminal("confirm", seeds)
    assert early.code == 2 and "study.yaml" in early.err
    assert "of m1 x data: study has finished 0 of its 2" in early.err
    terminal("sweep", base)
    first = terminal.json("confirm", base)["openings"]
    nothing = terminal("sweep", seeds)
    assert nothing.code == 0 and "confirming trials only" in nothing.out
    assert terminal.runs(sweep="seeds") == []

    openings = terminal.json("confirm", seeds)["openings"]
    assert [each["seed"] for each in openings if each["model"] == "m1"] == SEEDS
    assert {each["trial"] for each in openings if each["reused"]} == {
        each["trial"] for each in first
    }
    runs = terminal.runs(sweep="seeds")
    assert len(runs) == 8 and all("opened_at" in run.data.tags for run in runs)
    assert len(terminal.runs("tags.split = 'test'")) == 2
    _numbers_are_scipys(terminal, seeds, openings)

    again = terminal("confirm", seeds)
    assert again.code == 0 and "2 of them reused from study" in again.out
    shorter = declared(
        terminal.folder,
        "short.yaml",
        name="short",
        models=["m2"],
        protocol={"max_length": 512},
        confirm={"seeds": [25]},
    )
    [ablated] = terminal.json("confirm", shorter)["openings"]
    assert not ablated["reused"] and len(terminal.runs(sweep="short")) == 1
    assert terminal.json("status", shorter)["counts"]["done"] == 1
    assert terminal.json("failures", shorter)["failures"] == []
    plan = terminal.json("plan", shorter)
    assert (plan["trials"], plan["known"], plan["winners_of"], plan["waiting"]) == (
        *(1, 1),
        "study",
        [],
    )


def _numbers_are_scipys(terminal: Terminal, seeds: Path, openings: list[dict[str, Any]]) -> None:
    tests = {
        name: [each["test"] for each in openings if each["model"] == name] for name in ("m1", "m2")
    }
    report = terminal.json("report", seeds)
    for score in report["scores"]:
        mine = tests[score["model"]]
        assert score["test"] == pytest.approx(np.mean(mine))
        assert score["deviation"] == pytest.approx(np.std(mine, ddof=1))
        assert sorted(score["seeds"]) == SEEDS
    theirs = stats.ttest_ind(tests["m1"], tests["m2"], equal_var=False)
    ours = welch(tests["m1"], tests["m2"])
    assert (ours.t, ours.p) == pytest.approx((theirs.statistic, theirs.pvalue))
    assert ours.df == pytest.approx(theirs.df)


def test_lost_confirming_trials_are_resubmitted_with_their_openings(terminal: Terminal) -> None:
    rows = searched(learning_rate=RATES[:1])
    base = written(terminal.folder, search=rows, runner="rehearse", rehearse={"lost": 1.0})
    file = declared(terminal.folder, confirm={"seeds": [7]}, limits={"retries": 0})
    terminal("sweep", base)
    assert terminal("confirm", file).code == 3
    [failure] = terminal.json("failures", file)["failures"]
    assert failure["kind"] == "node_lost"
    assert terminal.json("plan", file)["failed"] == 1

    assert terminal("resubmit", file).code == 0

    [opening] = terminal.json("report", file)["openings"]
    assert opening["trial"] == failure["trial"] and opening["test"] is not None
    assert terminal.json("status", file)["counts"]["done"] == 1


def test_equal_trials_are_run_once_and_named_in_the_ledger(terminal: Terminal) -> None:
    rows = searched(learning_rate=RATES[:1], weight_decay=[1e-5, 1e-6])
    protocol = {"epochs": 1, "weight_decay": {"mode": "adamw"}}
    file = written(terminal.folder, search=rows, runner="rehearse", protocol=protocol)
    plan = terminal.json("plan", file, "--explain")
    assert (plan["trials"], plan["distinct"]) == (2, 1)
    [equal] = plan["equal"]
    assert (equal["configuration"], equal["alias_configurations"]) == ("wd=1e-05", ["wd=1e-06"])

    counts = terminal.json("sweep", file)["counts"]

    [run] = terminal.runs()
    assert (counts["done"], counts["todo"]) == (2, 0)
    assert run.data.tags["trial"] == equal["run"]
    assert run.data.tags["aliases"] == equal["aliases"][0] and "2^-25" in equal["proof"]
    told = terminal("plan", file, "--explain").out
    assert f"is run for {equal['aliases'][0]} [wd=1e-06]: {equal['proof']}" in told
    [winner] = terminal.json("select", file)["winners"]
    assert (winner["trial"], winner["ties"], winner["complete"]) == (equal["run"], 1, True)


@pytest.mark.slow
def test_winners_of_the_example_are_trained_for_real_with_more_seeds(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABIFLOW_CACHE", str(terminal.folder / "cache"))
    names = {"models": ["example-bert"], "protocol": {"epochs": 2}}
    space = {"learning_rate": [1e-3, 3e-3], "batch_size": 32}
    search = [{"datasets": ["example-classification", "example-qa"], "space": space}]
    base = written(terminal.folder, search=search, **names)
    assert terminal("sweep", base).code == 0
    [first, _] = terminal.json("confirm", base)["openings"]
    wanted = [{"datasets": ["example-classification"], "space": {"winners_of": "study"}}]
    seeds = declared(
        terminal.folder, models=["example-bert"], search=wanted, confirm={"seeds": SEEDS}
    )

    openings = terminal.json("confirm", seeds)["openings"]

    assert [each["reused"] for each in openings] == [each["seed"] == 25 for each in openings]
    assert len({each["validation"] for each in openings}) > 1
    assert first["trial"] in {each["trial"] for each in openings}
    shorter = declared(
        terminal.folder,
        "short.yaml",
        name="short",
        models=["example-bert"],
        search=[{"datasets": ["example-qa"], "space": {"winners_of": "study"}}],
        protocol={"max_length": 24},
        confirm={"seeds": [25]},
    )
    [ablated] = terminal.json("confirm", shorter)["openings"]
    [run] = terminal.runs(sweep="short")
    assert run.data.tags["max_length_text"] == "24" and ablated["test"] is not None
    report = terminal.json("report", shorter)
    assert {each["split"]: each["limit"] for each in report["cuts"]} == dict.fromkeys(NAMES, 24)
    assert all(0 < each["share"] < 50 for each in report["cuts"])

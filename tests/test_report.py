"""What a report says, against tables computed by hand."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest
from studies import dataset, known, model, opened, outcome, planned, scored

from tabiflow.errors import UserError
from tabiflow.report import Report, report, write
from tabiflow.report.render import as_json, dumps, markdown
from tabiflow.selection import winners
from tabiflow.trial import Outcome, Status

SIZES = {"big": 300, "small": 100}


def made(
    folder: Path, tests: dict[str, list[float]], extra: list[Outcome] | None = None, **changes: Any
) -> Report:
    """Two data sets of one category; `tests` holds each one's test score by seed 25, 7, ..."""
    rows = [dataset(name, category="texts", sizes={"test": size}) for name, size in SIZES.items()]
    changes = {
        "models": [model()],
        "search": [{"datasets": rows, "space": {"learning_rate": [1e-5]}}],
        "confirm": {"seeds": [25, 7]},
        **changes,
    }
    trials = list(planned(folder, **changes).trials)
    done = scored(trials, *(60.0 for _ in trials), metric="macro_f1")
    confirmed = [
        opened(
            trial,
            seed,
            test=score,
            n=50,
            score=60.0,
            metric="macro_f1",
            tags={"opened_at": f"2026-01-0{seed % 9}", "opened_by": "me@here"},
        )
        for trial in trials
        for seed, score in zip((25, 7), tests.get(trial.dataset, []), strict=False)
    ]
    outcomes = known([*done, *confirmed, *(extra or [])])
    plan = planned(folder, outcomes.values(), **changes)
    return report(plan, winners(plan), outcomes)


def test_a_category_is_weighted_by_published_test_rows(tmp_path: Path) -> None:
    content = made(tmp_path, {"big": [80.0, 80.0], "small": [40.0, 40.0]})
    (category,) = content.categories
    assert category.test == pytest.approx((300 * 80 + 100 * 40) / 400)
    assert category.unweighted == 60.0
    assert content.average["model"] == category.test


def test_limited_rows_are_weighted_by_what_was_scored(tmp_path: Path) -> None:
    tests = {"big": [80.0, 80.0], "small": [40.0, 40.0]}
    (category,) = made(tmp_path, tests, limit={"test": 50}).categories
    assert category.test == 60.0


def test_seeds_are_a_mean_and_a_sample_deviation(tmp_path: Path) -> None:
    score, _ = made(tmp_path, {"big": [80.0, 84.0], "small": [40.0]}).scores
    assert (score.test, score.seeds, score.n) == (82.0, (25, 7), 50)
    assert score.deviation == pytest.approx(math.sqrt(8))


def test_half_a_category_has_no_average(tmp_path: Path) -> None:
    content = made(tmp_path, {"big": [80.0, 80.0]})
    assert math.isnan(content.categories[0].test) and math.isnan(content.average["model"])
    assert json.loads(dumps(as_json(content)))["average"] == {"model": None}
    assert "| average | – |" in markdown(content)


def test_openings_of_this_sweep_are_listed_and_reopened_ones_counted(tmp_path: Path) -> None:
    trial = next(
        planned(
            tmp_path, search=[{"datasets": [dataset("big")], "space": {"learning_rate": [9e-5]}}]
        ).trials
    )
    again = opened(trial, tags={"opened_at": "2026-02-01", "reopen_reason": "a wider space"})
    other = opened(trial, seed=99, sweep="another")
    content = made(tmp_path, {"big": [80.0], "small": [40.0]}, [again, other])
    assert [each.reason for each in content.openings] == ["", "", "a wider space"]
    assert "**Reopened:** 1 of 3 openings" in markdown(content)


def test_a_report_over_missing_trials_says_so(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    first, second, _ = plan.trials
    outcomes = [*scored([first], 60.0), outcome(second, Status.FAILED, kind="oom")]
    plan = planned(tmp_path, outcomes)
    content = report(plan, winners(plan), known(outcomes))
    assert content.unfinished == {"todo": 1, "failed": 1}
    assert "**Not final:** 1 todo, 1 failed trials" in markdown(content)


def test_the_files_hold_the_same_numbers(tmp_path: Path) -> None:
    content = made(tmp_path, {"big": [80.0, 84.0], "small": [40.0, 41.0]})
    files = {file.name: file for file in write(content, tmp_path / "out")}
    loaded = json.loads(files["report.json"].read_text())
    with files["scores.csv"].open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [float(row["test"]) for row in rows] == [row["test"] for row in loaded["scores"]]
    assert "82.00 ± 2.83" in files["report.md"].read_text()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        write(made(tmp_path, {}), tmp_path / "file")

"""A sweep of the generative benchmark as tables, the published figures beside its own."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tabiflow.errors import UserError
from tabiflow.evaluation.findings import Findings, TaskScore
from tabiflow.generative.prompts import LETTERS
from tabiflow.generative.published import Standing, standings
from tabiflow.published.cetvel import cetvel
from tabiflow.registry.cetvel import CATEGORIES, CATEGORY_NAMES, TASKS
from tabiflow.report import typeset
from tabiflow.report.render import dumps
from tabiflow.report.tables import DASH, Table, interval, number, p_value, signed


def tables(found: Findings) -> list[Table]:
    made = [
        _scores(found),
        _choices(found),
        _figures(found),
        _subjects(found),
        _orders(found),
        _pairs(found),
        _averages(found),
        _gini(found),
        _languages(found),
        _excluded(found),
        _missing(found),
        _origins(found),
        *_standings(found),
    ]
    return [each for each in made if each.rows]


def brief_tables(found: Findings) -> list[Table]:
    """What a terminal shows; the files have the rest."""
    made = [
        *(_scores(found), _choices(found), _averages(found), _orders(found), _pairs(found)),
        *(_excluded(found), _missing(found)),
    ]
    return [each for each in made if each.rows]


def _averages(found: Findings) -> Table:
    rows = []
    for model, each in found.averages.items():
        categories = (each.categories.get(name, math.nan) for name in CATEGORIES)
        whole = len(each.categories) == len(CATEGORIES)
        overall = each.overall if whole else math.nan
        rows.append((model, number(overall), *map(number, categories)))
    notes = ("Of the columns that the sweep asks; overall where it asks all seven categories.",)
    return Table("Averages", ("model", "overall", *CATEGORIES), tuple(rows), notes)


def warnings(found: Findings) -> Iterator[str]:
    own = [each for each in found.scores if each.facts.get("comparable") != "true"]
    if own:
        yield (
            f"not comparable: {len(own)} scores are of prompts of our own wording, of other rows "
            "than the release's or of a part of them; published scores show the range only"
        )
    if found.missing:
        yield f"unfinished: {len(found.missing)} of the sweep's trials have no score"


def content(found: Findings) -> dict[str, Any]:
    """For other tools. Rows' own answers stay in the ledger."""
    return {
        "sweep": found.sweep,
        "models": list(found.models),
        "scores": [_score_content(each) for each in found.scores],
        "orders": [asdict(each) for each in found.orders],
        "pairs": [_pair_content(each) for each in found.pairs],
        "averages": {model: asdict(each) for model, each in found.averages.items()},
        "gini": {task: asdict(each) for task, each in found.inequalities.items()},
        "languages": [asdict(each) for each in found.drifts],
        "excluded": {task: [asdict(e) for e in rows] for task, rows in found.excluded.items()},
        "missing": [
            {"model": model, "task": task, "reason": why} for model, task, why in found.missing
        ],
        "warnings": list(warnings(found)),
    }


def _score_content(each: TaskScore) -> dict[str, Any]:
    plain = ("model", "task", "column", "category", "metric", "trial", "score", "n", "excluded")
    return {
        **{name: getattr(each, name) for name in plain},
        "low": each.interval.low,
        "high": each.interval.high,
        "figures": dict(each.figures),
        "facts": {name: each.facts[name] for name in FACTS if name in each.facts},
        "choices": None if each.choices is None else asdict(each.choices),
    }


def _pair_content(each: Any) -> dict[str, Any]:
    compared = each.paired.comparison._asdict()
    rest = asdict(each.paired)
    del rest["comparison"]
    return {"task": each.task, "first": each.first, "second": each.second, **compared, **rest}


FACTS = (
    *("engine", "engine_versions", "dtype", "replicas", "start_seconds", "model_commit"),
    *("signature", "prompts_from", "comparable", "prompts_template", "prompts_all"),
    *("requests", "retries", "rows_per_second", "rows_kept_from_before", "preflight", "seconds"),
)
"""Tags of a trial that say how its score was made."""


def write(found: Findings, folder: Path) -> list[Path]:
    """Raises UserError where the folder cannot be written."""
    made, warned = tables(found), list(warnings(found))
    files = {
        "cetvel.md": typeset.markdown(found.sweep, warned, made),
        "cetvel.tex": typeset.latex(found.sweep, warned, made),
        "cetvel.json": dumps(content(found)),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            draft = folder / f".{name}.part"
            draft.write_text(text, encoding="utf-8")
            draft.replace(folder / name)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(folder)) from error
    return [folder / name for name in files]


def _scores(found: Findings) -> Table:
    rows = tuple(
        (
            *(each.category, each.task, each.model, each.metric, number(each.score)),
            interval(*each.interval),
            str(each.n),
            str(each.excluded),
        )
        for each in sorted(found.scores, key=_place)
    )
    header = ("category", "task", "model", "metric", "score", "interval", "n", "excluded")
    notes = (
        "95% intervals over rows: Wilson's where rows are counted, else bootstrap of row scores;"
        " BLEU, no mean over rows, has none.",
    )
    return Table("Scores", header, rows, notes)


def _place(each: TaskScore) -> tuple[int, str]:
    return CATEGORIES.index(each.category), each.task


def _choices(found: Findings) -> Table:
    rows = []
    for each in sorted(found.scores, key=_place):
        seen = each.choices
        if seen is not None:
            option = DASH if seen.majority_option is None else LETTERS[seen.majority_option]
            answers = " ".join(f"{letter}:{times}" for letter, times in seen.answers.items())
            rows.append(
                (
                    *(each.task, each.model, number(each.score), number(seen.uniform)),
                    *(number(seen.majority), option, answers, str(seen.support.rows)),
                    f"{len(seen.excluded)} of {seen.released}",
                )
            )
    header = (
        *("task", "model", "accuracy", "guessing", "majority", "of", "answers", "rows"),
        "excluded",
    )
    notes = (
        "Guessing: the mean of 1/K over rows of K options. Majority: what always giving"
        " validation's commonest answer gets; a dash where the release has no validation rows.",
    )
    return Table("Choices", header, tuple(rows), notes)


def _figures(found: Findings) -> Table:
    rows = tuple(
        (each.task, each.model, name, number(value))
        for each in sorted(found.scores, key=_place)
        for name, value in sorted(each.figures.items())
        if name != each.metric
    )
    return Table("Other figures", ("task", "model", "figure", "value"), rows)


def _subjects(found: Findings) -> Table:
    rows = tuple(
        (
            *(each.task, subject, each.model, number(seen.accuracy), interval(*seen.interval)),
            f"{seen.right}/{seen.rows}",
        )
        for each in found.scores
        if each.choices is not None
        for subject, seen in each.choices.subjects.items()
    )
    header = ("task", "subject", "model", "accuracy", "interval", "right")
    return Table("By subject", header, rows)


def _orders(found: Findings) -> Table:
    rows = tuple(
        (
            *(each.task, each.model, str(each.rows), number(each.stability)),
            " ".join(f"{letter}:{times}" for letter, times in each.letters.items()),
        )
        for each in found.orders
    )
    header = ("task", "model", "validation rows", "stable, %", "letters chosen")
    notes = ("A row is stable when every cyclic order of its options gets the same option.",)
    return Table("Order of the options", header, rows, notes)


def _pairs(found: Findings) -> Table:
    rows = tuple(
        (
            *(each.task, each.first, each.second, signed(each.paired.comparison.difference)),
            interval(each.paired.comparison.low, each.paired.comparison.high),
            p_value(each.paired.p_permutation),
            f"{each.paired.only_a}/{each.paired.only_b} of {each.paired.rows}",
        )
        for each in found.pairs
    )
    header = ("task", "first", "second", "difference", "interval", "p", "only first/second")
    notes = ("The same rows: paired bootstrap and paired permutation. p is of one comparison.",)
    return Table("Models compared", header, rows, notes)


def _standings(found: Findings) -> Iterator[Table]:
    """The published models and the sweep's, overall and in each category that it asks."""
    published = cetvel()
    ours = {
        model: {each.column: each.score for each in found.scores if each.model == model}
        for model in found.models
    }
    asked = {each.category for each in found.scores}
    for name, rows in standings(published, TASKS, ours).items():
        if name == "overall" or name in asked:
            columns = list(rows[0].scores)
            yield Table(
                f"Beside the published models: {CATEGORY_NAMES.get(name, name)}",
                ("model", "average", *columns),
                tuple(_standing(each, columns) for each in rows),
                (_STANDING,) if name == "overall" else (),
                frozenset(n for n, each in enumerate(rows) if each.published),
            )


_STANDING = (
    "A category's average needs all its columns, the overall one all categories. Unlike metrics are"
    " averaged here, as the paper does: no measure of proficiency."
)


def _standing(each: Standing, columns: Sequence[str]) -> tuple[str, ...]:
    scores = (each.scores.get(name, math.nan) for name in columns)
    return (each.model, number(each.average), *map(number, scores))


def _gini(found: Findings) -> Table:
    rows = tuple(
        (
            task,
            number(100 * each.value),
            interval(100 * each.interval.low, 100 * each.interval.high),
        )
        for task, each in found.inequalities.items()
    )
    notes = ("x 100, over the sweep's models; scale-free, so scores near 0 look far apart.",)
    return Table("Gini", ("task", "Gini", "interval over models"), rows, notes)


def _languages(found: Findings) -> Table:
    rows = tuple(
        (
            *(each.task, each.model, str(each.found.rows), str(each.found.abstained)),
            " ".join(f"{name}:{times}" for name, times in each.found.predicted.items()) or DASH,
            DASH if each.found.confirmed is None else str(each.found.confirmed),
        )
        for each in found.drifts
    )
    header = ("task", "model", "texts", "no label", "predicted", "confirmed drift")
    notes = (
        "Labels of an identifier that abstains below a threshold chosen on the references. They say"
        " what to look at; drift is what a person has confirmed.",
    )
    return Table("Languages of what was written", header, rows, notes)


def _excluded(found: Findings) -> Table:
    rows = tuple(
        (task, str(each.index), each.content, each.reason)
        for task, excluded in found.excluded.items()
        for each in excluded
    )
    return Table("Rows left out", ("task", "row", "content", "why"), rows)


def _missing(found: Findings) -> Table:
    return Table("Without a score", ("model", "task", "why"), found.missing)


def _origins(found: Findings) -> Table:
    names: Sequence[str] = ("engine", "engine_versions", "prompts_from", "prompts_all", "signature")
    rows = tuple(
        (each.task, each.model, *(each.facts.get(name, DASH) for name in names), each.trial)
        for each in found.scores
    )
    return Table("How the scores were made", ("task", "model", *names, "trial"), rows)

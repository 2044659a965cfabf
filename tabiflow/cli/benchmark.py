"""What `audit` says about the generative benchmark: tables for people, values for tools."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tabiflow.cli.common import table
from tabiflow.generative import asking, checkout, choices, summary
from tabiflow.generative.differences import Compared, compare
from tabiflow.generative.prompts import LETTERS, Item
from tabiflow.generative.published import derivations, inequalities
from tabiflow.generative.templates import TEMPLATES
from tabiflow.published.cetvel import cetvel
from tabiflow.registry.cetvel import TASKS, known_prompts
from tabiflow.spec.evaluation import Evaluation


def checkout_sections(folder: Path, content: dict[str, Any], tables: list[Any]) -> None:
    """Reads a checkout of the benchmark's repository; runs nothing of it."""
    found = checkout.read(folder)
    compared = compare(TASKS, TEMPLATES, found, known_prompts())
    published = _published()
    content["cetvel"] = {
        "checkout": {"folder": str(folder), "fingerprint": found.fingerprint},
        "faults": list(found.faults),
        "prompts": [
            {
                "task": each.task,
                "origin": each.template.origin,
                "comparable": each.template.comparable,
                "hash": each.template.hash,
            }
            for each in compared.taken
        ],
        "differences": [asdict(each) for each in compared.differences],
        "not_taken_over": [asdict(each) for each in compared.left],
        "not_in_the_paper": list(compared.extra),
        "published": published,
    }
    tables += [*_compared_tables(compared), *_published_tables(published)]
    tables += [f"fault: {each}" for each in found.faults]
    if compared.extra:
        tables.append(f"in the checkout, not in the paper's tables: {', '.join(compared.extra)}")
    tables.append(f"checkout {found.fingerprint}: {len(found.tasks)} tasks read, nothing run")


def evaluation_sections(file: Path, content: dict[str, Any], tables: list[Any]) -> None:
    """What a sweep of generative models asks of them; asks nobody."""
    evaluation = Evaluation.read(file)
    found = [_asked_content(each) for each in asking.asked(evaluation)]
    content |= {"sweep": evaluation.written.name, "tasks": found}
    rows = [
        (
            each["task"],
            each["answered"],
            each["metric"],
            f"{each['scored']} of {each['rows']}",
            str(each["validation"]),
            _figure(each["uniform"]),
            _figure(each["majority_accuracy"]),
            each["prompt"],
            "yes" if each["comparable"] else "no",
        )
        for each in found
    ]
    header = ("task", "answered by", "metric", "rows", "validation", "guessing", "commonest")
    tables += [table(evaluation.written.name, (*header, "prompt", "comparable"), rows), ""]
    lines = [
        (each["task"], str(e["index"]), e["content"], e["reason"])
        for each in found
        for e in each["excluded"]
    ]
    if lines:
        tables += [table("Excluded", ("task", "row", "content", "why"), lines), ""]
    if not all(each["comparable"] for each in found):
        tables.append(
            "comparable: a checkout's prompt on all rows of the release; else no score is"
        )


def _asked_content(asked: asking.Asked) -> dict[str, Any]:
    choosing = asked.task.answered != "text"
    test = asked.test.scored
    option = summary.majority_option(asked.validation.scored)
    return {
        "task": asked.name,
        "category": asked.task.category,
        "answered": asked.task.answered,
        "metric": asked.task.metric,
        "where": asked.where,
        "commit": asked.commit,
        "rows": asked.test.rows,
        "scored": len(test),
        "excluded": [asdict(each) for each in asked.test.excluded],
        "validation": len(asked.validation.scored),
        "orders": sum(len(each) for each in asked.orders),
        "uniform": summary.uniform(test) if choosing else math.nan,
        "majority_accuracy": _majority(option, test),
        "prompt": asked.template.hash,
        "prompts": asked.test.hash,
        "comparable": asked.comparable,
        "not_taken_over": [asdict(each) for each in asked.left],
    }


def _majority(option: int | None, items: Sequence[Item]) -> float:
    return math.nan if option is None else summary.share_of(option, items)


def _figure(value: float, decimals: int = 2) -> str:
    return "–" if math.isnan(value) else f"{value:.{decimals}f}"


def choices_sections(
    file: Path,
    validation: Path | None,
    exclude_invalid: bool,
    content: dict[str, Any],
    tables: list[Any],
) -> None:
    """Looks at a multiple-choice set before a model does."""
    seen = choices.read(validation) if validation else None
    chooser = choices.settled(seen, exclude_invalid=exclude_invalid).scored if seen else ()
    read = choices.read(file, seen=seen)
    found = choices.settled(read, exclude_invalid=exclude_invalid)
    option = summary.majority_option(chooser)
    golds = summary.histogram([item.gold for item in found.scored], max(read.choices))
    content["choices"] = {
        "file": str(file),
        "rows": found.rows,
        "scored": len(found.scored),
        "excluded": [asdict(each) for each in found.excluded],
        "options": {str(count): rows for count, rows in sorted(read.choices.items())},
        "answers": golds,
        "subjects": dict(sorted(Counter(item.subject for item in found.scored).items())),
        "uniform": summary.uniform(found.scored),
        "majority": None if option is None else LETTERS[option],
        "majority_accuracy": _majority(option, found.scored),
        "reordered": [list(each) for each in read.reordered],
        "repeated_options": list(read.repeated),
        "prompt": choices.LETTER_TEMPLATE.hash,
        "prompts": found.hash,
    }
    tables += _choices_tables(content["choices"])


def _choices_tables(found: dict[str, Any]) -> Iterator[Any]:
    if found["excluded"]:
        rows = [(str(e["index"]), e["content"], e["reason"]) for e in found["excluded"]]
        yield table("Excluded", ("row", "content", "why"), rows)
        yield ""
    counts = [(what, key, str(n)) for what in _COUNTED for key, n in found[what].items()]
    yield table("", ("of", "", "rows"), counts)
    yield f"\n{found['scored']} of {found['rows']} rows can be scored"
    yield f"guessing is expected to score {found['uniform']:.2f}"
    if found["majority"]:
        share = found["majority_accuracy"]
        yield f"always {found['majority']}, validation's commonest, scores {share:.2f}"
    for first, other in found["reordered"]:
        yield f"rows {first} and {other} differ in the order of their choices only"
    if found["repeated_options"]:
        yield f"two options are the same in rows {', '.join(map(str, found['repeated_options']))}"
    yield "paraphrases are not looked for"
    yield f"prompt {found['prompt']}, all prompts {found['prompts']}"


_COUNTED = ("options", "answers", "subjects")


def _compared_tables(compared: Compared) -> Iterator[Any]:
    header = ("task", "what", "paper", "tabiflow", "checkout")
    rows = [(e.task, e.what, e.paper, e.ours, e.checkout) for e in compared.differences]
    yield table("Differences", header, rows)
    yield ""
    left = [(e.task, e.key, e.where, e.reason, e.instead) for e in compared.left]
    yield table("Not taken over", ("task", "key", "where", "why", "instead"), left)
    yield ""


def _published() -> dict[str, Any]:
    published = cetvel()
    return {
        "models": len(published.models),
        "averages": [
            {**asdict(each), "reproduces": each.reproduces}
            for each in derivations(published, TASKS)
        ],
        "gini": {
            name: {
                "value": each.value,
                "low": each.interval.low,
                "high": each.interval.high,
                "printed": published.printed_gini.get(name, math.nan),
            }
            for name, each in inequalities(published).items()
        },
        "doubts": list(published.doubts),
    }


def _published_tables(found: dict[str, Any]) -> Iterator[Any]:
    rows = [
        (
            each["source"],
            each["column"],
            each["rule"],
            f"{each['worst']:.3f} ({each['worst_model']})",
            "reproduces"
            if each["reproduces"]
            else f"does not: {each['beyond']} of {each['models']} models",
        )
        for each in found["averages"]
    ]
    header = ("table", "average", "rule", "largest difference", "")
    yield table("The paper's averages from its own columns", header, rows)
    yield ""
    gini = [
        (name, *(_figure(each[key], 4) for key in ("value", "low", "high", "printed")))
        for name, each in found["gini"].items()
    ]
    title = f"Gini of the published {found['models']} models, with its 95% interval over models"
    yield table(title, ("column", "Gini", "low", "high", "printed"), gini)
    yield ""

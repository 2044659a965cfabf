"""Measures of a data set, by itself or under a model's tokenizer -> findings. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from tabiflow.audit.contents import Contents, Shared, SplitContents
from tabiflow.audit.finding import Finding, note, serious, warning
from tabiflow.audit.lengths import Lengths, Measured
from tabiflow.rows import NO_LABEL
from tabiflow.spec import Dataset

MOST = 50.0
"""Per cent of a split's rows from which a shared text is the rule rather than an accident."""
BY_RULE = 5.0
"""Per cent of the rows that a 95th percentile may cut."""
UNKNOWN_TOKENS = 1.0
"""Per cent of unknown tokens that a tokenizer made for the language stays below."""


def of_row(dataset: Dataset) -> Iterator[Finding]:
    """Known without a look at its files."""
    if dataset.deviation:
        message = f"its splits depart from the rule of TabiBERT 4.2: {dataset.deviation}"
        advice = "kept as released, so that scores compare with the published ones"
        yield warning("split-rule-deviation", dataset.name, message, advice)
    if dataset.redistribution and not dataset.redistribution.startswith("Yes"):
        message = f"redistribution: {dataset.redistribution}; licence: {dataset.licence}"
        advice = "ask the provider before passing the rows on"
        yield note("licence-limits", dataset.name, message, advice)


def of_dataset(dataset: Dataset, found: Contents, *, limited: bool) -> Iterator[Finding]:
    """`limited`: the sweep takes part of the rows only, so that sizes say nothing."""
    yield from _labels(dataset, found.splits)
    yield from _constant(dataset, found.splits)
    yield from _unlearnable(dataset, found.splits)
    for shared in found.shared:
        yield _across(dataset, shared) if shared.what == "row" else _part(dataset, shared)
    yield from _rows(dataset, found)
    yield from _excluded(dataset, found.splits)
    if not limited:
        yield from _sizes(dataset, found.splits)


Splits = Mapping[str, SplitContents]


def _labels(dataset: Dataset, splits: Splits) -> Iterator[Finding]:
    foreign = {name: dict(each.foreign) for name, each in splits.items() if each.foreign}
    if foreign:
        names = sorted({label for each in foreign.values() for label in each})
        where = _counts({name: sum(each.values()) for name, each in foreign.items()})
        message = f"{_listed(names)}: not among the declared labels; in {where}"
        advice = "mend the rows, or declare the label"
        yield serious("label-outside-schema", dataset.name, message, advice, numbers=foreign)
    outside = _some(splits, "outside")
    if outside:
        message = f"scores outside {list(dataset.label_range or ())}: {_counts(outside)}"
        advice = "mend the rows, or widen `label_range`"
        yield serious("score-outside-range", dataset.name, message, advice, numbers=outside)


def _constant(dataset: Dataset, splits: Splits) -> Iterator[Finding]:
    advice = "it can teach or tell nothing; look for a lost column or for rows cut in sorted order"
    for name, each in splits.items():
        if each.constant:
            message = f"every row of {name} asks for the same: {each.constant[:60]}"
            numbers = {"split": name, "rows": each.rows}
            yield serious("constant-label", dataset.name, message, advice, numbers=numbers)


def _unlearnable(dataset: Dataset, splits: Splits) -> Iterator[Finding]:
    trained = splits["train"].classes if "train" in splits else {}
    lacking = {
        label: sum(each.classes[label] for each in splits.values())
        for label, count in trained.items()
        if not count and any(each.classes[label] for each in splits.values())
    }
    if lacking:
        message = f"{_listed(lacking)}: in validation or test, but not in train"
        advice = "no model can learn it; a macro average counts it as a zero"
        yield warning("class-not-in-train", dataset.name, message, advice, numbers=lacking)


def _across(dataset: Dataset, shared: Shared) -> Finding:
    found = serious if shared.rows else warning
    message = f"{_overlap(shared)} stand in {shared.earlier} too{_nearly(shared)}"
    advice = "leave them out of one split: what was trained on is no test"
    code = "duplicate-across-splits"
    return found(code, dataset.name, message, advice, numbers=_numbers(shared))


def _part(dataset: Dataset, shared: Shared) -> Finding:
    most = 100 * shared.rows / shared.of >= MOST
    found = serious if most else warning if shared.rows else note
    message = (
        f"{_overlap(shared)} have their {shared.what} in {shared.earlier} too "
        f"({shared.texts} distinct){_nearly(shared)}"
    )
    advice = f"cut by {shared.what}, or say beside the score that its texts were trained on"
    code = f"shared-{shared.what}"
    return found(code, dataset.name, message, advice, numbers=_numbers(shared))


def _overlap(shared: Shared) -> str:
    share = 100 * shared.rows / shared.of
    return f"{shared.rows} of {shared.of} rows of {shared.later} ({share:.1f}%)"


def _nearly(shared: Shared) -> str:
    more = shared.nearly - shared.rows
    return f", {more} more but for case, punctuation or white space" if more else ""


def _numbers(shared: Shared) -> dict[str, int | str]:
    return {name: value for name, value in vars(shared).items() if name != "what"}


def _rows(dataset: Dataset, found: Contents) -> Iterator[Finding]:
    splits, name = found.splits, dataset.name
    if counts := _some(splits, "empty"):
        message = f"rows with an empty text: {_counts(counts)}"
        advice = "leave them out; a model can only guess"
        yield warning("empty-text", name, message, advice, numbers=counts)
    if counts := _some(splits, "repeated"):
        message = f"rows that repeat another of their split: {_counts(counts)}"
        advice = "keep one of each; a repeated row counts twice"
        yield warning("duplicate-within-split", name, message, advice, numbers=counts)
    if counts := _some(splits, "only_nearly_repeated"):
        message = f"rows that repeat another but for case or punctuation: {_counts(counts)}"
        advice = "look whether they are meant as different rows"
        yield note("near-duplicate-within-split", name, message, advice, numbers=counts)
    if counts := _some(splits, "misplaced"):
        message = f"answers that do not stand at their offset: {_counts(counts)}"
        advice = "recount answer_start in characters (code points) from 0"
        yield warning("answer-misplaced", name, message, advice, numbers=counts)
    if counts := _some(splits, "multiword"):
        message = f"multi-word ranges (tag `_`) beside their words: {_counts(counts)}"
        advice = "kept as released, so that each such word is scored more than once"
        yield note("multiword-rows", name, message, advice, numbers=counts)
    if torn := found.contradictions.texts:
        message = f"{torn} texts stand in {found.contradictions.rows} rows with different answers"
        advice = "look at them: only one answer can be scored as right"
        yield warning("label-noise", name, message, advice, numbers=vars(found.contradictions))


def _excluded(dataset: Dataset, splits: Splits) -> Iterator[Finding]:
    excluded = {name: dict(each.excluded) for name, each in splits.items() if each.excluded}
    if excluded:
        told = "; ".join(
            f"{name} " + ", ".join(f"{count} with {reason}" for reason, count in each.items())
            for name, each in excluded.items()
        )
        expected = {reason for each in excluded.values() for reason in each} == {NO_LABEL}
        message, advice = f"rows left out: {told}", "scores are of the other rows"
        found = note if expected else warning
        yield found("rows-excluded", dataset.name, message, advice, numbers=excluded)


def _sizes(dataset: Dataset, splits: Splits) -> Iterator[Finding]:
    differing = {
        name: {"found": each.whole, "published": dataset.sizes[name]}
        for name, each in splits.items()
        if dataset.sizes.get(name, each.whole) != each.whole
    }
    if differing:
        told = ", ".join(
            f"{name} {each['found']} for {each['published']}" for name, each in differing.items()
        )
        message, advice = f"rows for published rows: {told}", "scores are not of the published rows"
        yield warning("size-differs", dataset.name, message, advice, numbers=differing)


def of_lengths(dataset: Dataset, model: str, found: Measured) -> Iterator[Finding]:
    tokens = found.tokens
    if tokens.unknown_rate > UNKNOWN_TOKENS:
        message = f"{tokens.unknown_rate:.1f}% of the tokens are unknown to the tokenizer"
        advice = "look at the casing and the characters that it knows"
        numbers = {"unknown": tokens.unknown, "tokens": tokens.tokens}
        yield warning("unknown-tokens", dataset.name, message, advice, model, numbers)
    for each in found.lengths:
        yield from _cut(dataset, model, each)
        yield from _ceiling(dataset, model, each)


def _cut(dataset: Dataset, model: str, found: Lengths) -> Iterator[Finding]:
    cut = {name: each for name, each in found.splits.items() if each.cut}
    if not cut:
        return
    told = ", ".join(
        f"{name} {each.cut} of {each.of} ({each.share:.2f}%, longest {each.longest})"
        for name, each in cut.items()
    )
    what = "rows" if found.sequence == "text" else f"{found.sequence}s"
    message = f"{what} longer than max_length {found.max_length}: {told}"
    numbers = {
        "sequence": found.sequence,
        "max_length": found.max_length,
        "rows": {name: each.cut for name, each in found.splits.items()},
        "longest": {name: each.longest for name, each in found.splits.items()},
    }
    if found.by_rule and all(each.share <= BY_RULE for each in cut.values()):
        advice = "what the 95th percentile leaves out; a fixed `max_length` changes it"
        yield note("rows-cut", dataset.name, message, advice, model, numbers)
    else:
        advice = "take a model with more context or a longer `max_length`, or say so by the score"
        yield warning("rows-cut", dataset.name, message, advice, model, numbers)


def _ceiling(dataset: Dataset, model: str, found: Lengths) -> Iterator[Finding]:
    lost = {name: each for name, each in found.ceilings.items() if each.unseen}
    if not lost:
        return
    what = "answers" if dataset.task == "qa" else "words"
    told = ", ".join(
        f"{name} {each.score:.2f} ({each.unseen} of {each.of} {what})"
        for name, each in lost.items()
    )
    message = (
        f"{what} out of reach at max_length {found.max_length}; a perfect model would score {told}"
    )
    numbers = {
        "max_length": found.max_length,
        "ceiling": {name: each.score for name, each in found.ceilings.items()},
        "unseen": {name: each.unseen for name, each in found.ceilings.items()},
    }
    advice = "hold scores against the ceiling, not against 100"
    yield warning("ceiling", dataset.name, message, advice, model, numbers)


def _some(splits: Splits, what: str) -> dict[str, int]:
    return {name: getattr(each, what) for name, each in splits.items() if getattr(each, what)}


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _listed(names: Iterable[str]) -> str:
    every = [f"`{name}`" for name in names]
    shown = ", ".join(every[:5])
    return shown if len(every) <= 5 else f"{shown} and {len(every) - 5} more"

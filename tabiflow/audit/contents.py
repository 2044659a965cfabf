"""A data set's splits -> what stands in them: rows, classes, duplicates, contradictions. Pure."""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import pyarrow as pa

from tabiflow.audit import texts
from tabiflow.data import Examined
from tabiflow.rows import Canonical
from tabiflow.spec import Dataset

MULTIWORD = "_"
"""The tag of a Universal Dependencies range whose words follow as rows of their own."""


@dataclass(frozen=True)
class SplitContents:
    """One split. Counts are of rows that a trial reads, unless they say otherwise."""

    rows: int
    whole: int
    """Before the sweep's limit."""
    excluded: Mapping[str, int]
    """Reason -> rows left out of `whole`."""
    classes: Mapping[str, int]
    """Label -> rows, or words in tagging; the whole schema, so that a 0 is seen."""
    constant: str
    """The one answer of all rows, if there is but one."""
    foreign: Mapping[str, int]
    """Labels that the row of the data set does not declare."""
    outside: int
    """Scores outside the declared range."""
    empty: int
    repeated: int
    """Rows whose input stands in an earlier row of the split."""
    only_nearly_repeated: int
    """Rows that repeat an earlier one but for case, punctuation or white space."""
    multiword: int
    misplaced: int
    """QA: first answers that do not stand at their offset."""


@dataclass(frozen=True)
class Shared:
    """What two splits have in common."""

    what: str
    """`row`, or the column whose texts are shared."""
    earlier: str
    later: str
    rows: int
    """Rows of the later split whose text stands in the earlier one."""
    nearly: int
    """The same when case, punctuation and white space are folded; includes `rows`."""
    of: int
    """All rows of the later split."""
    texts: int
    """Distinct shared texts, as written."""


@dataclass(frozen=True)
class Contradictions:
    """Equal inputs (folded) of which different answers are asked."""

    texts: int = 0
    rows: int = 0


@dataclass(frozen=True)
class Contents:
    splits: Mapping[str, SplitContents]
    shared: tuple[Shared, ...]
    contradictions: Contradictions


def contents(dataset: Dataset, found: Examined) -> Contents:
    exact = {name: texts.inputs(each.rows, dataset.task) for name, each in found.splits.items()}
    near = {name: texts.folded_inputs(each) for name, each in exact.items()}
    return Contents(
        splits={
            name: _split(dataset, found, name, _repeats(exact[name]), _repeats(near[name]))
            for name in found.splits
        },
        shared=(*_shared("row", exact, near), *_shared_parts(dataset, found)),
        contradictions=_contradictions(dataset, found, near),
    )


def _split(
    dataset: Dataset, found: Examined, name: str, repeated: int, repeated_when_folded: int
) -> SplitContents:
    split: Canonical = found.splits[name]
    rows, task = split.rows, dataset.task
    counts = Counter(texts.labels(rows, task))
    return SplitContents(
        rows=rows.num_rows,
        whole=found.whole[name],
        excluded=dict(split.excluded),
        classes={label: counts[label] for label in found.schema.labels},
        constant=_constant(texts.labels(rows, task) or texts.answers(rows, task)),
        foreign=_foreign(dataset, counts),
        outside=_outside(dataset, rows),
        empty=texts.empty(rows, task),
        repeated=repeated,
        only_nearly_repeated=repeated_when_folded - repeated,
        # Among bundles of features the same sign says that a word has none.
        multiword=counts[MULTIWORD] if task == "pos" and not dataset.bundles else 0,
        misplaced=_misplaced(rows) if task == "qa" else 0,
    )


def _repeats(values: Sequence[Hashable]) -> int:
    return len(values) - len(set(values))


def _constant(answers: Sequence[Hashable]) -> str:
    return str(answers[0]) if len(answers) > 1 and len(set(answers)) == 1 else ""


def _foreign(dataset: Dataset, counts: Mapping[str, int]) -> dict[str, int]:
    declared = {str(label) for label in dataset.labels}
    if not declared:
        return {}
    return {label: count for label, count in sorted(counts.items()) if label not in declared}


def _outside(dataset: Dataset, rows: pa.Table) -> int:
    if dataset.task != "sts":
        return 0
    low, high = dataset.label_range or (-math.inf, math.inf)
    return sum(not low <= score <= high for score in rows["score"].to_pylist())


def _misplaced(rows: pa.Table) -> int:
    firsts = (
        (context, each["text"][0], each["answer_start"][0])
        for context, each in zip(
            rows["context"].to_pylist(), rows["answers"].to_pylist(), strict=True
        )
    )
    return sum(start < 0 or not context.startswith(text, start) for context, text, start in firsts)


def _shared(
    what: str,
    exact: Mapping[str, Sequence[Hashable]],
    near: Mapping[str, Sequence[Hashable]],
) -> Iterator[Shared]:
    for earlier, later in combinations(exact, 2):
        common = set(exact[earlier]) & set(exact[later])
        alike = set(near[earlier]) & set(near[later])
        if alike:
            yield Shared(
                what=what,
                earlier=earlier,
                later=later,
                rows=sum(value in common for value in exact[later]),
                nearly=sum(value in alike for value in near[later]),
                of=len(exact[later]),
                texts=len(common),
            )


def _shared_parts(dataset: Dataset, found: Examined) -> Iterator[Shared]:
    for part in texts.PARTS.get(dataset.task, ()):
        exact = {name: texts.column(each.rows, part) for name, each in found.splits.items()}
        near = {name: list(map(texts.folded, each)) for name, each in exact.items()}
        yield from _shared(part, exact, near)


def _contradictions(
    dataset: Dataset, found: Examined, near: Mapping[str, Sequence[Hashable]]
) -> Contradictions:
    """Over all splits at once. Retrieval has none: a query may have several texts to be found."""
    if dataset.task == "retrieval":
        return Contradictions()
    asked: dict[Hashable, list[Hashable]] = defaultdict(list)
    for name, keys in near.items():
        answers = texts.answers(found.splits[name].rows, dataset.task)
        for key, answer in zip(keys, answers, strict=True):
            asked[key].append(answer)
    torn = [each for each in asked.values() if len(set(each)) > 1]
    return Contradictions(len(torn), sum(map(len, torn)))

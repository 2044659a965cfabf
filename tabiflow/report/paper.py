"""Tables 5 to 15 in the TabiBERT paper's layout, published rows above the sweep's own.

A table holds the data sets that the sweep holds, no others: where that is not the whole of a
published table, its averages are taken again over the same data sets.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tabiflow.published import Published, Results, tabibench
from tabiflow.report.capped import change_table, cut_table
from tabiflow.report.content import Report
from tabiflow.report.scores import Score
from tabiflow.report.tables import DASH, Row, Table, number, signed, spread
from tabiflow.statistics import mean, weighted_mean

NAMES: Mapping[str, str] = {
    "text_classification": "Text classification",
    "token_classification": "Token classification",
    "sts": "Semantic textual similarity",
    "nli": "Natural language inference",
    "qa": "Question answering",
    "academic_understanding": "Academic understanding",
    "information_retrieval": "Information retrieval",
    "code_retrieval": "Code retrieval",
}
PUBLISHED = " (published)"
PARAMETERS = "# of params, M"
AS_PUBLISHED = " (by the published metric)"


@dataclass(frozen=True)
class _Part:
    """A category of the sweep beside its published table."""

    category: str
    scores: Mapping[tuple[str, str], Score]
    """By model and data set."""
    results: Results | None
    """None where none of the data sets is published."""

    @property
    def datasets(self) -> list[str]:
        """In the paper's order, then the sweep's."""
        mine = list(dict.fromkeys(dataset for _, dataset in self.scores))
        order = list(self.results.test_sizes) if self.results else []
        return [each for each in order if each in mine] + [
            each for each in mine if each not in order
        ]

    @property
    def whole(self) -> bool:
        """Whether the sweep holds exactly the published data sets."""
        return self.results is not None and set(self.results.test_sizes) == set(self.datasets)

    def published(self, model: str) -> list[float]:
        scores = self.results.scores.get(model, {}) if self.results else {}
        return [scores.get(each, math.nan) for each in self.datasets]

    def published_average(self, model: str) -> float:
        """NaN where a data set is not published: its average would be of other data."""
        if self.results is not None and self.whole:
            return self.results.averages.get(model, math.nan)
        scores = self.published(model)
        if self.results is None or any(map(math.isnan, scores)):
            return math.nan
        return weighted_mean(scores, [self.results.test_sizes[each] for each in self.datasets])

    @property
    def metric(self) -> str:
        found = dict.fromkeys(each.metric for each in self.scores.values())
        return self.results.metric if self.results else ", ".join(found)

    @property
    def title(self) -> str:
        name = NAMES.get(self.category, self.category)
        return f"{self.results.source}: {name}" if self.results else name


def paper_tables(report: Report) -> list[Table]:
    """The overview, a table a category, and what a changed protocol did."""
    published = tabibench()
    parts = [
        _part(report, category, published)
        for category in dict.fromkeys(each.category for each in report.scores)
    ]
    return [
        _overview(report, parts, published),
        *(_results(report, part, published) for part in parts),
        *([cut_table(report, published)] if report.cuts else []),
        *([change_table(report, published)] if report.changes else []),
    ]


def _part(report: Report, category: str, published: Published) -> _Part:
    mine = [each for each in report.scores if each.category == category]
    results = published.results_of(category)
    known = results is not None and any(each.dataset in results.test_sizes for each in mine)
    scores = {(each.model, each.dataset): each for each in mine}
    return _Part(category, scores, results if known else None)


def _overview(report: Report, parts: Sequence[_Part], published: Published) -> Table:
    parameters = {model: f"{n:g}" for model, n in published.overview.parameters_millions.items()}
    compared = [model for model in published.models if _comparable(model, parts)]
    theirs = [
        (report.title(model) + PUBLISHED, parameters[model], *_published_overview(model, parts))
        for model in compared
    ]
    ours = [
        (row.title, _millions(row.parameters), *_our_overview(report, row.name, parts))
        for row in report.models
    ]
    margins = list(_margins(report, parts, published))
    notes = [LEGEND]
    if margins:
        notes.append(MARGIN)
    if compared:
        notes.append(f"Published: {published.paper.title}, {published.overview.source}.")
    taken_again = [part.category for part in parts if part.results and not part.whole]
    if compared and taken_again:
        notes.append(
            "Published averages were taken again over the data sets of this sweep in "
            + ", ".join(taken_again)
            + "."
        )
    header = ("Model", PARAMETERS, *(part.title.split(": ")[-1] for part in parts))
    metrics = ("Metric", "", *(part.metric for part in parts), "")
    return _marked(
        "Table 5: Averages of the categories",
        (*header, "Total avg."),
        metrics,
        theirs,
        ours,
        notes,
        margins,
    )


LEGEND = "± is the deviation over seeds. The best of this sweep is bold."
MARGIN = (
    "Δ: above the best published score of another Turkish model in each category; of the mean,"
    " above the mean of these."
)


def _margins(report: Report, parts: Sequence[_Part], published: Published) -> Iterable[Row]:
    """The last rows of Table 5, then the same margin for each model of this sweep."""
    subject = published.paper.introduces
    if not _comparable(subject, parts):
        return
    previous = _previous_best(subject, parts, published)
    scores = [part.published_average(subject) for part in parts]
    yield "Previous best (Turkish)" + PUBLISHED, "", *_with_mean(previous, number)
    yield f"Δ {report.title(subject)}{PUBLISHED}", "", *_with_mean(_minus(scores, previous), signed)
    for row in report.models:
        cells = {each.category: each.test for each in report.categories if each.model == row.name}
        scores = [cells.get(part.category, math.nan) for part in parts]
        margins = _minus(scores, _previous_best(row.name, parts, published))
        if not all(map(math.isnan, margins)):
            yield f"Δ {row.title}", "", *_with_mean(margins, signed)


def _previous_best(model: str, parts: Sequence[_Part], published: Published) -> list[float]:
    """By category, of the published Turkish models other than this one."""
    others = [each for each in published.turkish if each != model]
    return [max(part.published_average(each) for each in others) for part in parts]


def _minus(scores: Sequence[float], previous: Sequence[float]) -> list[float]:
    return [score - best for score, best in zip(scores, previous, strict=True)]


def _with_mean(values: Sequence[float], shown: Callable[[float], str]) -> list[str]:
    return [shown(each) for each in (*values, mean(values))]


def _comparable(model: str, parts: Sequence[_Part]) -> bool:
    return any(not math.isnan(part.published_average(model)) for part in parts)


def _published_overview(model: str, parts: Sequence[_Part]) -> list[str]:
    return _with_mean([part.published_average(model) for part in parts], number)


def _our_overview(report: Report, model: str, parts: Sequence[_Part]) -> list[str]:
    cells = {each.category: each for each in report.categories if each.model == model}
    averages = [
        spread(cells[part.category].test, cells[part.category].deviation)
        if part.category in cells
        else DASH
        for part in parts
    ]
    total = next(each for each in report.averages if each.model == model)
    return [*averages, spread(total.test, total.deviation)]


def _results(report: Report, part: _Part, published: Published) -> Table:
    shown = [model for model in published.models if not all(map(math.isnan, part.published(model)))]
    theirs = [
        (
            report.title(model) + PUBLISHED,
            *(number(each) for each in (*part.published(model), part.published_average(model))),
        )
        for model in shown
    ]
    ours = [row for each in report.models for row in _our_rows(report, each.name, part)]
    header = ("Model", *(report.title(each) for each in part.datasets), "Weighted avg.")
    sizes = ("Test size", *(_size(part, each) for each in part.datasets), "")
    title = f"{part.title} ({part.metric})"
    return _marked(title, header, sizes, theirs, ours, _notes(report, part, published))


def _our_rows(report: Report, model: str, part: _Part) -> Iterable[tuple[str, ...]]:
    title = report.title(model)
    scores = [part.scores.get((model, each)) for each in part.datasets]
    category = next(
        (e for e in report.categories if (e.model, e.category) == (model, part.category)), None
    )
    whole = DASH if category is None else spread(category.test, category.deviation)
    yield title, *(spread(e.test, e.deviation) if e else DASH for e in scores), whole
    known = [each for each in scores if each is not None]
    if any(each.beside for each in known):
        figures = [_beside(each) if each else math.nan for each in scores]
        unknown = any(map(math.isnan, figures))
        average = math.nan if unknown else weighted_mean(figures, [each.weight for each in known])
        yield title + AS_PUBLISHED, *(number(each) for each in (*figures, average))


def _beside(score: Score) -> float:
    """The figure that compares with the published one: the headline where nothing else does."""
    return next(iter(score.beside.values()), score.test)


def _notes(report: Report, part: _Part, published: Published) -> list[str]:
    models = {row.name for row in report.models} & set(published.models)
    told: dict[str, list[str]] = {}
    for dataset in part.datasets if part.results else ():
        for each in published.differences_of(dataset):
            if not each.models or models & set(each.models):
                told.setdefault(f"{_OURS[each.ours]} {each.note}", []).append(dataset)
    return [LEGEND, *(f"{', '.join(names)}: {note}" for note, names in told.items())]


_OURS = {
    "higher": "ours reads higher.",
    "lower": "ours is stricter.",
    "either": "not the same measure.",
}


def _size(part: _Part, dataset: str) -> str:
    """The weight in the average; not known before a model is confirmed, unless it is published."""
    weights = [each.weight for each in part.scores.values() if each.dataset == dataset]
    return f"{max(weights):,}" if max(weights) else DASH


def _millions(parameters: int | None) -> str:
    return DASH if parameters is None else f"{parameters / 1e6:.0f}"


def _marked(
    title: str,
    header: Sequence[str],
    second: Sequence[str],
    theirs: Sequence[Sequence[str]],
    ours: Sequence[Sequence[str]],
    notes: Sequence[str],
    margins: Sequence[Sequence[str]] = (),
) -> Table:
    """Bold is the best of ours in each column, where there are several."""
    first = 1 + len(theirs)
    strong = {
        (first + row, column)
        for column in range(len(header))
        # Not the number of parameters, which is no score.
        if header[column] not in ("Model", PARAMETERS)
        for row in _best([line[column] for line in ours], [line[0] for line in ours])
    }
    rows = tuple(map(tuple, (second, *theirs, *ours, *margins)))
    return Table(
        title,
        tuple(header),
        rows,
        tuple(notes),
        frozenset(place for place, row in enumerate(rows) if row[0].endswith(PUBLISHED)),
        frozenset(strong),
    )


def _best(texts: Sequence[str], names: Sequence[str]) -> list[int]:
    """Places of the highest headline as it is printed; none where only one is known."""
    known = {
        place: float(text.split()[0])
        for place, (text, name) in enumerate(zip(texts, names, strict=True))
        if text != DASH and not name.endswith(AS_PUBLISHED)
    }
    if len(known) < 2:
        return []
    return [place for place, value in known.items() if value == max(known.values())]

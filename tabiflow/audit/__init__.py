"""Data sets and tokenizers of a sweep, looked at before anything runs: measures and findings.

Needs no GPU and no weights. Reads the test splits through a path of its own that scores nothing.
What cannot be had or read is itself a finding.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tabiflow.audit import finding, judging
from tabiflow.audit.contents import Contents, contents
from tabiflow.audit.finding import SEVERITIES, Finding, Severity
from tabiflow.audit.lengths import Measured, Tokens, measured
from tabiflow.data import Examined, load_for_audit
from tabiflow.encoding import TextEncoder
from tabiflow.errors import CellError, EnvironmentFault
from tabiflow.protocol import Protocol
from tabiflow.registry import Grid
from tabiflow.spec import Choice, Dataset, Model, Space, Sweep

__all__ = ["SEVERITIES", "Audit", "Finding", "Severity", "audit"]


@dataclass(frozen=True)
class AuditedDataset:
    dataset: Dataset
    split_rule: str
    commit: str
    contents: Contents


@dataclass(frozen=True)
class AuditedCell:
    model: str
    dataset: Dataset
    measured: Measured


@dataclass(frozen=True)
class Fertility:
    """One model's tokenizer over the data sets that every model's was tried on."""

    model: str
    fertility: float
    """Tokens a word."""
    relative: float
    """To the first model of the sweep that could be had."""
    unknown_rate: float
    """Per cent of the tokens."""


@dataclass(frozen=True)
class Audit:
    sweep: str
    rows: tuple[Dataset, ...]
    """Of the registry or the sweep, also those whose files cannot be had."""
    datasets: tuple[AuditedDataset, ...]
    cells: tuple[AuditedCell, ...]
    models: tuple[Fertility, ...]
    findings: tuple[Finding, ...]
    """The serious ones first."""

    @property
    def counts(self) -> dict[Severity, int]:
        return {
            severity: sum(each.severity == severity for each in self.findings)
            for severity in SEVERITIES
        }


def audit(sweep: Sweep, grid: Grid) -> Audit:
    """Raises nothing for what is wrong with a data set or a model: that is what it finds."""
    found: list[Finding] = []
    encoders = _encoders(grid.models, found)
    datasets: list[AuditedDataset] = []
    cells: list[AuditedCell] = []
    limit = sweep.limit.model_dump(exclude_none=True)
    for dataset in grid.datasets:
        found += judging.of_row(dataset)
        examined = _examined(dataset, limit, found)
        if examined is None:
            continue
        inside = contents(dataset, examined)
        found += judging.of_dataset(dataset, inside, limited=bool(limit))
        rule, commit = examined.split_rule, examined.commit
        datasets.append(AuditedDataset(dataset, rule, commit, inside))
        settings = _settings(sweep, grid, dataset)
        cells += _cells(dataset, examined, encoders, settings, found)
    return Audit(
        sweep.name,
        grid.datasets,
        tuple(datasets),
        tuple(cells),
        tuple(_fertilities(cells)),
        finding.ordered(found),
    )


def _encoders(models: Sequence[Model], found: list[Finding]) -> dict[str, TextEncoder]:
    encoders = {}
    for model in models:
        try:
            encoders[model.name] = TextEncoder(model, weights=False, pauses=())
        except (CellError, EnvironmentFault) as error:
            found.append(finding.no_model(model.name, error))
    return encoders


def _examined(dataset: Dataset, limit: Mapping[str, int], found: list[Finding]) -> Examined | None:
    """None where there is not one split to be looked at."""
    try:
        examined = load_for_audit(dataset, limit)
    except (CellError, EnvironmentFault) as error:
        found.append(finding.no_data(dataset, error))
        return None
    found += finding.faults(dataset, examined.faults)
    return examined if examined.splits else None


def _settings(sweep: Sweep, grid: Grid, dataset: Dataset) -> list[Protocol]:
    """One protocol for each length that the data set's trials use."""
    lengths = _lengths(sweep, grid, dataset) or [sweep.protocol.max_length]
    return [sweep.protocol.model_copy(update={"max_length": length}) for length in lengths]


def _lengths(sweep: Sweep, grid: Grid, dataset: Dataset) -> list[Any]:
    """Of winners, before they are known: whatever their own sweep searches, unless it is set."""
    named = sweep.winners_of
    if named is not None and grid.origin is not None and "max_length" not in named.protocol:
        return _lengths(named.sweep, grid.origin, dataset)
    found = (
        length
        for datasets, space in grid.searches
        if dataset in datasets
        for length in _max_lengths(space, sweep.protocol.max_length)
    )
    return list(dict.fromkeys(found))


def _max_lengths(space: Space, otherwise: int | None) -> Sequence[Any]:
    """Of a range its ends."""
    dimension = space.dimensions.get("max_length")
    if dimension is None:
        return [otherwise]
    if isinstance(dimension, Choice):
        return dimension.values
    return [int(dimension.low), int(dimension.high)]


def _cells(
    dataset: Dataset,
    examined: Examined,
    encoders: Mapping[str, TextEncoder],
    settings: Sequence[Protocol],
    found: list[Finding],
) -> Iterator[AuditedCell]:
    # Lengths are the training split's; its fault is already found.
    for model, text in encoders.items() if "train" in examined.splits else ():
        try:
            cell = AuditedCell(model, dataset, measured(dataset, examined, text, settings))
        except CellError as error:
            found.append(finding.refused(dataset, model, error))
            continue
        found += judging.of_lengths(dataset, model, cell.measured)
        yield cell


def _fertilities(cells: Sequence[AuditedCell]) -> Iterator[Fertility]:
    by_model: dict[str, dict[str, Tokens]] = {}
    for cell in cells:
        by_model.setdefault(cell.model, {})[cell.dataset.name] = cell.measured.tokens
    common = set.intersection(*map(set, by_model.values())) if by_model else set()
    every = {
        model: _summed([by_dataset[name] for name in common])
        for model, by_dataset in by_model.items()
    }
    first = next((tokens.fertility for tokens in every.values()), math.nan) or math.nan
    for model, tokens in every.items():
        relative = tokens.fertility / first
        yield Fertility(model, tokens.fertility, relative, tokens.unknown_rate)


def _summed(tokens: Sequence[Tokens]) -> Tokens:
    return Tokens(
        tokens=sum(each.tokens for each in tokens),
        words=sum(each.words for each in tokens),
        unknown=sum(each.unknown for each in tokens),
    )

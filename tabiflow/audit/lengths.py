"""A data set under a model's tokenizer: how long its rows are, what the trials' length cuts off.

Needs the tokenizer only. The rows are encoded by the task itself, so that lengths are those that a
trial would see, special tokens and casing included.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tabiflow.audit import texts
from tabiflow.audit.ceiling import Ceiling, ceiling
from tabiflow.data import Examined
from tabiflow.encoding import Encoded, Ragged, TextEncoder
from tabiflow.protocol import Protocol
from tabiflow.spec import Dataset
from tabiflow.tasks import TASKS

UNCUT = 2**30
CUTTABLE = frozenset({"ner", "pos", "qa"})
"""Kinds of task whose answers lie in the text, so that a length may cut them off."""


@dataclass(frozen=True)
class SplitLengths:
    p95: float
    """Tokens, linear between ranks."""
    longest: int
    cut: int
    """Rows longer than the length that the trials use."""
    of: int

    @property
    def share(self) -> float:
        """Per cent of the rows."""
        return 100 * self.cut / self.of


@dataclass(frozen=True)
class Lengths:
    """One sequence (retrieval has two) at one length that the sweep's trials use."""

    sequence: str
    max_length: int
    by_rule: bool
    """Whether the length comes from the training split, not from the sweep or the model alone."""
    splits: Mapping[str, SplitLengths]
    ceilings: Mapping[str, Ceiling] = field(default_factory=dict)
    """Split -> what a perfect model could reach; empty where no length can cut an answer."""


@dataclass(frozen=True)
class Tokens:
    """All audited splits together, special tokens left out."""

    tokens: int
    words: int
    unknown: int

    @property
    def fertility(self) -> float:
        """Tokens a word."""
        return self.tokens / self.words if self.words else math.nan

    @property
    def unknown_rate(self) -> float:
        """Per cent of the tokens."""
        return 100 * self.unknown / self.tokens if self.tokens else math.nan


@dataclass(frozen=True)
class Measured:
    limit: int
    """Most tokens that the model takes."""
    tokens: Tokens
    lengths: tuple[Lengths, ...]


def measured(
    dataset: Dataset, found: Examined, text: TextEncoder, settings: Sequence[Protocol]
) -> Measured:
    """`settings` are the protocols of the trials, as far as lengths differ between them.

    Raises DataError for rows that the task refuses to encode.
    """
    task = TASKS[dataset.task]
    train = found.splits["train"].rows
    chosen = {each: task.lengths(train, text, each) for each in settings}
    whole = dict.fromkeys(chosen[settings[0]], UNCUT)
    counts: dict[str, dict[str, np.ndarray]] = {}
    tokens: Counter[str] = Counter()
    for name, split in found.splits.items():
        encoded = task.encode(split.rows, text, found.schema, whole, Protocol(), training=False)
        counts[name] = {sequence: _ids(encoded, sequence).lengths for sequence in whole}
        tokens += _counted(text, [_ids(encoded, sequence).values for sequence in whole])
        tokens["words"] += texts.words(split.rows, dataset.task)
    return Measured(
        limit=text.limit,
        tokens=Tokens(tokens["tokens"], tokens["words"], tokens["unknown"]),
        lengths=tuple(_lengths(dataset, found, text, counts, chosen)),
    )


def _ids(encoded: Encoded, sequence: str) -> Ragged:
    ids = encoded["input_ids" if sequence == "text" else f"{sequence}_input_ids"]
    assert isinstance(ids, Ragged), sequence
    return ids


def _counted(text: TextEncoder, sequences: Sequence[np.ndarray]) -> Counter[str]:
    ids = np.concatenate(sequences)
    unknown = text.tokenizer.unk_token_id
    special = [each for each in text.tokenizer.all_special_ids if each != unknown]
    return Counter(
        tokens=int(np.isin(ids, special, invert=True).sum()),
        # A tokenizer without such a token has a token for everything.
        unknown=0 if unknown is None else int((ids == unknown).sum()),
    )


def _lengths(
    dataset: Dataset,
    found: Examined,
    text: TextEncoder,
    counts: Mapping[str, Mapping[str, np.ndarray]],
    chosen: Mapping[Protocol, Mapping[str, int]],
) -> Iterator[Lengths]:
    for settings, lengths in chosen.items():
        ceilings = _ceilings(dataset, found, text, settings, lengths)
        for sequence, length in lengths.items():
            yield Lengths(
                sequence=sequence,
                max_length=length,
                by_rule=settings.max_length is None and length < text.limit,
                splits={name: _split(each[sequence], length) for name, each in counts.items()},
                ceilings=ceilings,
            )


def _split(counts: np.ndarray, length: int) -> SplitLengths:
    return SplitLengths(
        p95=float(np.percentile(counts, 95)),
        longest=int(counts.max()),
        cut=int((counts > length).sum()),
        of=len(counts),
    )


def _ceilings(
    dataset: Dataset,
    found: Examined,
    text: TextEncoder,
    settings: Protocol,
    lengths: Mapping[str, int],
) -> dict[str, Ceiling]:
    if dataset.task not in CUTTABLE:
        return {}
    task, ceilings = TASKS[dataset.task], {}
    for name, split in found.splits.items():
        encoded = task.encode(split.rows, text, found.schema, lengths, settings, training=False)
        ceilings[name] = ceiling(dataset.task, encoded, found.schema)
    return ceilings

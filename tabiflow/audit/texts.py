"""What a row says and what is asked of it, by kind of task; and when two texts are nearly one."""

import unicodedata
from collections.abc import Hashable, Mapping, Sequence

import pyarrow as pa

from tabiflow.casing import turkish_lower
from tabiflow.rows import LABEL_COLUMN
from tabiflow.spec import TaskKind

INPUTS: Mapping[TaskKind, tuple[str, ...]] = {
    "classification": ("text",),
    "nli": ("premise", "hypothesis"),
    "ner": ("tokens",),
    "pos": ("tokens",),
    "sts": ("sentence1", "sentence2"),
    "qa": ("question", "context"),
    "retrieval": ("anchor", "positive"),
}
"""The columns that a model reads: two rows that agree in all of them are duplicates."""
PARTS: Mapping[TaskKind, tuple[str, ...]] = {
    "qa": ("context",),
    "retrieval": ("anchor", "positive"),
}
"""Columns that should not stand in two splits even beside another partner."""


def column(rows: pa.Table, name: str) -> list[str]:
    """A text a row; words with a space between them."""
    values = rows[name].to_pylist()
    return [" ".join(each) for each in values] if name == "tokens" else values


def inputs(rows: pa.Table, task: TaskKind) -> list[tuple[str, ...]]:
    return list(zip(*(column(rows, name) for name in INPUTS[task]), strict=True))


def empty(rows: pa.Table, task: TaskKind) -> int:
    """Rows with a text, or a word, of which nothing can be seen."""
    if "tokens" in INPUTS[task]:
        return sum(not all(map(_visible, words)) for words in rows["tokens"].to_pylist())
    return sum(not all(map(_visible, texts)) for texts in inputs(rows, task))


def _visible(text: str) -> bool:
    """White space is not, nor are characters without width (`Cf`) and control characters."""
    return any(unicodedata.category(letter)[0] not in "ZC" for letter in text)


def words(rows: pa.Table, task: TaskKind) -> int:
    """What white space, or the data set itself, takes for words."""
    if "tokens" in INPUTS[task]:
        return sum(map(len, rows["tokens"].to_pylist()))
    return sum(len(text.split()) for texts in inputs(rows, task) for text in texts)


def answers(rows: pa.Table, task: TaskKind) -> list[Hashable]:
    """What a row asks a model to say; of retrieval, the text to be found."""
    match task:
        case "sts":
            return list(rows["score"].to_pylist())
        case "qa":
            return [tuple(each["text"]) for each in rows["answers"].to_pylist()]
        case "retrieval":
            return list(rows["positive"].to_pylist())
    labels = rows[LABEL_COLUMN[task]].to_pylist()
    return [tuple(each) if isinstance(each, list) else each for each in labels]


def labels(rows: pa.Table, task: TaskKind) -> list[str]:
    """Every label or tag, one after the other; nothing where there are no classes."""
    if task not in LABEL_COLUMN:
        return []
    found = rows[LABEL_COLUMN[task]].to_pylist()
    return [tag for tags in found for tag in tags] if LABEL_COLUMN[task] == "tags" else found


DOTLESS = str.maketrans({"ı": "i", "\N{COMBINING DOT ABOVE}": None})
"""`I` is lower-cased to `i` by one rule and to `ı` by the other, and `İ` to two code points by
Python's: which rule a data set has seen is not known, so all of them are one letter here."""


class _Bare(dict[int, str]):
    """For `str.translate`: punctuation becomes a space, what has no width nothing. Learns each
    code point once."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        kind = unicodedata.category(letter)
        self[code] = " " if kind.startswith("P") else "" if kind == "Cf" else letter
        return self[code]


_BARE = _Bare()


def folded(text: str) -> str:
    """Lower-cased, without punctuation, compatible characters one, white space made one space.

    A text of nothing but punctuation keeps it: `:)` is not `:(`.
    """
    lowered = turkish_lower(unicodedata.normalize("NFKC", text)).translate(DOTLESS)
    return " ".join(lowered.translate(_BARE).split()) or " ".join(lowered.split())


def folded_inputs(texts: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [tuple(map(folded, each)) for each in texts]

"""What generated texts are worth: exact match and F1, ROUGE-2, BLEU and chrF, word edits.

Scores are 0 to 100. A figure that is undefined (no row, no edit to find) is NaN. Every family of
figures has a signature that says how they were made, to be stored beside them.
"""

import logging
import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from importlib.metadata import version
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from tabiflow.answers import answer_f1, squad_words, turkish_words
from tabiflow.casing import turkish_lower
from tabiflow.draws import macro_f1_of
from tabiflow.generative.prompts import Item
from tabiflow.statistics import mean


@dataclass(frozen=True)
class Scores:
    """Figures of one task, with what each row contributes to the headline."""

    figures: Mapping[str, float]
    rows: tuple[float, ...]
    """0 to 100 each. For BLEU, which is no mean over rows, the sentences' own."""
    signature: str


# Choices


def choice_scores(items: Sequence[Item], answers: Sequence[int | None]) -> Scores:
    """`answers` are options counted from 0; None is an answer that names no option, and wrong."""
    rows = tuple(100.0 * (said == item.gold) for item, said in zip(items, answers, strict=True))
    gold = [-1 if item.gold is None else item.gold for item in items]
    said = [-1 if answer is None else answer for answer in answers]
    macro = float(macro_f1_of(gold, said)(np.ones((1, len(rows))))[0]) if rows else math.nan
    unread = 100 * mean([float(answer is None) for answer in answers])
    figures = {"accuracy": mean(rows), "macro_f1": macro, "unread": unread}
    return Scores(figures, rows, "options|ties:first|macro-f1:classes of gold or answers")


# Answers to questions


def answer_scores(items: Sequence[Item], answers: Sequence[str]) -> Scores:
    """The best over the references. `exact_match` and `f1` fold case as Turkish does; `squad_em`
    and `squad_f1` are the SQuAD script's, which takes `an` for an article and keeps no `ı`."""
    exact, f1 = _agreement(items, answers, turkish_words)
    squad_exact, squad_f1 = _agreement(items, answers, squad_words)
    figures = {
        "exact_match": mean(exact),
        "f1": mean(f1),
        "squad_em": mean(squad_exact),
        "squad_f1": mean(squad_f1),
    }
    return Scores(figures, tuple(exact), "case:turkish|punct:unicode|articles:kept|refs:best")


def _agreement(
    items: Sequence[Item], answers: Sequence[str], words: Callable[[str], list[str]]
) -> tuple[list[float], list[float]]:
    exact, f1 = [], []
    for item, answer in zip(items, answers, strict=True):
        said = words(answer)
        known = [words(each) for each in item.references]
        exact.append(100.0 * any(each == said for each in known))
        f1.append(max(answer_f1(each, said) for each in known))
    return exact, f1


# Summaries


class TurkishWords:
    """A tokenizer for rouge-score: runs of letters and digits of any script, case folded as Turkish
    is. Its own keeps a to z alone, so that `ağaç` falls into pieces."""

    def tokenize(self, text: str) -> list[str]:
        folded = turkish_lower(unicodedata.normalize("NFC", text))
        return "".join(each if each.isalnum() else " " for each in folded).split()


def rouge_scores(items: Sequence[Item], answers: Sequence[str]) -> Scores:
    """F-measure of bigrams, mean over rows; `rouge2_default` has rouge-score's own tokenizer."""
    turkish, default = _scorer(True), _scorer(False)
    rows = [_rouge2(turkish, item, said) for item, said in zip(items, answers, strict=True)]
    plain = [_rouge2(default, item, said) for item, said in zip(items, answers, strict=True)]
    figures = {"rouge2": mean(rows), "rouge2_default": mean(plain)}
    signature = f"rouge2|f|stem:no|tok:turkish-words|refs:best|rouge-score:{version('rouge-score')}"
    return Scores(figures, tuple(rows), signature)


def _rouge2(scorer: Any, item: Item, said: str) -> float:
    found = [float(scorer.score(each, said)["rouge2"].fmeasure) for each in item.references]
    return 100 * max(found)


@cache
def _scorer(turkish: bool) -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    # It says that it takes its own tokenizer, which is what is asked of it.
    logging.getLogger("absl").setLevel(logging.WARNING)
    return RougeScorer(["rouge2"], tokenizer=TurkishWords() if turkish else None)


# Translations


def translation_scores(items: Sequence[Item], answers: Sequence[str]) -> Scores:
    """BLEU-4 and chrF of the corpus, as sacrebleu computes and signs them. One reference a row."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if not items:
        return Scores({"bleu": math.nan, "chrf": math.nan}, (), "")
    bleu, chrf, sentence = BLEU(), CHRF(), BLEU(effective_order=True)
    said, references = list(answers), [[item.references[0] for item in items]]
    figures = {
        "bleu": float(bleu.corpus_score(said, references).score),
        "chrf": float(chrf.corpus_score(said, references).score),
    }
    rows = tuple(
        float(sentence.sentence_score(answer, [item.references[0]]).score)
        for item, answer in zip(items, said, strict=True)
    )
    return Scores(figures, rows, f"BLEU {bleu.get_signature()} chrF {chrf.get_signature()}")


# Corrections

Edit = tuple[int, int, tuple[str, ...]]
"""Words `start` to `end` of the source become these; start == end inserts."""


def edits(source: str, target: str) -> frozenset[Edit]:
    """The word edits that make one sentence of another, as difflib aligns them.

    Words that changed side by side are told apart where their letters show how (`herşey bendede`
    to `her şey bende de` is two edits) or where there are as many as before, so that half of a
    correction counts for half.
    """
    before, after = source.split(), target.split()
    found: list[Edit] = []
    for kind, start, end, low, high in _aligned(before, after):
        if kind != "equal":
            for i, j, k, m in _pieces(before[start:end], after[low:high]):
                found.append((start + i, start + j, tuple(after[low + k : low + m])))
    return frozenset(found)


def _aligned(before: Sequence[str], after: Sequence[str]) -> list[Any]:
    return SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes()


def _pieces(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """The smallest changes that one stretch of changed words falls into, as places in both."""
    if len(before) == len(after):
        cuts = [(place, place) for place in range(len(before) + 1)]
    else:
        cuts = _common_cuts(before, after)
    pieces = [(*first, *last) for first, last in pairwise(cuts)]
    return [(i, j, k, m) for i, k, j, m in pieces if before[i:j] != after[k:m]]


def _common_cuts(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]]:
    """Where both have a word's border between the same letters."""
    borders = [
        {0: 0} | {end: n + 1 for n, end in enumerate(_ends(each))} for each in (before, after)
    ]
    cuts = {(0, 0), (len(before), len(after))}
    for kind, start, end, low, _ in _aligned("".join(before), "".join(after)):
        for step in range(end - start + 1) if kind == "equal" else ():
            if start + step in borders[0] and low + step in borders[1]:
                cuts.add((borders[0][start + step], borders[1][low + step]))
    return sorted(cuts)


def _ends(words: Sequence[str]) -> list[int]:
    return list(accumulate(map(len, words)))


def correction_scores(items: Sequence[Item], answers: Sequence[str]) -> Scores:
    """Whole sentences, and word edits of the answers against those of the references.

    `gec_f05` weighs precision twice as much as recall, over all edits; `gec_macro_f1` is the mean
    over sentences of their own F1, 100 where there was nothing to correct and nothing was.
    """
    exact = [
        100.0 * (said.strip() == item.references[0].strip())
        for item, said in zip(items, answers, strict=True)
    ]
    counts = [_edit_counts(item, said) for item, said in zip(items, answers, strict=True)]
    right, made, due = (sum(each[place] for each in counts) for place in range(3))
    figures = {
        "gec_exact_match": mean(exact),
        "gec_precision": _ratio(right, made),
        "gec_recall": _ratio(right, due),
        "gec_f05": _ratio(1.25 * right, made + 0.25 * due),
        "gec_macro_f1": mean([_sentence_f1(*each) for each in counts]),
    }
    return Scores(
        figures, tuple(exact), "words:white space|edits:difflib, split by letters|macro:sentences"
    )


def _edit_counts(item: Item, said: str) -> tuple[int, int, int]:
    """Edits that are right, were made, were due."""
    made, due = edits(item.source, said), edits(item.source, item.references[0])
    return len(made & due), len(made), len(due)


def _sentence_f1(right: int, made: int, due: int) -> float:
    return _ratio(2 * right, made + due) if made + due else 100.0


def _ratio(part: float, whole: float) -> float:
    return 100 * part / whole if whole else math.nan


SCORERS: Mapping[str, Callable[[Sequence[Item], Sequence[str]], Scores]] = {
    "exact_match": answer_scores,
    "rouge2": rouge_scores,
    "bleu": translation_scores,
    "gec_exact_match": correction_scores,
}
"""By the headline metric of a task whose answers are generated text."""

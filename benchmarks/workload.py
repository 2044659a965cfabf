"""What the sweep benchmarks run: slices of four data sets, an encoder of a few million parameters.

Real rows where the folder of data sets has them, made-up ones of the same shape where not. All is
written into one folder, from which each system reads: rows, encoder, and tabiflow's sweep.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from tabiflow.example.templates import MAKERS

SEED, PATIENCE, WORKERS = 25, 2, 2
SPACE: Mapping[str, list[float]] = {
    "learning_rate": [5e-6, 1e-5, 2e-5, 3e-5],
    "weight_decay": [1e-5, 1e-6],
    "batch_size": [16, 32],
}
"""The paper's grid (TabiBERT, section 5.2): 16 configurations."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY, WIDTH, LAYERS, POSITIONS = 8_000, 192, 3, 512
"""Wide rather than deep: as in an encoder of the usual size, a pass is arithmetic, not overhead."""
ENDINGS, LONGEST_ENDING = 3_000, 6
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Slice:
    """Some rows of a data set, and how long each trial trains on them."""

    name: str
    task: str
    train: int
    validation: int
    """In the same proportion to `train` as in the whole data set."""
    epochs: int = 3
    max_length: int | None = None
    """None is the rule: the 95th percentile of the training rows."""


SLICES = (
    Slice("posud_imst", "pos", 58, 18, max_length=128),
    Slice("stsb_tr", "sts", 156, 41, epochs=2),
    Slice("xquad_tr", "qa", 21, 4, epochs=2),
    Slice("xquad_ir_tr", "retrieval", 25, 6, epochs=2),
)
"""Trials of about 5 seconds. In tagging the released code cuts and pads at 128."""
LONGER = {30: 355, 120: 1420}
"""Seconds a trial -> training rows of posud_imst."""
FACTS: Mapping[str, Mapping[str, Any]] = {
    "pos": {"columns": {"tags": "pos_tags"}},
    "sts": {"label_range": [0, 5]},
    "qa": {},
    "retrieval": {},
}


def slices(seconds: int, factor: float = 1.0) -> tuple[Slice, ...]:
    """What trials train on; `factor` on the rows keeps them as long on a quicker machine."""
    chosen = SLICES
    if seconds != 5:
        usual, train = SLICES[0], LONGER[seconds]
        rows = train * usual.validation // usual.train
        chosen = (replace(usual, train=train, validation=rows),)
    return tuple(
        replace(each, train=round(each.train * factor), validation=round(each.validation * factor))
        for each in chosen
    )


@dataclass(frozen=True)
class Workload:
    """Written files, and what a system must be told."""

    folder: Path
    slices: tuple[Slice, ...]
    space: Mapping[str, list[float]]
    max_lengths: Mapping[str, Any]
    """By data set; of retrieval one a column."""
    labels: Mapping[str, list[str]]
    real: tuple[str, ...]
    """Data sets that are no stand-ins."""

    @property
    def encoder(self) -> Path:
        return self.folder / "encoder"

    def settings(self, each: Slice) -> dict[str, Any]:
        """What a plain trial needs beside its hyper-parameters."""
        return {
            "name": each.name,
            "task": each.task,
            "data": str(self.folder / each.name),
            "model": str(self.encoder),
            "max_length": self.max_lengths[each.name],
            "labels": self.labels.get(each.name, []),
            "epochs": each.epochs,
            "patience": PATIENCE,
            "seed": SEED,
        }

    def sweep(self) -> dict[str, Any]:
        return {
            "name": "speed",
            "models": [{"name": "small", "path": str(self.encoder), "parameters": 3_000_000}],
            "search": [self._search(each) for each in self.slices],
            "protocol": {"dropout": 0.0, "patience": PATIENCE},
        }

    def _search(self, each: Slice) -> dict[str, Any]:
        row = {
            "name": each.name,
            "path": str(self.folder / each.name),
            "task": each.task,
            **FACTS[each.task],
            **({"labels": self.labels[each.name]} if each.name in self.labels else {}),
        }
        fixed = {"epochs": each.epochs}
        if each.max_length:
            fixed["max_length"] = each.max_length
        return {"datasets": [row], "space": {**self.space, **fixed}}


def data_folder() -> Path:
    """`TABIFLOW_DATA`, or what lies beside the project."""
    beside = Path(__file__).parents[2] / "shared" / "data" / "tabibench"
    return Path(os.environ.get("TABIFLOW_DATA") or beside)


def write(folder: Path, chosen: Sequence[Slice], space: Mapping[str, list[float]]) -> Workload:
    found = {each.name: _splits(each) for each in chosen}
    for name, (splits, _) in found.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for split, rows in splits.items():
            pq.write_table(pa.Table.from_pylist(rows), folder / name / f"{split}.parquet")
    texts = [text for each in chosen for text in _texts(each.task, _whole(each)[0]["train"])]
    tokenizer = _tokenizer(texts)
    tokenizer.save_pretrained(folder / "encoder")
    _model(len(tokenizer)).save_pretrained(folder / "encoder")
    lengths = {
        each.name: each.max_length or _rule(each.task, found[each.name][0]["train"], tokenizer)
        for each in chosen
    }
    labels = {
        each.name: sorted(
            {
                tag
                for rows in found[each.name][0].values()
                for row in rows
                for tag in row["pos_tags"]
            }
        )
        for each in chosen
        if each.task == "pos"
    }
    real = tuple(name for name, (_, is_real) in found.items() if is_real)
    return Workload(folder, tuple(chosen), space, lengths, labels, real)


def _splits(each: Slice) -> tuple[dict[str, Rows], bool]:
    whole, real = _whole(each)
    sizes = {"train": each.train, "validation": each.validation, "test": 20}
    # Neighbouring rows are alike: paragraphs of one article, similar pairs.
    return {
        split: Random(SEED).sample(rows, min(sizes[split], len(rows)))
        for split, rows in whole.items()
    }, real


def _whole(each: Slice) -> tuple[dict[str, Rows], bool]:
    places = (data_folder() / each.name, data_folder().parent / "extra" / each.name)
    columns = _COLUMNS[each.task]
    for place in places:
        if place.is_dir():
            files = {split: place / f"{split}.parquet" for split in ("train", "validation", "test")}
            return {
                split: pq.read_table(file, columns=columns).to_pylist()
                for split, file in files.items()
            }, True
    sizes = {"train": 4000, "validation": 1000, "test": 100}
    return {split: _made(each.task, split, size) for split, size in sizes.items()}, False


_COLUMNS = {
    "pos": ["tokens", "pos_tags"],
    "sts": ["sentence1", "sentence2", "score"],
    "qa": ["id", "context", "question", "answers"],
    "retrieval": ["anchor", "positive"],
}


def _made(task: str, split: str, size: int) -> Rows:
    """Rows of the example's templates, put together: lengths differ as widely as real ones."""
    pick = Random(f"{task} {split}")
    rows: Rows = []
    while len(rows) < size:
        rows += MAKERS[task](pick)
    return [_longer(task, row, pick.choices(rows, k=pick.randrange(8))) for row in rows[:size]]


def _longer(task: str, row: dict[str, Any], more: Rows) -> dict[str, Any]:
    if task == "pos":
        parts = [row, *more]
        return {
            "tokens": [word for each in parts for word in each["tokens"]],
            "pos_tags": [tag for each in parts for tag in each["tags"]],
        }
    if task == "sts":
        common = " ".join(each["sentence1"] for each in more)
        both = {name: f"{row[name]} {common}" for name in ("sentence1", "sentence2")}
        return {**both, "score": row["score"]}
    column = "context" if task == "qa" else "positive"
    text = " ".join([row[column], *(each[column] for each in more)])
    return {"id": row.get("question", ""), **row, column: text}


def _texts(task: str, rows: Rows) -> Iterator[str]:
    for row in rows:
        for column in _COLUMNS[task]:
            if column == "tokens":
                yield " ".join(row[column])
            elif isinstance(row[column], str) and column != "id":
                yield row[column]


def _rule(task: str, rows: Rows, tokenizer: PreTrainedTokenizerFast) -> Any:
    columns = [name for name in _COLUMNS[task] if name not in ("id", "score", "answers")]
    texts = [[row[name] for row in rows] for name in columns]
    if task == "retrieval":
        return {name: _length(tokenizer, each) for name, each in zip(columns, texts, strict=True)}
    return _length(tokenizer, *texts)


def _length(tokenizer: PreTrainedTokenizerFast, *texts: Sequence[str]) -> int:
    counts = [len(ids) for ids in tokenizer(*texts, verbose=False)["input_ids"]]
    return min(POSITIONS, 8 * int(np.ceil(np.percentile(counts, 95) / 8)))


def _tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    made = Tokenizer(models.WordPiece(_vocabulary(texts), unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, SPECIAL.index(name)) for name in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        model_max_length=POSITIONS,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{f"{name[1:-1].lower()}_token": name for name in SPECIAL},
    )


def _vocabulary(texts: Sequence[str]) -> dict[str, int]:
    """Frequent words, frequent endings and all letters: written, because the library's trainer
    breaks ties by a hash map's order."""
    split = pre_tokenizers.BertPreTokenizer()
    words = Counter(word for text in texts for word, _ in split.pre_tokenize_str(text))
    endings: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(max(1, len(word) - LONGEST_ENDING), len(word)):
            endings[f"##{word[start:]}"] += count
    letters = sorted(set("".join(words)))
    pieces = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters)]
    for found, size in ((endings, ENDINGS), (words, VOCABULARY)):
        pieces += sorted(found, key=lambda piece: (-found[piece], piece))[:size]
    return {piece: place for place, piece in enumerate([*dict.fromkeys(pieces)][:VOCABULARY])}


def _model(vocabulary: int) -> BertModel:
    torch.manual_seed(0)
    return BertModel(
        BertConfig(
            vocab_size=vocabulary,
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            intermediate_size=4 * WIDTH,
            max_position_embeddings=POSITIONS,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            # The library's 0.02 suits trained weights: outputs of random ones would barely differ.
            initializer_range=0.1,
        )
    )


def dump(workload: Workload, file: Path) -> None:
    file.write_text(json.dumps(workload.sweep(), ensure_ascii=False))

"""The tiny models of the example, built on first use: random weights, a trained tokenizer.

The same bytes on every build with the same libraries. Nothing here is downloaded.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from tabiflow.casing import turkish_lower
from tabiflow.example import benchmark_folder, data_folder
from tabiflow.example.generate import INPUTS
from tabiflow.example.templates import MAKERS
from tabiflow.registry.generators import GENERATORS
from tabiflow.registry.local import cache_folder
from tabiflow.registry.models import MODELS

SEED = 25
VOCABULARY = 1200
LONGEST = 128
LONGEST_WRITTEN = 1024
SPREAD = 0.1
"""Of the random weights. The libraries' 0.02 suits wider layers: these would barely learn."""
PAD, UNKNOWN, CLS, SEP = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def built_model(recipe: str) -> Path:
    """The folder of a recipe's model, in the cache; built when no process has built it yet."""
    rows = (*MODELS, *GENERATORS)
    version = next(row.revision for row in rows if row.build == recipe)
    folder = cache_folder() / "example" / f"{recipe}-{version}"
    if not folder.is_dir():
        build(recipe, folder)
    return folder


def build(recipe: str, folder: Path) -> None:
    """Writes weights and tokenizer. The folder appears whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _tokenizer(recipe).save_pretrained(draft)
        _model(recipe).save_pretrained(draft)
        draft.rename(folder)
    except OSError:
        # Another process was faster: its folder holds the same bytes.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _model(recipe: str) -> PreTrainedModel:
    # The caller's random numbers belong to a trial and must not move.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return {"bert": _bert, "modernbert": _modernbert, "generator": _llama}[recipe]()


def _llama() -> PreTrainedModel:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,  # vLLM's attention on a CPU takes no head smaller than 32
            num_key_value_heads=2,
            initializer_range=SPREAD,
            max_position_embeddings=LONGEST_WRITTEN,
            bos_token_id=SPECIAL.index(CLS),
            eos_token_id=SPECIAL.index(SEP),
            pad_token_id=SPECIAL.index(PAD),
        )
    )


def _bert() -> PreTrainedModel:
    return BertModel(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            initializer_range=SPREAD,
            max_position_embeddings=LONGEST,
            pad_token_id=SPECIAL.index(PAD),
        )
    )


def _modernbert() -> PreTrainedModel:
    return ModernBertModel(
        ModernBertConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            initializer_range=SPREAD,
            max_position_embeddings=LONGEST,
            classifier_pooling="mean",
            pad_token_id=SPECIAL.index(PAD),
            cls_token_id=SPECIAL.index(CLS),
            sep_token_id=SPECIAL.index(SEP),
            bos_token_id=SPECIAL.index(CLS),
            eos_token_id=SPECIAL.index(SEP),
        )
    )


def _tokenizer(recipe: str) -> PreTrainedTokenizerFast:
    return _writing() if recipe == "generator" else _reading(recipe)


def _writing() -> PreTrainedTokenizerFast:
    """Byte-level, so that every text has ids and every id is a part of a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_written_lines(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS} $A", special_tokens=[(CLS, SPECIAL.index(CLS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=LONGEST_WRITTEN,
        pad_token=PAD,
        bos_token=CLS,
        eos_token=SEP,
    )


def _written_lines() -> Iterator[str]:
    """The benchmark's example as it stands in its files, names of fields and all."""
    for file in sorted(benchmark_folder().glob("*/*.jsonl")):
        yield from file.read_text(encoding="utf-8").splitlines()


def _reading(recipe: str) -> PreTrainedTokenizerFast:
    uncased = recipe == "bert"
    tokenizer = _wordpiece() if uncased else _bpe()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        pair=f"{CLS} $A {SEP} $B:1 {SEP}:1",
        special_tokens=[(token, SPECIAL.index(token)) for token in (CLS, SEP)],
    )
    inputs = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=LONGEST,
        model_input_names=[*inputs, "token_type_ids"] if uncased else inputs,
        pad_token=PAD,
        unk_token=UNKNOWN,
        cls_token=CLS,
        sep_token=SEP,
    )


def _wordpiece() -> Tokenizer:
    """Does not lower-case: the model's row says `lowercase: turkish`."""
    lines = [turkish_lower(line) for line in _lines()]
    # The trainer numbers inner letters in the order of a hash map, unless it knows them before.
    inner = [f"##{letter}" for letter in sorted(set("".join(lines)))]
    trained = _trained(
        models.WordPiece(unk_token=UNKNOWN),
        trainers.WordPieceTrainer(
            vocab_size=VOCABULARY, special_tokens=[*SPECIAL, *inner], show_progress=False
        ),
        lines,
    )
    tokenizer = Tokenizer(models.WordPiece(trained.get_vocab(), unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = trained.pre_tokenizer
    return tokenizer


def _bpe() -> Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), show_progress=False
    )
    return _trained(models.BPE(unk_token=UNKNOWN), trainer, list(_lines()))


def _trained(model: models.Model, trainer: trainers.Trainer, lines: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def _lines() -> Iterator[str]:
    """The training texts of every data set."""
    for kind in MAKERS:
        content = (data_folder(kind) / "train.jsonl").read_text(encoding="utf-8")
        for line in content.splitlines():
            row = json.loads(line)
            for column in (*INPUTS, "hypothesis", "question", "positive"):
                text = row.get(column, "")
                yield text if isinstance(text, str) else " ".join(text)

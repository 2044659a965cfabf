"""Encoders of a few kilobytes: random weights, a tokenizer made from a few Turkish lines."""

from pathlib import Path
from typing import Literal

import torch
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    BertConfig,
    BertModel,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedTokenizerFast,
)

Architecture = Literal["bert", "modernbert"]

LINES = (
    "Ankara Türkiye Cumhuriyeti'nin başkentidir ve İç Anadolu Bölgesi'ndedir .",
    "İstanbul'da yağmur yağıyor , Iğdır'da güneş var !",
    "Ahmet dün akşam Ayşe ile çok güzel bir film izledi .",
    "Bu ürün berbat , kesinlikle almayın ; paramı geri istiyorum .",
    "Kargo çok hızlıydı , satıcıya teşekkür ederim . Harika !",
    "Mustafa Kemal Atatürk 1881 yılında Selanik'te doğdu .",
    "Kedi masanın üstünde uyuyor ; köpek ise bahçede koşuyor .",
    "Fenerbahçe maçı 3 - 1 kazandı ve şampiyonluğa yaklaştı .",
)
SPECIAL = {
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "mask_token": "[MASK]",
}


def tiny_model(
    folder: Path, architecture: Architecture = "bert", *, dropout: float = 0.1, context: int = 64
) -> Path:
    """Writes model and tokenizer into `folder` and returns it; the same bytes every time.

    `bert` is a WordPiece with token types, `modernbert` a byte-level BPE without them.
    """
    tokenizer = _wordpiece(context) if architecture == "bert" else _byte_level(context)
    tokenizer.save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = _MODELS[architecture](len(tokenizer), dropout, context)
    model.save_pretrained(folder)
    return folder


def _bert(vocabulary: int, dropout: float, context: int) -> BertModel:
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=context,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        pad_token_id=3,
    )
    return BertModel(config)


def _modernbert(vocabulary: int, dropout: float, context: int) -> ModernBertModel:
    config = ModernBertConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=context,
        local_attention=16,
        attention_dropout=dropout,
        embedding_dropout=dropout,
        mlp_dropout=dropout,
        cls_token_id=1,
        bos_token_id=1,
        sep_token_id=2,
        eos_token_id=2,
        pad_token_id=3,
    )
    return ModernBertModel(config)


_MODELS = {"bert": _bert, "modernbert": _modernbert}


def _wordpiece(context: int) -> PreTrainedTokenizerFast:
    # Its vocabulary is written, not trained: WordPieceTrainer breaks ties by a hash map's order.
    words = sorted({word for line in LINES for word in line.split()})
    letters = sorted(set("".join(words)))
    pieces = [*SPECIAL.values(), *letters, *(f"##{letter}" for letter in letters), *words]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return _wrapped(tokenizer, context, ["input_ids", "token_type_ids", "attention_mask"])


def _byte_level(context: int) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return _wrapped(tokenizer, context, ["input_ids", "attention_mask"])


def _wrapped(tokenizer: Tokenizer, context: int, inputs: list[str]) -> PreTrainedTokenizerFast:
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=context, model_input_names=inputs, **SPECIAL
    )

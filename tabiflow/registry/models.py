"""The encoders that tabiflow knows, one row each: the five of TabiBench and two for the example.

Titles, sizes and limits are those of the TabiBERT paper and of the models' cards. No row pins a
commit yet: the one that a name resolved to is recorded with each trial.
"""

from tabiflow.spec import Model

MODELS: tuple[Model, ...] = (
    Model(
        name="turkishbertweet",
        title="TurkishBERTweet",
        hub="VRLLab/TurkishBERTweet",
        parameters=162_842_112,
        lowercase="turkish",
        context=512,
        add_prefix_space=True,
        tags=("encoders",),
        notes="RoBERTa with a byte-level BPE of 100k: 514 positions, 512 of them usable. Its"
        " pre-training used length 128 and rewrote tags, links and emojis first; that rewriting is"
        " not applied here.",
    ),
    Model(
        name="ytu-cosmos-bert",
        title="ytu-cosmos-BERT",
        hub="ytu-ce-cosmos/turkish-base-bert-uncased",
        parameters=110_617_344,
        lowercase="turkish",
        context=512,
        tags=("encoders",),
        notes="Uncased WordPiece. Its card asks for Turkish lower-casing before the tokenizer: the"
        " tokenizer's own do_lower_case takes I for i.",
    ),
    Model(
        name="berturk",
        title="BERTurk",
        hub="dbmdz/bert-base-turkish-cased",
        parameters=110_617_344,
        context=512,
        tags=("encoders",),
        notes="Cased WordPiece of 32k.",
    ),
    Model(
        name="tabibert",
        title="TabiBERT",
        hub="boun-tabilab/TabiBERT",
        parameters=148_866_816,
        context=8192,
        tags=("encoders",),
        notes="ModernBERT with a cased BPE of 50k; digits, punctuation, newline and tab are tokens"
        " of their own. No token types, no dropout. In tagging, words are fed without a leading"
        " space, unlike in pre-training.",
    ),
    Model(
        name="mmbert",
        title="mmBERT",
        hub="jhu-clsp/mmBERT-base",
        parameters=306_939_648,
        context=8192,
        tags=("encoders",),
        notes="Multilingual ModernBERT with the cased Gemma 2 tokenizer of 256k, which needs 41%"
        " more tokens on Turkish. No dropout; its configuration asks for mean pooling in the"
        " classifier.",
    ),
    Model(
        name="example-modernbert",
        title="example ModernBERT",
        build="modernbert",
        revision="1",
        context=128,
        tags=("example",),
        notes="Two small layers with random weights, cased BPE. Shows that things run.",
    ),
    Model(
        name="example-bert",
        title="example BERT",
        build="bert",
        revision="1",
        lowercase="turkish",
        context=128,
        tags=("example",),
        notes="Two small layers with random weights, uncased WordPiece. Shows that things run.",
    ),
)

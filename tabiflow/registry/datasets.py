"""The data sets that tabiflow knows, one row each: the 27 of TabiBench, the features of one of
them as a task of its own, and seven for the example.

Ids, columns and labels are those of the released sets (boun-tabilab on the hub); titles, sizes,
licences and redistribution terms are those of the TabiBERT paper, tables 3 and 16. A revision is
the upload's commit where it is known. Nothing here is read from a hub.
"""

from functools import partial
from typing import Any

from tabiflow.registry.thesis_labels import THESIS_LABELS
from tabiflow.spec import Dataset, TaskKind


def _row(
    name: str, hub: str, rows: tuple[int, int, int], *, category: str, task: TaskKind, **facts: Any
) -> Dataset:
    """A TabiBench row; `rows` are the published rows of train, validation and test."""
    return Dataset(
        name=name,
        hub=f"boun-tabilab/{hub}",
        sizes=dict(zip(("train", "validation", "test"), rows, strict=True)),
        category=category,
        task=task,
        tags=tuple(dict.fromkeys(("tabibench", category, task))),
        **facts,
    )


_text = partial(_row, category="text_classification", task="classification", metric="macro-F1")
_TEXT_CLASSIFICATION = (
    _text(
        "news_cat",
        "News-Cat",
        (750, 150, 250),
        title="News Cat",
        labels=("economy", "health", "magazine", "politics", "sport"),
        licence="Not declared",
        redistribution="Unclear",
        processing="Used as is; standardised split",
    ),
    _text(
        "product_reviews",
        "Turkish-Product-Reviews",
        (164_615, 35_275, 35_275),
        title="Product Reviews",
        revision="9a1e967dba09086777d368a5ec6651d143ff78cc",
        labels=(0, 1),
        label_names=("Negative", "Positive"),
        licence="CC BY-SA 4.0 by the card's text and the provider's repository",
        redistribution="Yes",
        processing="Used as is; standardised split",
        notes=("Holds 93.6% of its category's weight.",),
    ),
    _text(
        "bil_tweet_news",
        "BilTweetNews-Sentiment-Analysis",
        (696, 149, 150),
        title="Bil Tweet News",
        revision="175a3a11ed5dae9b65c5513cf1b23daf89b2bca4",
        labels=("Multi", "Negative", "Neutral", "Positive", "Sarcastic"),
        licence="CC BY-NC-SA 4.0",
        redistribution="Non-commercial only",
        processing="Used as is; standardised split",
        notes=("The paper counts 4 labels; the set has 5, `Multi` being a tie of the annotators.",),
    ),
    _text(
        "gender_hate_speech",
        "Gender-Hate-Speech-TR",
        (16_002, 1_998, 2_000),
        title="Gender Hate Speech Turkish",
        revision="c244c933299e9586062ef0d4840345e2469935f5",
        labels=(0, 1, 2),
        label_names=("Normal", "Offensive", "Hate"),
        licence="CC BY-NC-SA 4.0",
        redistribution="Non-commercial only",
        processing="Used as is; standardised split",
        deviation="Validation has 1,998 rows, not test's 2,000.",
        notes=("The published scores come from another cut of the same rows: 16,200 and 1,800.",),
    ),
)

_WIKI_NER_TYPES = (
    *("CARDINAL", "DATE", "EVENT", "FAC", "GPE", "LANGUAGE", "LAW", "LOC", "MONEY", "NORP"),
    *("ORDINAL", "ORG", "PERCENT", "PERSON", "PRODUCT", "QUANTITY", "TIME", "TITLE", "WORK_OF_ART"),
)
_UPOS = ("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PRON", "PROPN")
_RANGES = "Multi-word ranges (tag `_`) are words beside their parts, as released."
_SEQEVAL = "The published scores are seqeval's on bare tags, which is below the word-level score."

_ner = partial(_row, category="token_classification", task="ner", metric="entity-level micro-F1")
_pos = partial(
    _row,
    category="token_classification",
    task="pos",
    metric="micro-F1",
    columns={"tags": "pos_tags"},
    redistribution="Yes",
    processing="Used as is; standardised split",
)
_TOKEN_CLASSIFICATION = (
    _ner(
        "wiki_ner",
        "WikiNER-TR",
        (17_967, 1_000, 1_000),
        title="WikiNER",
        labels=(
            *(f"B-{each}" for each in _WIKI_NER_TYPES),
            *(f"I-{each}" for each in _WIKI_NER_TYPES),
            "O",
        ),
        licence="CC BY-SA 4.0 (re-annotates Kuzgunlar NER, whose terms apply too)",
        redistribution="Yes, share-alike",
        processing="Used as is; standardised split",
    ),
    _ner(
        "wikiann_tr",
        "WikiANN-NER-TR",
        (20_000, 10_000, 10_000),
        title="WikiANN-TR",
        revision="4525433b7e7b42508ff7f34abd291ed792470444",
        labels=("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC"),
        licence="Unknown by its card; text from Wikipedia (CC BY-SA)",
        redistribution="Unclear",
        processing="Used as is; standardised split",
        notes=(
            "The files hold positions in the label list.",
            "The published scores were decoded with another list, so they are not entity F1.",
        ),
    ),
    _pos(
        "posud_boun",
        "PosUD-BOUN",
        (7_803, 979, 979),
        title="PosUD-BOUN",
        labels=(*sorted((*_UPOS, "PART", "PUNCT", "SCONJ", "VERB", "X")), "_"),
        licence="CC BY-SA 4.0",
        notes=(_RANGES, _SEQEVAL),
    ),
    _pos(
        "posud_imst",
        "PosUD-IMST",
        (3_435, 1_100, 1_100),
        title="PosUD-IMST",
        revision="65490e891cfa700646232884658bbc4537a26757",
        labels=(*_UPOS, "PUNCT", "VERB", "X", "_"),
        licence="CC BY-NC-SA 4.0",
        redistribution="Non-commercial only",
        notes=(_RANGES, _SEQEVAL, "The paper counts 17 labels; the set has 15."),
    ),
)

# The same files as `posud_imst`; no part of TabiBench, so that its averages stay what they are.
_MORPHOLOGY = (
    Dataset(
        name="posud_imst_feats",
        title="PosUD-IMST, features",
        hub="boun-tabilab/PosUD-IMST",
        revision="65490e891cfa700646232884658bbc4537a26757",
        files_of="posud_imst",
        category="morphology",
        task="pos",
        columns={"tags": "feats"},
        bundles=True,
        metric="exact-bundle accuracy",
        sizes={"train": 3_435, "validation": 1_100, "test": 1_100},
        licence="CC BY-NC-SA 4.0",
        redistribution="Non-commercial only",
        processing="The released features, whole bundles as tags",
        notes=(
            "Multi-word ranges (bundle `_`) are words beside their parts, as released.",
            "Training has 861 bundles. It lacks those of 68 of the 10,821 words of validation and"
            " of 103 of the 10,310 of test, which count as wrong: the best score is 99.0.",
        ),
        tags=("morphology",),
    ),
)

_sts = partial(
    _row,
    category="sts",
    task="sts",
    metric="Pearson",
    processing="Used as is; standardised split",
)
_STS = (
    _sts(
        "sick_tr",
        "SICK-TR",
        (4_500, 500, 4_927),
        title="SICK-TR",
        label_range=(1, 5),
        licence="MIT",
        redistribution="Yes",
    ),
    _sts(
        "stsb_tr",
        "STSb-TR",
        (5_749, 1_500, 1_379),
        title="STSb-TR",
        revision="97d588644791a4b4be6573ab671c26cfc191d78c",
        label_range=(0, 5),
        licence="CC BY-SA 4.0 for the scores; the sentences' sources are mixed, not cleared",
        redistribution="Partial or mixed",
    ),
)

_nli = partial(
    _row,
    category="nli",
    task="nli",
    metric="macro-F1",
    labels=(0, 1, 2),
    label_names=("entailment", "neutral", "contradiction"),
    processing="Used as is; standardised split",
)
_NLI = (
    _nli(
        "snli_tr",
        "SNLI-TR",
        (549_367, 9_842, 9_824),
        title="SNLI-TR",
        licence="CC BY-SA 4.0",
        redistribution="Yes",
        notes=("Published sizes leave out 1,119 rows that have no label (-1).",),
    ),
    _nli(
        "multinli_tr",
        "MultiNLI-TR",
        (392_702, 4_892, 4_923),
        title="MultiNLI-TR",
        revision="40b5b774e29702ee6fda45e6403989fdef64769d",
        licence="MultiNLI's, by genre: CC BY 3.0, CC BY 4.0, CC BY-SA 3.0, MIT, other",
        redistribution="Yes, by genre",
        deviation="Validation and test are halves of the matched validation set; by the rule all of"
        " it is test, and validation is cut from train.",
    ),
)

_qa = partial(
    _row,
    category="qa",
    task="qa",
    metric="F1 (span)",
    processing="Used as is; standardised split",
)
_QA = (
    _qa(
        "tquad",
        "Tquad-2",
        (11_803, 2_418, 2_520),
        title="TQuAD",
        licence="`other` by its card (tquad2), which links to a copy without a licence",
        redistribution="Unclear",
        deviation="Validation has 2,418 rows, 17% of train and validation; by the rule it has"
        " test's 2,520.",
        notes=("Train and validation are cut by question, so that they share paragraphs.",),
    ),
    _qa(
        "xquad_tr",
        "XQuAD-TR",
        (833, 178, 179),
        title="XQuAD",
        revision="c532a5db760295622cc838970928df67d367e4a9",
        licence="CC BY-SA 4.0",
        redistribution="Yes",
        notes=("Cut by question: nearly every test question has its paragraph in train.",),
    ),
)

_academic = partial(
    _row, category="academic_understanding", task="classification", metric="macro-F1"
)
_ACADEMIC_UNDERSTANDING = (
    _academic(
        "pubmedrct_10k_tr",
        "PubmedRCT-10K-TR",
        (7_000, 1_500, 1_500),
        title="PubMedRCT-10K-TR",
        labels=("background", "conclusions", "methods", "objective", "results"),
        licence="Not stated; PubMed data of the NLM, some abstracts may be copyrighted",
        redistribution="Conditional",
        processing="Stratified subsample of 10K; translated; split",
    ),
    _academic(
        "scicite_tr",
        "SciCite-TR",
        (8_194, 916, 1_859),
        title="SciCite-TR",
        labels=("background", "method", "result"),
        licence="Apache-2.0 for its repository; unknown by its card",
        redistribution="Unclear",
        processing="Translated; standardised split",
    ),
    _academic(
        "thesis_abstract_11k",
        "ThesisAbstractClassification-11K",
        (7_854, 1_683, 1_683),
        title="Thesis-Abstract-Classification-11K",
        labels=THESIS_LABELS,
        licence="CC BY 4.0",
        redistribution="Yes",
        processing="Class-balanced subset, already Turkish; split",
        notes=("Gated on the hub: log in and accept its terms once (approved at once).",),
    ),
)

_ir = partial(_row, category="information_retrieval", task="retrieval", metric="NDCG@10")
_tr_mteb = partial(
    _ir,
    licence="Not declared by its card; TR-MTEB allows non-commercial research only",
    redistribution="Research use only",
    processing="Translated by TR-MTEB (aya-expanse-8b); split only",
)
_INFORMATION_RETRIEVAL = (
    _ir(
        "bitext",
        "Wmt16-TR",
        (205_756, 1_001, 3_000),
        title="BiText",
        licence="Not declared by its card; WMT16 news data without one, SETIMES2 from OPUS",
        redistribution="Not declared",
        processing="Translated by people (WMT16, SETIMES2); split only",
        notes=("Across languages: the anchor is Turkish, the positive English.",),
    ),
    _tr_mteb(
        "msmarco_tr",
        "MsMarco-TR",
        (253_332, 31_540, 31_692),
        title="MsMarco-TR",
        processing="Machine translation collected by TR-MTEB; split only",
    ),
    _tr_mteb("scifact_tr", "Scifact-TR", (580, 339, 339), title="Scifact-TR"),
    _tr_mteb("fiqa_tr", "Fiqa-TR", (14_166, 1_238, 1_706), title="Fiqa-TR"),
    _tr_mteb(
        "nfcorpus_tr",
        "NFCorpus-TR",
        (110_575, 11_385, 12_334),
        title="NFCorpus-TR",
        notes=("Many positives a query; sizes, the weights of the average, count pairs.",),
    ),
    _tr_mteb("quora_tr", "Quora-TR", (6_100, 1_526, 15_675), title="Quora-TR"),
)

_code = partial(
    _row,
    category="code_retrieval",
    task="retrieval",
    metric="NDCG@10",
    columns={"anchor": "query", "positive": "doc"},
)
_CODE_RETRIEVAL = (
    _code(
        "apps_tr",
        "Apps-TR",
        (1_235, 3_765, 3_770),
        title="Apps-TR",
        licence="MIT",
        redistribution="Yes",
        processing="Problems translated; code unchanged; split",
        notes=(
            "The released test split has 3,765 rows; the published averages weigh it with 3,770.",
        ),
    ),
    _code(
        "cosqa_tr",
        "CosQA-TR",
        (19_604, 500, 500),
        title="CosQA-TR",
        licence="C-UDA 1.0",
        redistribution="Yes, for computational use",
        processing="Questions translated; code unchanged; split",
    ),
    _code(
        "stackoverflowqa_tr",
        "StackoverflowQA-TR",
        (13_951, 3_986, 1_994),
        title="StackOverflowQA-TR",
        licence="Not declared; Stack Overflow's CC BY-SA was not confirmed",
        redistribution="Unclear",
        processing="Natural language translated; split",
        notes=("Long: the 95th percentile is near 1,500 tokens, so 512 cuts much.",),
    ),
    _code(
        "codesearchnet_21k_tr",
        "CodeSearchNet-21K-TR",
        (15_000, 3_000, 3_000),
        title="CodeSearchNet-21K-TR",
        licence="MIT",
        redistribution="Yes, by each repository's terms",
        processing="Subsampled; docstrings translated; split",
        notes=("By its lengths the anchor is the code and the positive the docstring.",),
    ),
)


def _example(kind: TaskKind, category: str, revision: str, **facts: Any) -> Dataset:
    """A shipped set, named after its kind of task; `revision` is the hash of its files."""
    return Dataset(
        name=f"example-{kind}",
        title=f"example {kind}",
        build=kind,
        revision=revision,
        category=category,
        task=kind,
        sizes={"train": 288, "validation": 80, "test": 120},
        licence="tabiflow's own",
        redistribution="Yes",
        processing="Made from templates by tabiflow.example.generate",
        tags=("example",),
        **facts,
    )


_EXAMPLE = (
    _example(
        "classification",
        "text_classification",
        "831bdf96d5f829c2",
        labels=("olumlu", "olumsuz", "tarafsız"),
        metric="macro-F1",
    ),
    _example(
        "ner",
        "token_classification",
        "ba2ea196355c07b8",
        labels=("O", "B-PER", "I-PER", "B-LOC", "B-ORG", "I-ORG"),
        metric="entity-level micro-F1",
    ),
    _example(
        "pos",
        "token_classification",
        "d4890c7020f44ba4",
        labels=(
            *("ADJ", "ADP", "ADV", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PRON", "PROPN"),
            *("PUNCT", "VERB"),
        ),
        metric="micro-F1",
    ),
    _example("sts", "sts", "55c78eb71f68d05b", label_range=(0, 5), metric="Pearson"),
    _example(
        "nli",
        "nli",
        "417ce52284537923",
        labels=("entailment", "neutral", "contradiction"),
        metric="macro-F1",
    ),
    _example("qa", "qa", "b69e558ef1c50597", metric="F1 (span)"),
    _example("retrieval", "information_retrieval", "a8f4fa35a454cce5", metric="NDCG@10"),
)

DATASETS: tuple[Dataset, ...] = (
    *_TEXT_CLASSIFICATION,
    *_TOKEN_CLASSIFICATION,
    *_MORPHOLOGY,
    *_STS,
    *_NLI,
    *_QA,
    *_ACADEMIC_UNDERSTANDING,
    *_INFORMATION_RETRIEVAL,
    *_CODE_RETRIEVAL,
    *_EXAMPLE,
)

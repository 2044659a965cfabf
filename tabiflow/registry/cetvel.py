"""The tasks of CETVEL, one row for every column of the paper's appendix tables (3 to 9).

Ids, fields and splits are those of the benchmark's repository at commit 8942619, metrics those of
the paper; where the two part ways, or neither says enough, the row's notes do. No prompt is kept
here. Nothing is read from a hub.
"""

import json
from functools import partial
from importlib.resources import files

from tabiflow.errors import UserError, near
from tabiflow.spec import BenchmarkTask, Generation

REPOSITORY_COMMIT = "8942619"
CATEGORIES = ("QA", "MCQA", "TC", "NLI", "SUM", "MT", "GEC")
CATEGORY_NAMES = {
    "QA": "extractive question answering",
    "MCQA": "multiple-choice question answering",
    "TC": "text classification",
    "NLI": "natural language inference",
    "SUM": "summarisation",
    "MT": "machine translation",
    "GEC": "grammatical error correction",
}
_PER_TOKEN = "accuracy, the option of the lowest per-token perplexity"
_NOT_PER_TOKEN = (
    "The repository has no per-token rule: it takes the sum of log-probabilities (`acc`) and the "
    "sum per character (`acc_norm`); the paper does not say which of its figures it prints."
)
_GREEDY = Generation()
_BEAMS = Generation(beams=5)
_DECODING = (
    "The paper decodes `all generative tasks` with 5 beams and 64 tokens; the repository's scripts "
    "do so for summaries, translation and correction only, and stop these at an empty line."
)

_option = partial(
    BenchmarkTask, answered="option", metric="accuracy", paper_metric=_PER_TOKEN, rule="per_token"
)
_letter = partial(BenchmarkTask, answered="letter", metric="accuracy", paper_metric=_PER_TOKEN)
_written = partial(
    BenchmarkTask,
    category="MCQA",
    answered="written_letter",
    metric="accuracy",
    paper_metric=_PER_TOKEN,
    generation=_GREEDY,
)
_text = partial(BenchmarkTask, answered="text")

_qa = partial(
    _text, category="QA", metric="exact_match", paper_metric="Exact Match", generation=_GREEDY
)
_QUESTIONS = (
    _qa(
        name="xquad_tr",
        column="XQUAD",
        hub="xquad",
        configs=("xquad.tr",),
        split="validation",
        fields=("context", "question", "answers"),
        rows=1190,
        rows_from="google-deepmind/xquad, counted",
        gold="answers | answer_texts",
        notes=(
            _DECODING,
            "The repository samples at temperature 1 under the harness's own vLLM backend.",
        ),
    ),
    _qa(
        name="tquad",
        column="TQUAD",
        hub="mcemilg/tquad",
        split="validation",
        fields=("context", "question", "answers"),
        rows=892,
        rows_from="TQuad/turkish-nlp-qa-dataset dev-v0.1, counted",
        gold="answers | answer_texts",
        notes=(_DECODING,),
    ),
    _qa(
        name="mkqa_tr",
        column="MKQA",
        hub="mcemilg/mkqa_tr",
        split="train",
        fields=("query", "answers"),
        rows=10_000,
        rows_from="the paper",
        gold="answers | literal_list",
        exclusions=("no answer is given",),
        notes=("Closed book: no context is shown. Its only split is named train.", _DECODING),
    ),
)

_mc = partial(_option, category="MCQA")
_plu = partial(_mc, group="PLU", split="test", validation="validation", notes=(_NOT_PER_TOKEN,))
_FOUR_ENDINGS = "[ending0, ending1, ending2, ending3]"
_MULTIPLE_CHOICE = (
    _mc(
        name="xcopa_tr",
        column="XCOPA",
        hub="xcopa",
        configs=("tr",),
        split="test",
        validation="validation",
        fields=("premise", "question", "choice1", "choice2", "label"),
        rows=500,
        rows_from="the step of the published values",
        options="[choice1, choice2]",
        gold="label | place",
        notes=("The repository records only the sum of log-probabilities for it.",),
    ),
    _plu(
        name="turkish_plu_goal_inference",
        column="PLU_GI",
        hub="mcemilg/turkish-plu-goal-inference",
        fields=("sent2", "ending0", "ending1", "ending2", "ending3", "label"),
        rows=837,
        rows_from="GGLAB-KU/turkish-plu, counted",
        options=_FOUR_ENDINGS,
        gold="label | place",
    ),
    _plu(
        name="turkish_plu_next_event_prediction",
        column="PLU_NEP",
        hub="mcemilg/turkish-plu-next-event-prediction",
        fields=("sent1", "sent2", "ending0", "ending1", "ending2", "ending3", "label"),
        rows=655,
        rows_from="GGLAB-KU/turkish-plu, counted",
        options=_FOUR_ENDINGS,
        gold="label | place",
    ),
    _plu(
        name="turkish_plu_step_inference",
        column="PLU_SI",
        hub="mcemilg/turkish-plu-step-inference",
        fields=("sent2", "ending0", "ending1", "ending2", "ending3", "label"),
        rows=612,
        rows_from="GGLAB-KU/turkish-plu, counted",
        options=_FOUR_ENDINGS,
        gold="label | place",
    ),
    _plu(
        name="turkish_plu_step_ordering",
        column="PLU_SO",
        hub="mcemilg/turkish-plu-step-ordering",
        fields=("sent2", "ending0", "ending1", "label"),
        rows=1021,
        rows_from="GGLAB-KU/turkish-plu, counted",
        options="[ending0 ~ ' / ' ~ ending1, ending1 ~ ' / ' ~ ending0]",
        gold="label | place",
    ),
    _mc(
        name="exams_tr",
        column="Exams",
        hub="exams",
        configs=("crosslingual_tr",),
        split="validation",
        validation="train",
        fields=("question", "answerKey"),
        rows=393,
        rows_from="the paper",
        options="question.choices.text",
        gold="answerKey.strip() | place_in(question.choices.label)",
        exclusions=("the answer key is none of the labels",),
        notes=(
            "The repository takes a key that is none of the labels for the fourth option.",
            _NOT_PER_TOKEN,
        ),
    ),
    _letter(
        name="belebele_tr",
        column="Belebele",
        category="MCQA",
        hub="facebook/belebele",
        configs=("tur_Latn",),
        split="test",
        fields=(
            *("flores_passage", "question", "mc_answer1", "mc_answer2", "mc_answer3"),
            *("mc_answer4", "correct_answer_num"),
        ),
        rows=900,
        rows_from="the paper",
        options="[mc_answer1, mc_answer2, mc_answer3, mc_answer4]",
        gold="(correct_answer_num | place) - 1",
    ),
    _written(
        name="turkce_atasozleri",
        column="Proverbs",
        hub="abrek/turkce-atasozleri-lm-evaluation-harness",
        split="train",
        fields=("question", "choice1", "choice2", "choice3", "choice4", "answer"),
        rows=1730,
        rows_from="the paper",
        options="[choice1, choice2, choice3, choice4]",
        gold="answer | place",
        notes=(
            "The repository generates an answer and looks for a digit in it. Published values near "
            "0 cannot come from choosing the likeliest of four options, so the table is of that.",
            "Its only split is named train.",
        ),
    ),
    _letter(
        name="turkishmmlu",
        column="TurkishMMLU",
        category="MCQA",
        hub="AYueksel/TurkishMMLU",
        configs=(
            *("Biology", "Chemistry", "Geography", "History", "Mathematics", "Philosophy"),
            *("Physics", "Religion_and_Ethics", "Turkish_Language_and_Literature"),
        ),
        split="test",
        validation="dev",
        fields=("question", "choices", "answer"),
        rows=900,
        rows_from="the paper",
        options="choices",
        gold="answer | place",
        checkout=(
            *("turkishmmlu_biology", "turkishmmlu_chemistry", "turkishmmlu_geography"),
            *("turkishmmlu_history", "turkishmmlu_mathematics", "turkishmmlu_philosophy"),
            *("turkishmmlu_physics", "turkishmmlu_religion_and_ethics"),
            "turkishmmlu_turkish_language_and_literature",
        ),
    ),
    _written(
        name="bilmecebench",
        column="BilmeeceBench",
        hub="abrek/bilmecebench-lm-evaluation-harness",
        split="test",
        fields=("riddle", "choice_0", "choice_1", "choice_2", "choice_3", "correct_choice"),
        rows=442,
        rows_from="the paper",
        options="[choice_0, choice_1, choice_2, choice_3]",
        gold="correct_choice | place",
        notes=(
            "The repository generates an answer and takes its first letter from A to D, even one "
            "inside a word: `Cevap: A` counts as C.",
        ),
    ),
    _letter(
        name="circumflex_tr",
        column="CircumflexTR",
        category="MCQA",
        hub="abrek/circumflex_tr",
        split="train",
        fields=("word", "definition1", "definition2", "answer"),
        rows=70,
        rows_from="the step of the published values",
        options="[definition1, definition2]",
        gold="answer | place",
        notes=("Its only split is named train.",),
    ),
)

_tc = partial(_option, category="TC", notes=(_NOT_PER_TOKEN,))
_CLASSIFICATION = (
    _tc(
        name="sts_tr",
        column="STSb",
        hub="emrecan/stsb-mt-turkish",
        split="test",
        validation="validation",
        fields=("sentence1", "sentence2", "score"),
        rows=1379,
        rows_from="verimsu/STSb-TR, counted",
        options=("none", "low", "medium", "high", "very high", "same meaning"),
        gold="score | binned(0.5, 1.5, 2.5, 3.5, 4.5)",
        notes=(
            _NOT_PER_TOKEN,
            "Of 33 published models 31 are at or below the commonest class (22.99), and 12.9, "
            "which eight of them have, is that of always answering with the first option.",
        ),
    ),
    _tc(
        name="offenseval_tr",
        column="OffensEval",
        hub="offenseval2020_tr",
        split="test",
        validation="train",
        fields=("tweet", "subtask_a"),
        rows=3528,
        rows_from="the data set's card",
        options=("not offensive", "offensive"),
        gold="subtask_a | place_of('NOT', 'OFF')",
        notes=(
            _NOT_PER_TOKEN,
            "The repository asks about hate speech, the label is of offence. 30 of 33 published "
            "models are at or below 79.7, that of always answering with no.",
        ),
    ),
    _tc(
        name="news_cat",
        column="NewsCat",
        hub="mcemilg/news-cat",
        split="test",
        validation="train",
        fields=("text", "label"),
        rows=250,
        rows_from="the step of the published values",
        options=("sport", "magazine", "politics", "health", "economy"),
        gold="label | place_in(['sport', 'magazine', 'politics', 'health', 'economy'])",
    ),
    _tc(
        name="ironytr",
        column="IronyTR",
        hub="mcemilg/IronyTR",
        split="validation",
        fields=("text", "label"),
        rows=600,
        rows_from="the size of the data set, which the step of the published values allows",
        options=("not ironic", "ironic"),
        gold="label | place",
    ),
)

_UNLABELLED = (
    "The published denominators hold the rows without a label (-1), which no answer can get right."
)
_ORDER = (
    "Until commit 8942619 the repository's options stood in another order than its labels; the "
    "paper does not say on which side of it the table is."
)
_nli = partial(
    _option,
    category="NLI",
    fields=("premise", "hypothesis", "label"),
    options=("entailment", "neutral", "contradiction"),
    gold="label | place",
    exclusions=("the annotators did not agree (label -1)",),
    notes=(_NOT_PER_TOKEN, _UNLABELLED, _ORDER),
)
_INFERENCE = (
    _nli(
        name="mnli_tr",
        column="MNLI",
        hub="nli_tr",
        configs=("multinli_tr",),
        split="validation_matched",
        validation="train",
        rows=10_000,
        rows_from="the data set's card, with the rows without a label",
    ),
    _nli(
        name="snli_tr",
        column="SNLI",
        hub="nli_tr",
        configs=("snli_tr",),
        split="test",
        validation="validation",
        rows=10_000,
        rows_from="the data set's card, with the rows without a label",
    ),
    _nli(
        name="xnli_tr",
        column="XNLI",
        hub="xnli",
        configs=("tr",),
        split="test",
        validation="validation",
        rows=5010,
        rows_from="the size of XNLI's test split, not counted",
        notes=(
            _NOT_PER_TOKEN,
            _ORDER,
            "The harness that the repository pins has a task of the same name, which wins over "
            "the repository's.",
        ),
    ),
)

_sum = partial(
    _text,
    category="SUM",
    split="test",
    validation="validation",
    metric="rouge2",
    paper_metric="ROUGE-2",
    generation=_BEAMS,
)
_ROUGE = (
    "The paper names no tokenizer; the repository uses rouge-score's own, which breaks words at "
    "ç, ğ, ı, ö, ş and ü."
)
_NEWLINE = (
    "Stops at the end of a line; the repository names no stop, so the harness stops at an empty "
    "line."
)
_SUMMARIES = (
    _sum(
        name="xlsum_tr",
        column="XLSum",
        hub="csebuetnlp/xlsum",
        configs=("turkish",),
        fields=("title", "text", "summary"),
        rows=3397,
        rows_from="csebuetnlp/xl-sum's README",
        gold="summary",
        notes=(_ROUGE, _NEWLINE),
    ),
    _sum(
        name="wiki_lingua_tr",
        column="WikiLingua",
        hub="GEM/wiki_lingua",
        configs=("tr",),
        fields=("source", "target"),
        gold="target",
        notes=(_ROUGE, _NEWLINE),
    ),
    _sum(
        name="tr-wikihow-summ",
        column="WikiHowSumm",
        hub="ardauzunoglu/tr-wikihow-summ",
        fields=("text", "summary"),
        gold="summary",
        notes=(_ROUGE,),
    ),
    _sum(
        name="mlsum_tr",
        column="MLSum",
        hub="mlsum",
        configs=("tu",),
        fields=("title", "text", "summary"),
        rows=12_775,
        rows_from="the data set's card",
        gold="summary",
        notes=(_ROUGE, _NEWLINE),
    ),
)

_TRANSLATION = (
    _text(
        name="wmt-tr-en-prompt",
        column="WMT16EN-TR",
        category="MT",
        hub="wmt16",
        configs=("tr-en",),
        split="validation",
        fields=("translation",),
        rows=1001,
        rows_from="the size of newsdev2016, not counted",
        gold="translation.tr",
        metric="bleu",
        paper_metric="BLEU-4, without a signature",
        generation=_BEAMS,
        notes=(
            "From English to Turkish, although the name has it the other way round; the paper "
            "names neither direction nor split.",
            _NEWLINE,
        ),
    ),
)

_CORRECTION = (
    _text(
        name="gecturk_generation",
        column="GECTurk",
        category="GEC",
        hub="mcemilg/GECTurk-generation",
        split="test",
        validation="validation",
        fields=("source", "target"),
        rows=22_000,
        rows_from="the paper, rounded",
        gold="target",
        source="source",
        metric="gec_exact_match",
        paper_metric="macro-F1, undefined",
        generation=_BEAMS,
        notes=(
            "The repository computes whole-sentence exact match and no F1 of any kind.",
            "64 tokens cut long sentences off, which then cannot match.",
        ),
    ),
)

TASKS: tuple[BenchmarkTask, ...] = (
    *_QUESTIONS,
    *_MULTIPLE_CHOICE,
    *_CLASSIFICATION,
    *_INFERENCE,
    *_SUMMARIES,
    *_TRANSLATION,
    *_CORRECTION,
)


def known_prompts() -> dict[str, str]:
    """Hashes of the repository's prompts at `REPOSITORY_COMMIT`, for what can be taken over."""
    text = files(__package__).joinpath("cetvel_prompts.json").read_text(encoding="utf-8")
    found: dict[str, str] = json.loads(text)
    return found


def task(name: str) -> BenchmarkTask:
    """Raises UserError with a near name."""
    found = [each for each in TASKS if each.name == name]
    if not found:
        hint = near(name, [each.name for each in TASKS]) or "`tabiflow list tasks` shows them"
        raise UserError(f"no task `{name}`", hint=hint)
    return found[0]

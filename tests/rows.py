"""A few rows of every kind of task, as `tabiflow.data` hands them out."""

from collections.abc import Mapping

import pyarrow as pa

from tabiflow.data import Schema
from tabiflow.spec import TaskKind

TEXTS = (
    "Kargo çok hızlıydı , teşekkür ederim .",
    "Bu ürün berbat !",
    "Iğdır'da güneş var , İstanbul'da yağmur yağıyor ve kedi masanın üstünde uyuyor .",
    "Harika bir film",
    "Ahmet dün akşam Ayşe ile çok güzel bir film izledi .",
)
CONTEXT = "Mustafa Kemal Atatürk 1881 yılında Selanik'te doğdu . İç Anadolu'da Ankara başkenttir ."
ANSWERS = ("1881", "Selanik'te", "Mustafa Kemal Atatürk", "Ankara", "İç Anadolu'da Ankara")


def _answer(text: str) -> dict[str, list[object]]:
    return {"text": [text], "answer_start": [CONTEXT.index(text)]}


ROWS: Mapping[TaskKind, pa.Table] = {
    "classification": pa.table({"text": TEXTS, "label": ["iyi", "kötü", "nötr", "iyi", "nötr"]}),
    "nli": pa.table(
        {"premise": TEXTS, "hypothesis": TEXTS[::-1], "label": ["2", "1", "0", "1", "2"]}
    ),
    "sts": pa.table(
        {"sentence1": TEXTS, "sentence2": TEXTS[::-1], "score": [0.0, 5.0, 2.5, 1.25, 4.0]}
    ),
    "ner": pa.table(
        {
            "tokens": [text.split() for text in TEXTS],
            "tags": [
                ["O", "O", "O", "O", "O", "O", "O"],
                ["O", "O", "O", "O"],
                ["B-LOC", "O", "O", "O", "B-LOC", "I-LOC", "B-PER", "O", "O", "O", "O", "O", "O"],
                ["O", "O", "O"],
                ["B-PER", "I-PER", "O", "B-PER", "O", "O", "O", "O", "O", "O", "O"],
            ],
        }
    ),
    "pos": pa.table(
        {
            "tokens": [["Kedi", "uyuyor", "."], ["Harika", "film"], ["Ayşe"]],
            "tags": [["NOUN", "VERB", "_"], ["ADJ", "NOUN"], ["NOUN"]],
        }
    ),
    "qa": pa.table(
        {
            "id": [str(index) for index in range(len(ANSWERS))],
            "context": [CONTEXT] * len(ANSWERS),
            "question": ["Ne zaman ?", "Nerede doğdu ?", "Kim ?", "Başkent ?", "Nerede ?"],
            "answers": [_answer(text) for text in ANSWERS],
        }
    ),
    "retrieval": pa.table(
        {
            "anchor": ["film", "kargo", "film", "hava", "kedi"],
            "positive": [TEXTS[3], TEXTS[0], TEXTS[4], TEXTS[2], TEXTS[2]],
        }
    ),
}
SCHEMAS: Mapping[TaskKind, Schema] = {
    "classification": Schema(("iyi", "kötü", "nötr", "hiç")),
    "nli": Schema(("0", "1", "2")),
    "sts": Schema(label_range=(0.0, 5.0)),
    "ner": Schema(("O", "B-PER", "I-PER", "B-LOC", "I-LOC")),
    "pos": Schema(("ADJ", "NOUN", "VERB", "_")),
    "qa": Schema(),
    "retrieval": Schema(),
}

"""One trial the plain way: load, tokenise, transformers' Trainer, an evaluation each epoch.

As a script it is a process a trial: `python trainer.py trial.json`, everything padded to
`max_length` and the last state of the run kept on disk after each epoch, as TabiBench's released
code does. Batches, schedule, loss and stopping are those of tabiflow's protocol, so that the scores
must agree. Nothing of tabiflow runs here but the comparison of two answers: rows are read and
scored by the libraries that such scripts use.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import load_dataset
from scipy.stats import pearsonr
from sklearn.metrics import accuracy_score, ndcg_score
from torch.nn import functional
from torch.utils.data import DataLoader
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from tabiflow.answers import answer_f1, turkish_words

IGNORED = -100
LONGEST_ANSWER = 30
SCALE = 20.0
FLOOR, WARMUP = 0.02, 0.06
Rows = list[dict[str, Any]]
Settings = Mapping[str, Any]


def run(settings: Settings, report: Callable[[dict[str, float]], None] = lambda _: None) -> dict:
    """Trains one trial; `report` gets each epoch's `score` and `loss`."""
    torch.set_num_threads(1)
    kind = KINDS[settings["task"]](settings)
    train, validation = (kind.encode(kind.rows(split)) for split in ("train", "validation"))
    train = [row for row in train if kind.trainable(row)]
    set_seed(settings["seed"])
    model = kind.model()
    watch = Watch(kind, report)
    trainer = Plain(
        kind,
        train,
        validation,
        model=model,
        args=arguments(settings, len(kind.epochs(train))),
        data_collator=kind.collate,
        train_dataset=train,
        eval_dataset=validation,
        compute_metrics=lambda found: {"score": kind.score(found, validation)},
        callbacks=[watch],
    )
    trainer.train()
    best = min(watch.seen, key=lambda each: each["loss"])
    return {**best, "epochs": len(watch.seen), "train_seconds": watch.train_seconds}


def arguments(settings: Settings, steps: int) -> TrainingArguments:
    return TrainingArguments(
        output_dir=settings.get("output", "trainer"),
        max_steps=steps,
        per_device_train_batch_size=settings["batch_size"],
        per_device_eval_batch_size=32,
        learning_rate=settings["learning_rate"],
        # Decoupled from the rate, as the released code means it for most data sets.
        weight_decay=settings["weight_decay"] / settings["learning_rate"],
        adam_beta1=0.9,
        adam_beta2=0.98,
        adam_epsilon=1e-6,
        max_grad_norm=0.0,
        eval_strategy="epoch",
        save_strategy=settings["save"],
        save_total_limit=1,
        logging_strategy="no",
        label_names=["labels"],
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        use_cpu=True,
        disable_tqdm=True,
        report_to="none",
        seed=settings["seed"],
    )


class Watch(TrainerCallback):
    """Patience on the validation loss, and the seconds between evaluations."""

    def __init__(self, kind: "Kind", report: Callable[[dict[str, float]], None]) -> None:
        self.kind, self.patience, self.report = kind, kind.settings["patience"], report
        self.seen: list[dict[str, float]] = []
        self.train_seconds = 0.0

    def on_epoch_begin(self, args, state, control, **_) -> None:
        self.began = time.perf_counter()

    def on_epoch_end(self, args, state, control, **_) -> None:
        self.train_seconds += time.perf_counter() - self.began

    def on_evaluate(self, args, state, control, metrics, **_) -> None:
        epoch = {"epoch": len(self.seen) + 1, "score": metrics["eval_score"]}
        self.seen.append({**epoch, "loss": self.kind.mean_loss()})
        self.report(self.seen[-1])
        best = min(range(len(self.seen)), key=lambda place: self.seen[place]["loss"])
        if len(self.seen) - 1 - best >= self.patience:
            control.should_training_stop = True


class EpochBatches:
    """The batches of one epoch after the other."""

    def __init__(self, epochs: Sequence[list[list[int]]]) -> None:
        self.epochs, self.epoch = epochs, 0

    def __len__(self) -> int:
        return len(self.epochs[min(self.epoch, len(self.epochs) - 1)])

    def __iter__(self) -> Iterator[list[int]]:
        # The Trainer may leave an epoch's iterator before its end.
        epoch, self.epoch = self.epoch, self.epoch + 1
        yield from self.epochs[epoch]


class Plain(Trainer):
    """Trainer with tabiflow's batches and schedule, and a loss that no padding enters."""

    def __init__(self, kind: "Kind", train: Rows, validation: Rows, **fields: Any) -> None:
        super().__init__(**fields)
        self.kind, self.train_rows, self.validation_rows = kind, train, validation

    def get_train_dataloader(self) -> DataLoader:
        count = self.kind.settings["epochs"]
        epochs = [self.kind.batches(self.train_rows, epoch) for epoch in range(1, count + 1)]
        return self._batched(self.train_rows, epochs)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        if self.kind.settings["task"] != "retrieval":
            return super().get_eval_dataloader(eval_dataset)
        # An in-batch loss depends on the batches.
        return self._batched(self.validation_rows, [self.kind.batches(self.validation_rows, 0)])

    def _batched(self, rows: Rows, epochs: list[list[list[int]]]) -> DataLoader:
        return DataLoader(rows, batch_sampler=EpochBatches(epochs), collate_fn=self.kind.collate)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        size, epochs = self.kind.settings["batch_size"], self.kind.settings["epochs"]
        planned = -(-len(self.train_rows) // size) * epochs
        rising = int(WARMUP * planned)

        def factor(step: int) -> float:
            if step < rising:
                return step / rising
            return 1 + min(1.0, (step - rising) / max(1, planned - rising)) * (FLOOR - 1)

        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)
        return self.lr_scheduler

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None) -> Any:
        loss, outputs = self.kind.loss(model, inputs)
        if not model.training:
            self.kind.scored.append((float(loss), self.kind.weight(inputs)))
        return (loss, {"loss": loss, "outputs": outputs}) if return_outputs else loss


class Kind:
    """What differs between the kinds of task."""

    auto: Any
    head: Mapping[str, Any] = {}

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.scored: list[tuple[float, int]] = []
        """Each scored batch's mean loss and its weight: the Trainer's own mean takes a short last
        batch for a whole one."""
        self.tokenizer = AutoTokenizer.from_pretrained(settings["model"])
        self.length = settings["max_length"]

    def rows(self, split: str) -> Rows:
        files = {split: str(Path(self.settings["data"]) / f"{split}.parquet")}
        return load_dataset("parquet", data_files=files, split=split).to_list()

    def model(self) -> torch.nn.Module:
        return self.auto.from_pretrained(self.settings["model"], dtype=torch.float32, **self.head)

    def trainable(self, row: dict[str, Any]) -> bool:
        return True

    def order(self, rows: Rows, epoch: int) -> list[int]:
        generator = torch.Generator().manual_seed((self.settings["seed"] << 16) + epoch)
        return torch.randperm(len(rows), generator=generator).tolist()

    def batches(self, rows: Rows, epoch: int) -> list[list[int]]:
        order, size = self.order(rows, epoch), self.settings["batch_size"]
        return [order[start : start + size] for start in range(0, len(order), size)]

    def epochs(self, rows: Rows) -> list[list[int]]:
        """All batches of a whole run, for their number."""
        numbers = range(1, self.settings["epochs"] + 1)
        return [batch for epoch in numbers for batch in self.batches(rows, epoch)]

    def padded(self, rows: Rows, prefix: str = "") -> dict[str, torch.Tensor]:
        names = [name for name in self.tokenizer.model_input_names if prefix + name in rows[0]]
        width = self.length
        if self.settings["padding"] == "longest":
            width = max(len(row[f"{prefix}input_ids"]) for row in rows)
        fill = {"input_ids": self.tokenizer.pad_token_id}
        return {
            prefix + name: filled([row[prefix + name] for row in rows], width, fill.get(name, 0))
            for name in names
        }

    def collate(self, rows: Rows) -> dict[str, torch.Tensor]:
        return {**self.padded(rows), "labels": torch.tensor([row["labels"] for row in rows])}

    def weight(self, batch: Mapping[str, torch.Tensor]) -> int:
        return len(batch["labels"])

    def mean_loss(self) -> float:
        """Of the batches scored since the last call."""
        total = sum(loss * weight for loss, weight in self.scored)
        total /= sum(weight for _, weight in self.scored)
        self.scored.clear()
        return total

    def inputs(self, batch: Mapping[str, torch.Tensor], prefix: str = "") -> dict[str, Any]:
        names = self.tokenizer.model_input_names
        return {name: batch[prefix + name] for name in names if prefix + name in batch}

    def loss(self, model: torch.nn.Module, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        found = model(**self.inputs(batch), labels=batch["labels"])
        return found.loss, found.logits


def filled(rows: Sequence[Sequence[int]], width: int, value: int) -> torch.Tensor:
    return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows])


class Tagging(Kind):
    auto = AutoModelForTokenClassification

    @property
    def head(self) -> Mapping[str, Any]:
        return {"num_labels": len(self.settings["labels"])}

    def encode(self, rows: Rows) -> Rows:
        number = {label: place for place, label in enumerate(self.settings["labels"])}
        encoded = self.tokenizer(
            [row["tokens"] for row in rows],
            is_split_into_words=True,
            truncation=True,
            max_length=self.length,
        )
        made = []
        for place, row in enumerate(rows):
            words = encoded.word_ids(place)
            opens = [word is not None and word != words[i - 1] for i, word in enumerate(words)]
            tags = [number[tag] for tag in row["pos_tags"]]
            pairs = zip(words, opens, strict=True)
            labels = [tags[word] if first else IGNORED for word, first in pairs]
            fields = {name: encoded[name][place] for name in encoded}
            made.append({**fields, "labels": labels, "words": len(tags)})
        return made

    def collate(self, rows: Rows) -> dict[str, torch.Tensor]:
        inputs = self.padded(rows)
        width = inputs["input_ids"].shape[1]
        return {**inputs, "labels": filled([row["labels"] for row in rows], width, IGNORED)}

    def weight(self, batch: Mapping[str, torch.Tensor]) -> int:
        return int((batch["labels"] != IGNORED).sum())

    def score(self, found: Any, rows: Rows) -> float:
        """A word without a token counts as wrong."""
        known = found.label_ids != IGNORED
        told = found.predictions.argmax(-1)
        right = accuracy_score(found.label_ids[known], told[known], normalize=False)
        return 100 * right / sum(row["words"] for row in rows)


class Similarity(Kind):
    auto = AutoModelForSequenceClassification
    head: Mapping[str, Any] = {"num_labels": 1}

    def encode(self, rows: Rows) -> Rows:
        pairs = ([row["sentence1"] for row in rows], [row["sentence2"] for row in rows])
        encoded = self.tokenizer(*pairs, truncation=True, max_length=self.length)
        return [
            {**{name: encoded[name][place] for name in encoded}, "labels": float(row["score"])}
            for place, row in enumerate(rows)
        ]

    def score(self, found: Any, rows: Rows) -> float:
        told = np.clip(found.predictions.squeeze(-1).astype(np.float64), 0, 5)
        return 100 * float(pearsonr(told, found.label_ids).statistic)


class Answers(Kind):
    auto = AutoModelForQuestionAnswering

    def encode(self, rows: Rows) -> Rows:
        encoded = self.tokenizer(
            [row["question"] for row in rows],
            [row["context"] for row in rows],
            truncation="only_second",
            max_length=self.length,
            return_offsets_mapping=True,
        )
        offsets = encoded.pop("offset_mapping")
        made = []
        for place, row in enumerate(rows):
            context = [each == 1 for each in encoded.sequence_ids(place)]
            pairs = zip(offsets[place], context, strict=True)
            spans = [offset if inside else None for offset, inside in pairs]
            fields = {name: encoded[name][place] for name in encoded}
            made.append({**fields, "labels": target(row["answers"], spans), "spans": spans})
            made[-1] |= {"context": row["context"], "golds": row["answers"]["text"]}
        return made

    def trainable(self, row: dict[str, Any]) -> bool:
        return row["labels"][0] != IGNORED

    def loss(self, model: torch.nn.Module, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        found = model(**self.inputs(batch))
        logits = torch.stack([found.start_logits, found.end_logits], dim=-1)
        padding = batch["attention_mask"].unsqueeze(-1) == 0
        masked = logits.masked_fill(padding, -torch.inf)
        return functional.cross_entropy(masked, batch["labels"]), logits

    def score(self, found: Any, rows: Rows) -> float:
        pairs = zip(found.predictions, rows, strict=True)
        return float(np.mean([best_f1(logits, row) for logits, row in pairs]))


def target(answers: Mapping[str, Any], spans: Sequence[tuple[int, int] | None]) -> list[int]:
    """The tokens at the ends of the first answer; ignored where it was cut off."""
    text, start = answers["text"][0], answers["answer_start"][0]
    start += len(text) - len(text.lstrip())
    end = start + len(text.strip())
    inside = [place for place, span in enumerate(spans) if span]
    if end > spans[inside[-1]][1]:
        return [IGNORED, IGNORED]
    opening = next(place for place in inside if spans[place][1] > start)
    return [opening, max(place for place in inside if spans[place][0] < end)]


def best_f1(logits: np.ndarray, row: dict[str, Any]) -> float:
    """The best span inside the context and not too long, against the golds."""
    inside = np.array([span is not None for span in row["spans"]])
    start, end = (np.where(inside, logits[: len(inside), side], -np.inf) for side in (0, 1))
    sums = start[:, None] + end[None, :]
    far = np.subtract.outer(np.arange(len(inside)), np.arange(len(inside)))
    sums[(far > 0) | (far <= -LONGEST_ANSWER)] = -np.inf
    opening, closing = np.unravel_index(int(sums.argmax()), sums.shape)
    told = row["context"][row["spans"][opening][0] : row["spans"][closing][1]].strip()
    return max(answer_f1(turkish_words(gold), turkish_words(told)) for gold in row["golds"])


class Retrieval(Kind):
    auto = AutoModel

    def encode(self, rows: Rows) -> Rows:
        made: Rows = [{} for _ in rows]
        for column in ("anchor", "positive"):
            texts = [row[column] for row in rows]
            number = {text: place for place, text in enumerate(dict.fromkeys(texts))}
            encoded = self.tokenizer(texts, truncation=True, max_length=self.length[column])
            for place, row in enumerate(made):
                row |= {f"{column}_{name}": encoded[name][place] for name in encoded}
                row.setdefault("labels", []).append(number[texts[place]])
        return made

    def batches(self, rows: Rows, epoch: int) -> list[list[int]]:
        """No text twice in a batch; a row that does not fit goes to the first that takes it."""
        made: list[list[int]] = []
        for row in self.order(rows, epoch):
            own = rows[row]["labels"]
            for batch in made:
                full = len(batch) == self.settings["batch_size"]
                if not full and not any(has_common(own, rows[each]["labels"]) for each in batch):
                    batch.append(row)
                    break
            else:
                made.append([row])
        return made

    def collate(self, rows: Rows) -> dict[str, torch.Tensor]:
        length, batch = self.length, {}
        for column in ("anchor", "positive"):
            self.length = length[column]
            batch |= self.padded(rows, f"{column}_")
        self.length = length
        return {**batch, "labels": torch.tensor([row["labels"] for row in rows])}

    def loss(self, model: torch.nn.Module, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        anchors, positives = (
            functional.normalize(self.pooled(model, batch, column), dim=1)
            for column in ("anchor", "positive")
        )
        similar = SCALE * anchors @ positives.T
        own = torch.arange(len(similar))
        return functional.cross_entropy(similar, own), torch.stack([anchors, positives], dim=1)

    def pooled(self, model: torch.nn.Module, batch: Any, column: str) -> torch.Tensor:
        inputs = self.inputs(batch, f"{column}_")
        mask = inputs["attention_mask"].unsqueeze(-1).float()
        return (model(**inputs).last_hidden_state * mask).sum(1) / mask.sum(1)

    def score(self, found: Any, rows: Rows) -> float:
        """NDCG@10 over the split's unique positives."""
        relevant: dict[int, set[int]] = {}
        queries, corpus = {}, {}
        for (anchor, positive), vectors in zip(found.label_ids, found.predictions, strict=True):
            relevant.setdefault(int(anchor), set()).add(int(positive))
            queries.setdefault(int(anchor), vectors[0])
            corpus.setdefault(int(positive), vectors[1])
        documents = sorted(corpus)
        wanted = [[each in relevant[query] for each in documents] for query in queries]
        similar = np.stack([*queries.values()]) @ np.stack([corpus[each] for each in documents]).T
        return 100 * float(ndcg_score(wanted, similar, k=10))


def has_common(first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether anchor or positive is the same."""
    return first[0] == second[0] or first[1] == second[1]


KINDS: Mapping[str, type[Kind]] = {
    "pos": Tagging,
    "sts": Similarity,
    "qa": Answers,
    "retrieval": Retrieval,
}


if __name__ == "__main__":
    given = Path(sys.argv[1])
    result = run(json.loads(given.read_text()))
    given.with_suffix(".result.json").write_text(json.dumps(result))

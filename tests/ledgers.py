"""Small trials and real ledgers for the tests of `tabiflow.ledger`."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from tabiflow.ledger import Recorder
from tabiflow.ledger.store import Store
from tabiflow.protocol import Params
from tabiflow.trial import Epoch, Result, Trial

SWEEP = "a-sweep"


def trial(
    model: str = "bert", dataset: str = "reviews", rate: float = 1e-5, **changes: Any
) -> Trial:
    made = Trial(
        model=model,
        dataset=dataset,
        model_identity={"hub": f"someone/{model}", "revision": "1" * 40},
        dataset_identity={"hub": f"someone/{dataset}", "task": "ner", "version": 1},
        params=Params(learning_rate=rate),
    )
    return replace(made, **changes)


def begin(recorder: Recorder, made: Trial, attempt: int = 1) -> None:
    recorder.cell(made.cell, "ner", "entity_f1", {"model_commit": "abc"})
    recorder.start(made, attempt, f"lr{made.params.learning_rate}", {"device": "cpu"})


def record(
    recorder: Recorder, made: Trial, attempt: int = 1, *, epochs: int = 3, ending: Any = None
) -> None:
    """An attempt from its start to its end, by default a good one."""
    begin(recorder, made, attempt)
    for number in range(1, epochs + 1):
        recorder.epoch(made.id, attempt, epoch(number))
    result = Result(epoch=epochs, score=50.0 + epochs, metrics={"validation_accuracy": 70.0})
    recorder.finish(made.id, attempt, ending or result)


def epoch(number: int) -> Epoch:
    return Epoch(number, 50.0 + number, 1 / number, {"train_loss": 2.0, "accuracy": 70.0})


def copied(template: Path, folder: Path) -> Store:
    folder.mkdir(exist_ok=True)
    return Store.open(f"sqlite:///{shutil.copy(template, folder / 'mlflow.db')}")


def runs(store: Store, query: str = "", sweep: str = SWEEP) -> list[Run]:
    """As somebody with MLflow's own client sees them."""
    client = MlflowClient(store.uri)
    experiment = client.get_experiment_by_name(sweep)
    return list(client.search_runs([experiment.experiment_id], query))


def trials_of(found: list[Run]) -> set[str]:
    return {run.data.tags["trial"] for run in found}


def history(store: Store, run_id: str, metric: str) -> list[tuple[int, float]]:
    points = MlflowClient(store.uri).get_metric_history(run_id, metric)
    return [(point.step, point.value) for point in points]

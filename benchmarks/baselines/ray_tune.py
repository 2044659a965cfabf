"""Plain Ray Tune: a function trainable around the same Trainer, as Ray's documentation shows it.

Default settings, a process of its own for each trial, the MLflow callback with artifacts. Batches
are padded to their longest row, which is the Trainer's own default.

    python ray_tune.py study.json
"""

import json
import sys
from pathlib import Path

import ray
from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback


def trainable(config: dict) -> None:
    from baselines.trainer import run  # as in Ray's examples: imported where it runs

    settings = {**config["data"], **{key: each for key, each in config.items() if key != "data"}}
    run(settings, report=tune.report)


if __name__ == "__main__":
    study = json.loads(Path(sys.argv[1]).read_text())
    ray.init(num_cpus=study["workers"], include_dashboard=False, log_to_driver=False)
    tuner = tune.Tuner(
        trainable,
        param_space={
            **study["fixed"],
            "data": tune.grid_search(study["datasets"]),
            **{name: tune.grid_search(values) for name, values in study["space"].items()},
        },
        run_config=tune.RunConfig(
            name="trials",
            storage_path=study["storage"],
            callbacks=[
                MLflowLoggerCallback(
                    tracking_uri=study["tracking"], experiment_name="trials", save_artifact=True
                )
            ],
        ),
    )
    results = tuner.fit()
    found = []
    for each in results:
        epochs = each.metrics_dataframe
        best = epochs.loc[epochs["loss"].idxmin()]
        names = ("learning_rate", "weight_decay", "batch_size")
        settings = {name: each.config[name] for name in names}
        data = each.config["data"]["name"]
        found.append({"data": data, **settings, "score": float(best["score"])})
    Path(sys.argv[1]).with_suffix(".result.json").write_text(json.dumps(found))

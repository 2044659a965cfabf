"""Models and data sets from a hub on the loopback, through the libraries that really fetch them.

Those read the hub's address once, when they are imported, so one further process does the fetching.
"""

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from http import HTTPStatus

import pytest
from hub import files_of, loopback
from tiny import tiny_model

from tabiflow import data, hub
from tabiflow.audit import audit
from tabiflow.encoding import TextEncoder
from tabiflow.errors import DataError, EnvironmentFault, ModelError
from tabiflow.generative import origin
from tabiflow.registry import resolve
from tabiflow.registry.cetvel import task
from tabiflow.spec import Dataset, Model, Sweep
from tabiflow.trial import Opening

OPENING = Opening(trial="0" * 12, who="a test", at="2026-01-01T00:00:00Z", code="-")


@pytest.fixture(scope="module")
def server():
    with loopback() as running:
        yield running


@pytest.fixture(scope="module")
def fetching(server, tmp_path_factory):
    """Calls a function in the process whose hub is the loopback's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", server.url)
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("HF_TOKEN", "hf_secret")
        patch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            yield lambda *call: pool.submit(*call).result()


@pytest.fixture(autouse=True)
def no_leftovers(server):
    server.answers.clear()
    server.requests.clear()


def rows(*labels):
    lines = [json.dumps({"text": f"metin {label}", "label": label}) for label in labels]
    return ("\n".join(lines) + "\n").encode()


def dataset_files(*labels, validation="validation"):
    return {f"{split}.jsonl": rows(*labels) for split in ("train", validation, "test")}


def published(server, repository, **fields):
    commit = server.publish("datasets", repository, dataset_files("a", "b", repository))
    return Dataset(name="set", hub=repository, task="classification", **fields), commit


@pytest.fixture(scope="module")
def encoder_files(tmp_path_factory):
    return files_of(tiny_model(tmp_path_factory.mktemp("bert")))


def model_row(server, repository, files, **fields):
    commit = server.publish("models", repository, files)
    return Model(name="encoder", hub=repository, **fields), commit


def encoder_facts(model):
    """What of an encoder can travel between processes."""
    encoder = TextEncoder(model)
    ids = encoder.tokenizer("bir metin")["input_ids"]
    return encoder.source, encoder.commit, encoder.limit, len(ids)


def test_a_data_set_is_read_and_its_commit_recorded(server, fetching):
    dataset, commit = published(server, "owner/plain")
    loaded = fetching(data.load, dataset, {})
    assert loaded.commit == commit
    assert loaded.schema.labels == ("a", "b", "owner/plain")
    assert loaded.train["row"].to_pylist() == [0, 1, 2]
    assert fetching(data.load_test, dataset, {}, OPENING).rows.num_rows == 3


def test_a_local_copy_has_the_hubs_fingerprints(server, fetching, tmp_path):
    dataset, _ = published(server, "owner/copied")
    for name, content in dataset_files("a", "b", "owner/copied").items():
        (tmp_path / name).write_bytes(content)
    local = Dataset(name="set", path=tmp_path, task="classification")
    assert fetching(data.load, dataset, {}).fingerprints == data.load(local, {}).fingerprints


def test_a_benchmarks_task_reads_the_splits_that_its_row_names(server, fetching):
    row = {"text": "Harika!", "label": 1}
    files = {f"{split}.jsonl": json.dumps(row).encode() for split in ("train", "test")}
    commit = server.publish("datasets", "owner/irony", files)
    row = task("ironytr").model_copy(
        update={"hub": "owner/irony", "split": "test", "validation": "train"}
    )
    found = fetching(origin.opened, row, "hub")
    assert (len(found.test), len(found.validation), found.commit) == (1, 1, commit)
    assert found.test == [{"text": "Harika!", "label": 1}]
    with pytest.raises(DataError, match="no split `dev`, but"):
        fetching(origin.opened, row.model_copy(update={"split": "dev"}), "hub")


def test_each_configuration_of_a_benchmarks_task_is_a_subject(server, fetching):
    row = {"question": "Kaç?", "choices": ["bir", "iki"], "answer": "A"}
    card = "".join(
        f"- config_name: {name}\n  data_files:\n  - split: test\n    path: {name}.jsonl\n"
        for name in ("Biology", "Physics")
    )
    files = {f"{name}.jsonl": json.dumps(row).encode() for name in ("Biology", "Physics")}
    files["README.md"] = f"---\nconfigs:\n{card}---\n".encode()
    server.publish("datasets", "owner/mmlu", files)
    row = task("turkishmmlu").model_copy(
        update={"hub": "owner/mmlu", "configs": ("Biology", "Physics"), "validation": None}
    )
    found = fetching(origin.opened, row, "hub")
    assert [each["_subject"] for each in found.test] == ["Biology", "Physics"]


@pytest.mark.parametrize("name", ["dev", "valid", "val"])
def test_a_validation_split_by_another_name_is_one(server, fetching, name):
    server.publish("datasets", f"owner/{name}", dataset_files("a", "b", validation=name))
    dataset = Dataset(name="set", hub=f"owner/{name}", task="classification")
    assert fetching(data.load, dataset, {}).split_rule == "as given"


def test_a_missing_column_of_the_hub_is_named(server, fetching):
    dataset, _ = published(server, "owner/columns", columns={"text": "txt"})
    with pytest.raises(DataError, match=r"owner/columns \(train\): no column `txt`.*`text`"):
        fetching(data.load, dataset, {})


def test_a_hub_that_falters_once_is_asked_again(server, fetching):
    dataset, commit = published(server, "owner/falters")
    server.answers = [HTTPStatus.SERVICE_UNAVAILABLE]
    assert fetching(data.load, dataset, {}).commit == commit
    asked = "GET /api/datasets/owner/falters/revision/main"
    assert server.requests.count(asked) == 2


def test_a_hub_that_falters_in_the_middle_is_asked_again(server, fetching):
    dataset, commit = published(server, "owner/middle")
    dataset = dataset.model_copy(update={"revision": commit})
    server.answers = [HTTPStatus.BAD_GATEWAY]
    assert fetching(data.load, dataset, {}).train.num_rows == 3


@pytest.mark.parametrize("kind", ["dataset", "model"])
def test_what_is_not_there_is_one_clear_line(fetching, kind):
    error = DataError if kind == "dataset" else ModelError
    with pytest.raises(error, match=r"`owner/nothing` of the hub does not exist") as caught:
        fetching(hub.commit, hub.Repository(kind, "owner/nothing"))
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_revision_that_is_not_there_is_named(server, fetching):
    dataset, _ = published(server, "owner/revised", revision="v9")
    with pytest.raises(DataError, match="has no revision `v9`"):
        fetching(data.resolve_commit, dataset)


@pytest.mark.parametrize("status", [HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN])
def test_a_refusal_says_that_it_may_be_private(server, fetching, status):
    dataset, _ = published(server, "owner/private")
    server.answers = [status]
    with pytest.raises(DataError, match="private"):
        fetching(data.resolve_commit, dataset)


def test_an_id_that_is_none_is_the_rows_mistake(fetching):
    with pytest.raises(DataError, match="owner/name"):
        fetching(hub.commit, hub.Repository("dataset", "a/b/c/d"))


def test_a_changed_revision_is_another_commit_with_other_rows(server, fetching):
    dataset, first = published(server, "owner/changes")
    before = fetching(data.load, dataset, {"train": 1})
    second = server.publish("datasets", "owner/changes", dataset_files("x", "y"))
    assert fetching(data.resolve_commit, dataset) == second != first
    after = fetching(data.load, dataset, {"train": 2})
    assert (before.commit, after.commit) == (first, second)
    assert after.schema.labels == ("x", "y")


def test_a_pinned_commit_is_what_is_read_though_main_has_moved(server, fetching):
    dataset, first = published(server, "owner/pinned")
    server.publish("datasets", "owner/pinned", dataset_files("x", "y"))
    pinned = dataset.model_copy(update={"revision": first})
    assert fetching(data.load, pinned, {}).schema.labels == ("a", "b", "owner/pinned")


def test_a_cached_commit_never_stands_in_for_another(server, fetching):
    dataset, _ = published(server, "owner/cached")
    fetching(data.load, dataset, {})
    second = server.publish("datasets", "owner/cached", dataset_files("x", "y"))
    repository = hub.Repository("dataset", "owner/cached", second)
    server.answers = [HTTPStatus.NOT_FOUND] * 100
    with pytest.raises((DataError, EnvironmentFault)):
        fetching(hub.dataset_tables, repository, None, second, ())


def test_a_model_is_read_and_its_commit_recorded(server, fetching, encoder_files):
    model, commit = model_row(server, "owner/bert", encoder_files)
    source, recorded, limit, tokens = fetching(encoder_facts, model)
    assert (recorded, limit) == (commit, 64)
    assert tokens > 2
    assert commit in source


def test_a_model_is_fetched_with_patience(server, fetching, encoder_files):
    model, commit = model_row(server, "owner/slow", {**encoder_files, "README.md": b"slow"})
    server.answers = [HTTPStatus.SERVICE_UNAVAILABLE]
    assert fetching(encoder_facts, model)[1] == commit


def audited(file):
    """What of an audit can travel between processes."""
    sweep = Sweep.read(file)
    found = audit(sweep, resolve(sweep))
    return {(each.code, each.dataset or each.model) for each in found.findings}, found.models


def test_an_audit_needs_no_weights_and_says_what_it_cannot_get(
    server, fetching, encoder_files, tmp_path
):
    bare = {name: each for name, each in encoder_files.items() if "safetensors" not in name}
    server.publish("models", "owner/bare", bare)
    texts = {f"{name}.jsonl": rows("Bu", name, "ürün") for name in ("train", "validation", "test")}
    server.publish("datasets", "owner/near", texts)
    models = [{"name": name, "hub": f"owner/{name}"} for name in ("bare", "gone")]
    sets = [
        {"name": name, "hub": f"owner/{name}", "task": "classification"} for name in ("near", "far")
    ]
    file = tmp_path / "study.yaml"
    search = [{"datasets": [*sets, "tquad"], "space": {"learning_rate": 1e-5}}]
    file.write_text(json.dumps({"name": "study", "models": models, "search": search}))
    found, measured = fetching(audited, file)
    assert {
        *(("model-unavailable", "gone"), ("data-unavailable", "far")),
        *(("data-unavailable", "tquad"), ("split-rule-deviation", "tquad")),
    } <= found
    assert [each.model for each in measured] == ["bare"]


def test_pickled_weights_are_not_fetched(server, fetching, encoder_files):
    files = {name: each for name, each in encoder_files.items() if "safetensors" not in name}
    model, _ = model_row(server, "owner/pickled", {**files, "pytorch_model.bin": b"pickle"})
    with pytest.raises(ModelError, match="no safetensors"):
        fetching(encoder_facts, model)
    assert not any("pytorch_model" in request for request in server.requests)


def test_a_hub_out_of_reach_is_the_environments_fault():
    def unreachable():
        raise ConnectionError

    repository = hub.Repository("dataset", "owner/name")
    with pytest.raises(EnvironmentFault, match="out of reach"):
        hub.patiently(unreachable, repository, pauses=(0.0, 0.0))


def test_a_hub_that_keeps_faltering_is_the_environments_fault(server, fetching):
    server.answers = [HTTPStatus.SERVICE_UNAVAILABLE] * 2
    with pytest.raises(EnvironmentFault, match="answers 503"):
        fetching(hub.commit, hub.Repository("model", "owner/down"), (0.0,))


def test_a_full_disk_is_the_environments_fault():
    def full():
        raise OSError(28, "No space left on device")

    with pytest.raises(EnvironmentFault, match="cannot be stored"):
        hub.patiently(full, hub.Repository("model", "owner/name"), pauses=())

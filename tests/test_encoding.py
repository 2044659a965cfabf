"""Tokenizers as their rows say, lengths, padding, and encoded splits kept on disk."""

import json
import subprocess
import sys

import numpy as np
import pytest
from tiny import tiny_model

from tabiflow.encoding import Ragged, TextEncoder, cached, max_length, pad, text_encoder
from tabiflow.errors import EnvironmentFault, ModelError
from tabiflow.spec import Model


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {
        name: tiny_model(tmp_path_factory.mktemp(name), name) for name in ("bert", "modernbert")
    }


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TABIFLOW_CACHE", str(tmp_path))
    return tmp_path / "encoded"


def changed_config(folder, target, **fields):
    """A copy of a model's folder with other values in its config.json."""
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    config = json.loads((target / "config.json").read_text()) | fields
    (target / "config.json").write_text(json.dumps(config))
    return target


def test_a_tokenizer_tells_its_limit_and_whether_it_has_token_types(folders):
    bert = TextEncoder(Model(name="bert", path=folders["bert"]))
    assert (bert.limit, bert.has_type_ids, bert.commit) == (64, True, "")
    assert bert.source == str(folders["bert"])
    assert not TextEncoder(Model(name="modern", path=folders["modernbert"])).has_type_ids


def test_text_is_lower_cased_only_where_the_row_says_so(folders):
    text = "Iğdır İLİ"
    cased = TextEncoder(Model(name="bert", path=folders["bert"]))
    uncased = TextEncoder(Model(name="bert", path=folders["bert"], lowercase="turkish"))
    assert (cased.prepare(text), uncased.prepare(text)) == (text, "ığdır ili")
    assert cased.fingerprint != uncased.fingerprint


def test_the_fingerprint_is_the_tokenizers_not_the_models(folders, tmp_path):
    twin = changed_config(folders["bert"], tmp_path, hidden_dropout_prob=0.5)
    encoders = [TextEncoder(Model(name="x", path=path)) for path in (folders["bert"], twin)]
    assert encoders[0].fingerprint == encoders[1].fingerprint
    other = TextEncoder(Model(name="x", path=folders["modernbert"]))
    assert encoders[0].fingerprint != other.fingerprint


def test_the_fingerprint_does_not_change_by_use(folders):
    encoder = TextEncoder(Model(name="x", path=folders["bert"]))
    encoder.tokenizer(["bir metin"], truncation=True, max_length=8, padding="max_length")
    assert encoder.fingerprint == TextEncoder(Model(name="x", path=folders["bert"])).fingerprint


@pytest.mark.parametrize(
    ("context", "fields", "expected"),
    [
        (None, {}, 64),
        (32, {}, 32),
        (512, {}, 64),
        (None, {"max_position_embeddings": 40}, 40),
        (None, {"max_position_embeddings": 42, "model_type": "roberta", "pad_token_id": 1}, 40),
    ],
)
def test_the_limit_is_the_smallest_that_is_known(folders, tmp_path, context, fields, expected):
    folder = changed_config(folders["bert"], tmp_path, **fields)
    assert TextEncoder(Model(name="x", path=folder, context=context)).limit == expected


def test_words_get_a_leading_space_where_the_row_asks_for_it(folders):
    first = [
        TextEncoder(Model(name="x", path=folders["modernbert"], add_prefix_space=space)).tokenizer(
            ["Ankara"], is_split_into_words=True, add_special_tokens=False
        )["input_ids"][0]
        for space in (False, True)
    ]
    assert first[0] != first[1]


def test_a_prefix_space_is_refused_where_it_would_do_nothing(folders):
    with pytest.raises(ModelError, match="add_prefix_space"):
        TextEncoder(Model(name="x", path=folders["bert"], add_prefix_space=True))


@pytest.mark.parametrize("file", ["tokenizer.json", "config.json"])
@pytest.mark.parametrize("content", [None, b"", b"{broken", b"\xff\xfe", b"{}"])
def test_a_broken_folder_is_one_clear_line(folders, tmp_path, file, content):
    folder = changed_config(folders["bert"], tmp_path)
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    with pytest.raises(ModelError) as caught:
        TextEncoder(Model(name="broken", path=folder))
    assert str(caught.value).startswith(f"{folder}: model `broken`: ")
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_tokenizer_is_no_tokenizer_of_nothing(folders, tmp_path):
    (tmp_path / "config.json").write_bytes((folders["bert"] / "config.json").read_bytes())
    with pytest.raises(ModelError, match="no tokenizer in its folder"):
        TextEncoder(Model(name="x", path=tmp_path))


def test_a_process_keeps_its_tokenizers(folders):
    model = Model(name="bert", path=folders["bert"])
    assert text_encoder(model) is text_encoder(model.model_copy())


def test_the_examples_models_are_built_where_they_are_asked_for(cache):
    encoder = TextEncoder(Model(name="x", build="bert"))
    assert encoder.tokenizer("bir metin")["input_ids"]


@pytest.mark.parametrize(
    ("lengths", "limit", "expected"),
    [
        ([5], 512, 8),
        ([8], 512, 8),
        ([9], 512, 16),
        (range(1, 101), 512, 96),  # linear between ranks: 95.05
        ([10] * 99 + [500], 512, 16),
        ([400] * 20, 128, 128),
        ([100] * 20, 101, 101),
    ],
)
def test_max_length_is_the_95th_percentile_in_steps_of_8_within_the_limit(lengths, limit, expected):
    assert max_length(np.array(lengths), limit) == expected


def test_ragged_rows_come_back_one_by_one_and_in_any_order():
    rows = [[1, 2, 3], [], [4], [5, 6]]
    ragged = Ragged.of(rows)
    assert [ragged.row(index).tolist() for index in range(len(ragged))] == rows
    taken = ragged.take(np.array([3, 0, 0, 1]))
    assert [taken.row(index).tolist() for index in range(4)] == [[5, 6], [1, 2, 3], [1, 2, 3], []]
    assert ragged.lengths.tolist() == [3, 0, 1, 2]


@pytest.mark.parametrize("seed", range(10))
def test_padding_equals_filling_up_by_hand(seed):
    random = np.random.default_rng(seed)
    rows = [random.integers(1, 99, random.integers(0, 9)).tolist() for _ in range(20)]
    chosen = random.integers(0, 20, 6)
    longest = max(len(rows[row]) for row in chosen)
    expected = [rows[row] + [-1] * (longest - len(rows[row])) for row in chosen]
    assert pad(Ragged.of(rows), chosen, -1).tolist() == expected


@pytest.mark.parametrize("chosen", [[], [1]])
def test_padding_nothing_gives_nothing(chosen):
    assert pad(Ragged.of([[1], []]), np.array(chosen, dtype=int), 0).shape == (len(chosen), 0)


def encoded():
    arrays = {"labels": np.arange(3), "score": np.array([0.5, np.nan]), "pad_id": np.array(7)}
    return {**arrays, "input_ids": Ragged.of([[1, 2], [], [3]]), "none": Ragged.of([])}


def test_encoded_rows_come_back_from_disk_as_they_were(cache):
    built = cached("key", encoded)
    assert set(built) == set(encoded())
    for name, array in encoded().items():
        back = built[name]
        pairs = [(array, back)]
        if isinstance(array, Ragged):
            pairs = [(array.values, back.values), (array.offsets, back.offsets)]
        for first, second in pairs:
            np.testing.assert_array_equal(first, second)
            assert first.dtype == second.dtype


def test_encoded_rows_are_built_once(cache):
    calls = []
    for _ in range(2):
        cached("key", lambda: calls.append(1) or encoded())
    cached("another/key", lambda: calls.append(2) or encoded())
    assert calls == [1, 2]
    assert len(list(cache.iterdir())) == 2


def test_mapped_rows_cannot_be_changed(cache):
    with pytest.raises(ValueError, match="read-only"):
        cached("key", encoded)["labels"][0] = 9


def test_the_loser_of_a_race_uses_the_winners_rows(cache):
    def overtaken():
        cached("key", lambda: {"labels": np.array([1])})
        return {"labels": np.array([2])}

    assert cached("key", overtaken)["labels"].tolist() == [1]
    assert len(list(cache.iterdir())) == 1


def test_a_build_that_fails_leaves_nothing_behind(cache):
    with pytest.raises(ValueError, match="Object arrays"):
        cached("key", lambda: {"odd": np.array([{}], dtype=object)})
    assert list(cache.iterdir()) == []


def test_processes_that_start_together_end_with_one_copy(cache):
    code = (
        "import numpy as np, os, time; from tabiflow.arrays import cached\n"
        "def build():\n    time.sleep(0.2); return {'pid': np.array([os.getpid()])}\n"
        "cached('key', build); print(cached('key', build)['pid'][0])"
    )
    commands = [sys.executable, "-c", code]
    running = [subprocess.Popen(commands, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = {process.communicate()[0] for process in running}
    assert len(told) == 1
    assert len(list(cache.iterdir())) == 1


def cut_short(file):
    file.write_bytes(file.read_bytes()[:-1])


def emptied(file):
    file.write_bytes(b"")


def removed(file):
    file.unlink()


@pytest.mark.parametrize("spoil", [cut_short, emptied, removed])
@pytest.mark.parametrize("part", ["labels.npy", "input_ids.offsets.npy", "parts.json"])
def test_rows_damaged_on_disk_are_built_again(part, spoil, cache):
    cached("key", encoded)
    (kept,) = cache.iterdir()
    spoil(kept / part)
    for _ in range(2):
        assert cached("key", encoded)["input_ids"].row(2).tolist() == [3]
    assert (kept / "labels.npy").stat().st_size > 0


def test_a_cache_that_cannot_be_written_is_the_environments_fault(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TABIFLOW_CACHE", str(tmp_path / "file"))
    with pytest.raises(EnvironmentFault, match="cannot be kept"):
        cached("key", encoded)

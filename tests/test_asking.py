"""An evaluation says what is asked of models before there is one, and refuses what cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest
from terminal import Terminal, opened

from tabiflow.errors import CellError, SpecError, UserError
from tabiflow.generative.asking import Asked, asked, drawn
from tabiflow.generative.choices import LETTER_TEMPLATE
from tabiflow.generative.prompts import Item, Items
from tabiflow.generative.result import settings
from tabiflow.registry.cetvel import CATEGORIES, TASKS
from tabiflow.spec.evaluation import Evaluation

QUICKSTART = Path(__file__).parent.parent / "sweeps" / "cetvel-quickstart.yaml"
QUESTION = {"question": "Kaç?", "choices": ["bir", "iki", "üç"], "answer": "C"}


def written(folder: Path, text: str) -> Path:
    file = folder / "sweep.yaml"
    file.write_text(f"name: deneme\n{text}", encoding="utf-8")
    return file


def of(folder: Path, text: str) -> dict[str, Asked]:
    return {each.name: each for each in asked(Evaluation.read(written(folder, text)))}


def put(folder: Path, name: str, *rows: dict[str, Any], split: str = "test") -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    lines = "\n".join(json.dumps(row) for row in rows)
    (folder / name / f"{split}.jsonl").write_text(lines, encoding="utf-8")


def test_the_quickstart_asks_a_task_of_every_category() -> None:
    found = list(asked(Evaluation.read(QUICKSTART)))
    assert {each.task.category for each in found} == set(CATEGORIES)
    assert all(each.test.scored and not each.comparable for each in found)
    (nli,) = [each for each in found if each.task.category == "NLI"]
    assert [each.index for each in nli.test.excluded] == [9]


def test_orders_are_asked_of_validation_where_options_are_shown() -> None:
    found = {each.name: each.orders for each in asked(Evaluation.read(QUICKSTART))}
    assert [len(row) for row in found["belebele_tr"]] == [4, 4, 4]
    assert found["xcopa_tr"] == ()


@pytest.mark.parametrize(
    ("names", "count"), [("[MT, GEC]", 2), ("[xnli_tr, NLI]", 3), ("[cetvel]", 27)]
)
def test_categories_stand_for_their_tasks(tmp_path: Path, names: str, count: int) -> None:
    for task in TASKS:
        (tmp_path / task.name).mkdir()
    evaluation = Evaluation.read(written(tmp_path, f"tasks: {names}\ndata: .\n"))
    with pytest.raises(CellError, match="no test rows"):
        list(asked(evaluation))
    for task in TASKS:
        put(tmp_path, task.name, dict.fromkeys(task.fields))
    text = f"tasks: {names}\ndata: .\nexclude_invalid: true\n"
    assert len(of(tmp_path, text)) == count


def test_beams_are_the_sweeps_where_it_names_them_and_the_prompt_stays(tmp_path: Path) -> None:
    text = "tasks: [wmt-tr-en-prompt, xcopa_tr]\ndata: example\n"
    usual, greedy = of(tmp_path, text), of(tmp_path, f"{text}beams: 1\n")
    told = [settings(each["wmt-tr-en-prompt"]) for each in (usual, greedy)]
    assert [each.beams for each in told] == [5, 1]
    assert told[1].model_copy(update={"beams": 5}) == told[0]
    for name, each in usual.items():
        assert greedy[name].template.hash == each.template.hash
    assert greedy["xcopa_tr"] == usual["xcopa_tr"]


def test_a_limit_draws_the_same_rows_and_says_how_many_it_leaves(tmp_path: Path) -> None:
    text = "tasks: [xcopa_tr, xnli_tr]\ndata: example\nlimit: {test: 3, validation: 2}\n"
    first, again = of(tmp_path, text), of(tmp_path, text)
    for name in first:
        found = first[name]
        assert found.test == again[name].test
        assert (len(found.test.scored), len(found.validation.scored)) == (3, 2)
    assert (first["xnli_tr"].test.unasked, first["xnli_tr"].test.rows) == (6, 10)


def test_a_draw_keeps_the_order_and_does_not_take_the_first() -> None:
    whole = Items(tuple(Item(n, "s", "0") for n in range(100)), ())
    places = [item.index for item in drawn(whole, 10).scored]
    assert places == sorted(places) != list(range(10))
    assert drawn(whole, 100) is whole and drawn(whole, None) is whole


def test_rows_of_ones_own_take_a_tasks_prompt(tmp_path: Path) -> None:
    put(tmp_path, "veri", {"source": "herşey", "target": "her şey"})
    text = "tasks: [{name: benim, path: veri, like: gecturk_generation}]\n"
    (item,) = of(tmp_path, text)["benim"].test.scored
    assert "Cümle: herşey" in item.prompt and item.references == ("her şey",)


@pytest.mark.parametrize("scored", ["letters", "options"])
def test_questions_of_ones_own_are_asked_in_every_order(tmp_path: Path, scored: str) -> None:
    put(tmp_path, "veri", QUESTION)
    put(tmp_path, "veri", QUESTION | {"question": "Ne?"}, split="validation")
    text = f"tasks: [{{name: benim, path: veri, choices: {scored}}}]\norders: true\n"
    found = of(tmp_path, text)["benim"]
    assert found.test.scored[0].gold == 2
    assert [item.gold for item in found.orders[0]] == [2, 1, 0]


def test_a_prompt_that_was_settled_cannot_become_another(tmp_path: Path) -> None:
    put(tmp_path, "veri", QUESTION)
    entry = "tasks: [{name: benim, path: veri, choices: letters, prompt: %s}]\n"
    assert of(tmp_path, entry % f"'{LETTER_TEMPLATE.hash}'")
    with pytest.raises(SpecError, match=r"sweep\.yaml:2: the prompt is .* not the one"):
        of(tmp_path, entry % "'0123456789abcdef'")


def test_rows_that_no_one_foresaw_stop_it(tmp_path: Path) -> None:
    copa = {"premise": "a", "question": "cause", "choice1": "b", "choice2": "c", "label": 5}
    put(tmp_path, "xcopa_tr", copa, copa | {"label": 1})
    with pytest.raises(UserError, match="1 of 2 rows cannot be scored: row 0"):
        of(tmp_path, "tasks: [xcopa_tr]\ndata: .\n")
    found = of(tmp_path, "tasks: [xcopa_tr]\ndata: .\nexclude_invalid: true\n")["xcopa_tr"]
    assert (len(found.test.scored), found.test.rows) == (1, 2)


def test_a_checkouts_prompt_on_all_rows_is_comparable(tmp_path: Path) -> None:
    put(tmp_path, "ironytr", {"text": "a", "label": 0}, {"text": "b", "label": 1})
    checkout = tmp_path / "cetvel" / "tasks"
    checkout.mkdir(parents=True)
    (checkout / "a.yaml").write_text(
        "task: ironytr\noutput_type: multiple_choice\n"
        "doc_to_text: 'Şaka: {{text}}'\ndoc_to_choice: [yok, var]\n"
    )
    text = "tasks: [ironytr]\ndata: .\ncheckout: cetvel\n"
    found = of(tmp_path, text)["ironytr"]
    assert found.comparable and found.test.scored[0].prompt == "Şaka: a"
    assert not of(tmp_path, text + "limit: {test: 1}\n")["ironytr"].comparable
    assert not of(tmp_path, text.replace("data: .", "data: example"))["ironytr"].comparable


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tasks: [xcopa-tr]\n", "sweep.yaml:2: unknown task `xcopa-tr`; did you mean `xcopa_tr`?"),
        ("tasks: []\n", "sweep.yaml:2: "),
        ("tasks: [xnli_tr]\ndata: yok\n", "sweep.yaml:3: there is no folder"),
        ("tasks: [xnli_tr]\ncheckout: yok\n", "sweep.yaml:3: there is no folder"),
        ("tasks: [xnli_tr]\nlimit: {tset: 1}\n", "did you mean `test`?"),
        ("tasks: [{name: a, path: .}]\n", "`a` needs one of `like` and `choices`"),
        ("tasks: [{name: a, path: ., like: yok}]\n", "unknown task `yok`"),
        ("tasks: [{name: xnli_tr, path: ., choices: letters}, xnli_tr]\n", "names two tasks"),
        ("tasks: [{name: a, path: ., choices: letters}]\n", "no questions"),
    ],
)
def test_a_mistake_is_shown_where_it_stands(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        of(tmp_path, text)
    assert message in str(caught.value)


@pytest.fixture
def terminal(
    tmp_path: Path,
    ledger_template: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Terminal:
    return opened(tmp_path, ledger_template, capsys, monkeypatch)


def test_the_audit_of_an_evaluation_shows_rows_hashes_and_baselines(terminal: Terminal) -> None:
    found = {each["task"]: each for each in terminal.json("audit", QUICKSTART)["tasks"]}
    assert (found["xnli_tr"]["scored"], found["xnli_tr"]["rows"]) == (9, 10)
    assert found["belebele_tr"]["uniform"] == 25.0 and found["belebele_tr"]["orders"] == 12
    assert found["xquad_tr"]["uniform"] is None and len(found["xquad_tr"]["prompts"]) == 16
    assert "its answer -1 is none of the 3 options" in terminal("audit", QUICKSTART).out

"""A checkout is parsed and never run; what it says is taken over, and what is left is named."""

from pathlib import Path
from typing import Any

import pytest
from terminal import Terminal, opened

from tabiflow.errors import UserError
from tabiflow.generative import checkout
from tabiflow.generative.differences import compare
from tabiflow.generative.prompts import items
from tabiflow.generative.takeover import Taken, take_over
from tabiflow.generative.templates import TEMPLATES
from tabiflow.registry.cetvel import TASKS, task

COMMON = """\
group: sözlü
output_type: multiple_choice
doc_to_choice: ["evet", "hayır"]
metric_list:
  - metric: acc
"""
IRONY = """\
include: ortak_yaml
task: ironytr
dataset_path: mcemilg/IronyTR
validation_split: validation
doc_to_text: "Şaka mı: {{text}}\\n"
doc_to_target: "{{label}}"
"""
SUMMARY = """\
task: xlsum_tr
dataset_path: csebuetnlp/xlsum
dataset_name: turkish
test_split: test
output_type: generate_until
doc_to_text: "{{title}}: {{text}} Kısaca:"
doc_to_target: summary
process_results: !function olcu.hesapla
generation_kwargs: {until: ["\\n", "###"], max_gen_toks: 32, temperature: 0.7, penalty: 2}
metric_list:
  - metric: !function olcu.rouge2
"""


def tree(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / "tasks" / name.replace("__", "/")
        path = path if name.endswith("_yaml") else path.with_suffix(".yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def taken(folder: Path, name: str) -> Taken:
    return take_over(task(name), checkout.read(folder), TEMPLATES[name])


def left(found: Taken) -> dict[str, str]:
    return {each.key: each.reason for each in found.left}


def test_an_include_fills_in_what_the_task_does_not_say(tmp_path: Path) -> None:
    found = taken(tree(tmp_path, ironi__ortak_yaml=COMMON, ironi__tr=IRONY), "ironytr")
    assert found.template.prompt == "Şaka mı: {{text}}\n"
    assert found.template.continuations == ("evet", "hayır")
    assert (found.template.origin, found.template.comparable, found.left) == ("checkout", True, [])


def test_white_space_at_the_end_goes_over_to_the_options(tmp_path: Path) -> None:
    found = taken(tree(tmp_path, ironi__ortak_yaml=COMMON, ironi__tr=IRONY), "ironytr")
    (item,) = items(task("ironytr"), found.template, [{"text": "Harika.", "label": 1}]).scored
    assert item.prompt == "Şaka mı: Harika."
    assert item.continuations == ("\n evet", "\n hayır") and item.gold == 1


def test_settings_are_taken_and_code_is_left_where_it_stands(tmp_path: Path) -> None:
    found = taken(tree(tmp_path, xlsum=SUMMARY), "xlsum_tr")
    settings = found.template.generation
    assert settings is not None
    assert (settings.stop, settings.max_tokens, settings.beams) == (("\n", "###"), 32, 5)
    assert {each.reason for each in found.left} == {
        "it samples",
        "`penalty` is unknown here",
        "it is Python code: olcu.hesapla",
    }
    (code,) = [each for each in found.left if each.key == "process_results"]
    assert code.where.endswith("xlsum.yaml:8") and code.instead == "our own metric"


def test_without_a_stop_it_is_the_harnesss(tmp_path: Path) -> None:
    plain = SUMMARY.replace('until: ["\\n", "###"], ', "")
    found = taken(tree(tmp_path, xlsum=plain), "xlsum_tr")
    assert found.template.generation is not None
    assert found.template.generation.stop == ("\n\n",)


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ("!function istem.metin", "it is Python code: istem.metin"),
        ('"{{ text.__class__ }}"', "`.__class__` is outside the templates' language"),
        ('"{% for a in text %}{{ a }}{% endfor %}"', "`for` is outside the templates' language"),
        ('"{{ govde }}"', "it names `govde`, which is none of text, label"),
        ("[1, 2]", "it is no text"),
        ('"{{ text"', "unexpected end of template, expected 'end of print statement'."),
    ],
)
def test_a_prompt_that_cannot_be_taken_stays_ours(tmp_path: Path, prompt: str, reason: str) -> None:
    text = f"task: ironytr\noutput_type: multiple_choice\ndoc_to_text: {prompt}\n"
    found = taken(tree(tmp_path, a=text), "ironytr")
    assert left(found) == {"doc_to_text": reason}
    assert found.template == TEMPLATES["ironytr"] and not found.wording


def test_options_that_are_code_are_the_rows_and_no_longer_comparable(tmp_path: Path) -> None:
    text = IRONY.replace("include: ortak_yaml", "output_type: multiple_choice")
    found = taken(tree(tmp_path, a=text + "doc_to_choice: !function a.b\n"), "ironytr")
    assert found.wording and not found.template.comparable
    assert left(found) == {"doc_to_choice": "it is Python code: a.b"}


@pytest.mark.parametrize(
    ("pattern", "marks"), [("[0-3]", ("0", "1", "2", "3")), ("[A-Da-d]", ("A", "B", "C", "D"))]
)
def test_a_written_answer_is_read_as_the_filter_says(
    tmp_path: Path, pattern: str, marks: tuple[str, ...]
) -> None:
    text = f"""\
task: bilmecebench
output_type: generate_until
doc_to_text: "{{{{riddle}}}} {{{{choice_0}}}}"
filter_list:
  - {{name: a, filter: [{{function: regex, regex_pattern: "{pattern}"}}, {{function: take_first}}]}}
"""
    found = taken(tree(tmp_path, a=text), "bilmecebench")
    assert (found.template.marks, found.template.anywhere) == (marks, True)


def test_another_filter_is_left(tmp_path: Path) -> None:
    text = "task: bilmecebench\noutput_type: generate_until\ndoc_to_text: a\n"
    filters = "filter_list: [{filter: [{function: regex, regex_pattern: '(a+)+b'}]}]\n"
    found = taken(tree(tmp_path, a=text + filters), "bilmecebench")
    assert left(found) == {"filter_list": "it is no class of characters"}
    assert not found.template.comparable


def test_a_class_is_python_code(tmp_path: Path) -> None:
    found = taken(tree(tmp_path, a="task: tquad\nclass: !function gorev.Sinif\n"), "tquad")
    assert left(found) == {"class": "it is Python code: gorev.Sinif"}


def test_subjects_of_one_task_must_ask_alike(tmp_path: Path) -> None:
    text = "task: {}\noutput_type: multiple_choice\ndoc_to_text: '{}{{{{ question }}}}'\n"
    subjects = {
        name: text.format(name, "Başka: " if name.endswith("physics") else "")
        for name in task("turkishmmlu").checkout
    }
    found = taken(tree(tmp_path, **subjects), "turkishmmlu")
    assert left(found)["turkishmmlu_physics"] == "its prompt is not that of turkishmmlu_biology"


def test_nothing_of_a_checkout_runs(tmp_path: Path) -> None:
    trap = tmp_path / "tuzak"
    evil = f"""\
task: ironytr
output_type: multiple_choice
doc_to_text: !!python/object/apply:os.system ["touch {trap}"]
doc_to_choice: !function kotu.hesapla
"""
    folder = tree(tmp_path, a=evil)
    (folder / "tasks" / "kotu.py").write_text(f"open({str(trap)!r}, 'w')\n")
    assert set(left(taken(folder, "ironytr"))) == {"doc_to_text"}
    assert not trap.exists()


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({"a": "task: a\ninclude: ../../gizli.yaml\n"}, "outside the checkout"),
        ({"a": "task: a\ninclude: b.yaml\n", "b": "include: a.yaml\n"}, "which includes it"),
        ({"a": "task: a\ninclude: yok.yaml\n"}, "cannot be read"),
        ({"a": "task: [\n"}, "a.yaml"),
        ({"a": "task: a\nb: &b [1]\n", "c": "task: a\n"}, "task `a` is also in"),
        (
            {
                "a": "task: a\nx0: &x0 [0, 0, 0, 0, 0, 0, 0, 0]\n"
                + "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 8)}]\n" for n in range(1, 9))
                + "metric_list: *x8\n"
            },
            "more than 5000 values",
        ),
    ],
)
def test_a_file_at_fault_is_named_and_the_rest_is_read(
    tmp_path: Path, files: dict[str, str], fault: str
) -> None:
    (tmp_path / "gizli.yaml").write_text("task: gizli\n")
    found = checkout.read(tree(tmp_path, ironi=IRONY.replace("include: ortak_yaml\n", ""), **files))
    assert fault in found.faults[0]
    assert "ironytr" in found.tasks


def test_a_folder_without_tasks_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no task in it; name a checkout"):
        checkout.read(tmp_path)


def test_the_fingerprint_is_of_the_bytes(tmp_path: Path) -> None:
    before = checkout.read(tree(tmp_path, a=IRONY.replace("include: ortak_yaml\n", "")))
    after = checkout.read(tree(tmp_path, a=IRONY.replace("include: ortak_yaml\n", "#\n")))
    assert before.fingerprint != after.fingerprint


def differences(folder: Path, known: dict[str, str]) -> dict[tuple[str, str], tuple[str, str]]:
    found = compare(TASKS, TEMPLATES, checkout.read(folder), known)
    return {(each.task, each.what): (each.ours, each.checkout) for each in found.differences}


def test_differences_are_between_the_row_and_the_checkout(tmp_path: Path) -> None:
    text = IRONY.replace("mcemilg/IronyTR", "baska/veri").replace("validation_split", "test_split")
    folder = tree(tmp_path, ortak_yaml=COMMON, a=text, b=SUMMARY)
    found = differences(folder, {})
    assert found["ironytr", "data set"] == ("mcemilg/IronyTR", "baska/veri")
    assert ("ironytr", "split") not in found
    assert ("xlsum_tr", "metric") not in found
    assert found["xlsum_tr", "tokens"] == ("64", "32")
    assert found["xquad_tr", "task"] == ("xquad_tr", "missing")


def test_a_prompt_other_than_the_known_one_is_told(tmp_path: Path) -> None:
    folder = tree(tmp_path, ortak_yaml=COMMON, a=IRONY)
    hash_ = taken(folder, "ironytr").template.hash
    assert differences(folder, {"ironytr": hash_})["ironytr", "prompt"][1] == hash_
    assert "other than" in differences(folder, {})["ironytr", "prompt"][1]


@pytest.fixture
def terminal(
    tmp_path: Path,
    ledger_template: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Terminal:
    return opened(tmp_path, ledger_template, capsys, monkeypatch)


WEIRD = ("null", "5", "[]", "{}", "[null, {a: 1}]", "!function a.b", "!x [1]", "1999-99-99", "'x'")
KEYS = (
    *("task", "include", "class", "dataset_path", "dataset_name", "test_split", "output_type"),
    *("description", "doc_to_text", "doc_to_choice", "doc_to_target", "target_delimiter"),
    *("generation_kwargs", "generation_kwargs: {until", "generation_kwargs: {temperature"),
    *("generation_kwargs: {max_gen_toks", "filter_list", "filter_list: [{filter", "metric_list"),
)


@pytest.mark.parametrize("key", KEYS)
def test_whatever_a_key_holds_it_is_taken_left_or_a_fault(tmp_path: Path, key: str) -> None:
    closing = "}" * key.count("{") + "]" * key.count("[")
    for base, name in ((IRONY, "ironytr"), (SUMMARY, "xlsum_tr")):
        plain = base.replace("include: ortak_yaml\n", "output_type: multiple_choice\n")
        head = key.split(":")[0] + ":"
        kept = "".join(f"{line}\n" for line in plain.splitlines() if not line.startswith(head))
        for value in WEIRD:
            text = f"{kept}{key}: {value}{closing}\n"
            folder = tree(tmp_path, a=text, b="task: baska\n")
            found = compare(TASKS, TEMPLATES, checkout.read(folder), {})
            (one,) = [each for each in found.taken if each.task == name]
            assert one.template.prompt and (one.wording or one.left)


def test_a_file_that_is_nested_without_end_is_a_fault(tmp_path: Path) -> None:
    blocks = "\n".join(f"{' ' * depth}a:" for depth in range(400))
    found = checkout.read(tree(tmp_path, a="a: " + "[" * 2_000, b=blocks, c="task: baska\n"))
    assert ["nested too deeply" in fault for fault in found.faults] == [True, True]


def test_the_verb_lists_differences_hashes_and_what_the_tables_give(
    tmp_path: Path, terminal: Terminal
) -> None:
    folder = tree(tmp_path, ortak_yaml=COMMON, a=IRONY, b="task: baska\n")
    cetvel: dict[str, Any] = terminal.json("audit", "--cetvel", folder)["cetvel"]
    assert len(cetvel["prompts"]) == 27 and cetvel["not_in_the_paper"] == ["baska"]
    averages = {each["column"]: each["reproduces"] for each in cetvel["published"]["averages"]}
    assert averages["QA"] and not averages["MCQA"]
    assert round(cetvel["published"]["gini"]["GEC"]["value"], 4) == 0.4576

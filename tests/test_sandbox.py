"""Templates of strangers read the row that they are given, and do nothing else."""

from typing import Any

import pytest

from tabiflow.generative.sandbox import (
    LONGEST,
    TemplateFault,
    check,
    sole_expression,
    text_of,
    value_of,
)

ROW: dict[str, Any] = {
    "soru": " Kaç? ",
    "secenekler": ["bir", "iki"],
    "soru_kok": {"choices": {"text": ["x", "y"], "label": ["A", "B"]}},
    "etiket": "B",
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("Soru: {{ soru.strip() }}\n", "Soru: Kaç?\n"),
        ("{{ secenekler[1] }}{{ ' son' if etiket == 'B' else '' }}", "iki son"),
        ("{% if etiket == 'A' %}a{% else %}b{% endif %}", "b"),
        ("{{ 'önce ' + secenekler[0] ~ secenekler[1] }}", "önce biriki"),
    ],
)
def test_a_template_says_what_jinja_makes_of_it(template: str, text: str) -> None:
    assert text_of(template, ROW) == text


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("soru_kok.choices.text", ["x", "y"]),
        ("etiket | place_in(soru_kok.choices.label)", 1),
        ("'C' | place_in(soru_kok.choices.label)", "C"),
        ("etiket | place", 1),
        ("'3' | place", 3),
        ("-1 | place", -1),
        ("'OFF' | place_of('NOT', 'OFF')", 1),
        ("1 | place_of('NOT', 'OFF')", 1),
        ("2.5 | binned(0.5, 1.5, 2.5)", 3),
        ("0.4 | binned(0.5, 1.5, 2.5)", 0),
        ("\"['bir', 'iki']\" | literal_list", ["bir", "iki"]),
        ("'Irmak' | small", "ırmak"),
        ("'İp' | small", "ip"),
    ],
)
def test_an_expression_has_a_value(expression: str, value: Any) -> None:
    assert value_of(expression, ROW) == value


@pytest.mark.parametrize(
    "template",
    [
        "{{ soru.__class__ }}",
        "{{ soru['__class__'].mro() }}",
        "{{ ''.join.__globals__ }}",
        "{{ soru | attr('__class__') }}",
        "{{ '%s' | format(soru) }}",
        "{{ '{0}'.format(soru) }}",
        "{{ soru * 1000000000 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ '%0999999999d' % 1 }}",
        "{% for a in range(9) %}{{ a }}{% endfor %}",
        "{% set a = 1 %}",
        "{% macro m() %}{% endmacro %}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ cycler.__init__ }}",
        "{{ range(10) }}",
        "{{ soru.replace('a', 'aaaa') }}",
        "{{ _gizli }}",
        "{{ soru",
        "x" * (LONGEST + 1),
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    ],
)
def test_whatever_is_outside_the_language_is_refused(template: str) -> None:
    with pytest.raises(TemplateFault):
        check(template)
    with pytest.raises(TemplateFault):
        text_of(template, ROW)


@pytest.mark.parametrize("name", ["lipsum", "namespace", "yok"])
def test_only_the_row_has_names(name: str) -> None:
    with pytest.raises(TemplateFault, match=name):
        text_of("{{ " + name + " }}", ROW)


def test_fields_that_a_task_has_not_are_named() -> None:
    with pytest.raises(TemplateFault, match="`cevap`, which is none of soru"):
        check("{{ soru }} {{ cevap }}", ["soru"])


@pytest.mark.parametrize(
    "expression",
    ["'__import__(1)' | literal_list", "'[' | literal_list", "'5' | literal_list"],
)
def test_a_list_in_a_text_is_read_and_never_run(expression: str) -> None:
    with pytest.raises(TemplateFault):
        value_of(expression, ROW)


@pytest.mark.parametrize(
    ("template", "expression"),
    [
        ("{{ [a, b] }}", "[a, b]"),
        ("\n{{ a }} ", "a"),
        ("x {{ a }}", None),
        ("{{ a }}{{ b }}", None),
        ("a", None),
    ],
)
def test_a_template_of_one_expression_is_told(template: str, expression: str | None) -> None:
    assert sole_expression(template) == expression

"""A report as files: the same numbers in every form, published rows beside, fit to be read."""

import csv
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from reported import labels, made, records, two
from studies import dataset, model

from tabiflow.errors import UserError
from tabiflow.published import tabibench
from tabiflow.report import Report, write
from tabiflow.report.paper import paper_tables
from tabiflow.report.render import all_tables, as_json, dumps
from tabiflow.report.tables import Table
from tabiflow.report.typeset import escaped, latex, markdown

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Two models and two data sets, three seeds of each but one, which has none yet."""
    tests = {
        ("a", "one"): [labels(n, 60, seed=n) for n in (50, 52, 51)],
        ("b", "one"): [labels(n, 60, seed=n) for n in (40, 44, 41)],
        ("a", "two"): [labels(n, 60, seed=n) for n in (30, 35, 33)],
    }
    return two(tmp_path_factory.mktemp("study"), tests)


@pytest.fixture(scope="module")
def folder(content: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report")
    write(content, place)
    return place


def published(folder: Path, sets: list[str], **tests: Any) -> list[Table]:
    found = {("tabibert", name): [kept] for name, kept in tests.items()}
    return paper_tables(made(folder, found, sets, ["tabibert"]))


def rows(table: Table) -> dict[str, tuple[str, ...]]:
    return {name: tuple(cells) for name, *cells in table.rows}


# Beside the paper


def test_a_whole_category_stands_beside_the_printed_figures(tmp_path: Path) -> None:
    overview, table = published(tmp_path, ["snli_tr", "multinli_tr"])
    assert table.title == "Table 9: Natural language inference (macro-F1)"
    assert rows(table)["Test size"] == ("9,824", "4,923", "")
    assert rows(table)["BERTurk (published)"] == ("87.21", "78.57", "84.33")
    assert rows(table)["TabiBERT"] == ("–", "–", "–")
    assert rows(overview)["mmBERT (published)"] == ("307", "84.38", "84.38")


def test_the_whole_of_tabibench_gives_the_printed_table_5(tmp_path: Path) -> None:
    overview, *tables = published(tmp_path, ["tabibench"])
    facts = tabibench().overview
    for line, name in [("TabiBERT (published)", "tabibert"), ("BERTurk (published)", "berturk")]:
        printed = sorted(f"{score:.2f}" for score in facts.categories[name].values())
        assert sorted(rows(overview)[line][1:-1]) == printed
        assert float(rows(overview)[line][-1]) == pytest.approx(facts.totals[name], abs=0.011)
    previous = sorted(f"{score:.2f}" for score in facts.previous_best.values())
    assert sorted(rows(overview)["Previous best (Turkish) (published)"][1:-1]) == previous
    lead = sorted(f"{score:+.2f}" for score in facts.lead.values())
    assert sorted(rows(overview)["Δ TabiBERT (published)"][1:-1]) == lead
    assert [rows(overview)[name][-1] for name in LAST] == ["75.80", "+1.48"]
    assert [each.title.split(":")[0] for each in tables] == [f"Table {n}" for n in TABLES]


LAST = ("Previous best (Turkish) (published)", "Δ TabiBERT (published)")
TABLES = (6, 7, 8, 9, 10, 13, 11, 12)


def test_part_of_a_category_is_averaged_again_over_that_part(tmp_path: Path) -> None:
    overview, table = published(tmp_path, ["news_cat", "bil_tweet_news"])
    expected = (250 * 95.20 + 150 * 50.11) / 400
    assert rows(table)["TabiBERT (published)"] == ("95.20", "50.11", f"{expected:.2f}")
    assert "taken again over the data sets of this sweep" in " ".join(overview.notes)


def test_a_data_set_of_ones_own_has_no_published_figure(tmp_path: Path) -> None:
    own = {"name": "own", "hub": "me/own", "task": "nli"}
    overview, table = published(tmp_path, ["snli_tr", own], own=labels(30, 40))
    assert rows(table)["BERTurk (published)"] == ("87.21", "–", "–")
    assert not any("published" in name for name in rows(overview))
    assert rows(table)["TabiBERT"][1] == "74.94"


def test_a_models_margin_is_over_the_best_published_turkish_one(tmp_path: Path) -> None:
    tests = {("berturk", "news_cat"): [labels(90, 100)], ("x", "news_cat"): [labels(80, 100)]}
    content = made(tmp_path, tests, ["news_cat"], ["berturk", model("x")])
    overview, _ = paper_tables(content)
    published = tabibench().results_of("text_classification").scores
    others = {name: published[name]["news_cat"] for name in tabibench().turkish}
    mine = {each.model: each.test for each in content.scores}
    assert rows(overview)["Δ x"][1] == f"{mine['x'] - max(others.values()):+.2f}"
    del others["berturk"]
    assert rows(overview)["Δ BERTurk"][1] == f"{mine['berturk'] - max(others.values()):+.2f}"
    assert not any("Δ" in overview.rows[row][0] for row, _ in overview.strong)


def test_a_stricter_metric_has_the_published_one_beside_it(tmp_path: Path) -> None:
    said = records([["NOUN", "VERB"]] * 9 + [["NOUN", "ADJ"]], [["NOUN", "VERB"]] * 10)
    tests = {("tabibert", "posud_boun"): [said]}
    figures = {"test_published_f1": 91.5}
    report = made(tmp_path, tests, ["posud_boun"], ["tabibert"], figures=figures)
    overview, table = paper_tables(report)
    assert rows(table)["TabiBERT"] == ("95.00", "95.00")
    assert rows(table)["TabiBERT (by the published metric)"] == ("91.50", "91.50")
    assert any("that one compares" in note for note in table.notes)
    assert "91.50" not in str(overview.rows)


def test_published_rows_and_the_best_of_ours_are_marked(tmp_path: Path) -> None:
    tests = {("berturk", "news_cat"): [labels(90, 100)], ("x", "news_cat"): [labels(80, 100)]}
    report = made(tmp_path, tests, ["news_cat"], ["berturk", model("x")])
    table = paper_tables(report)[1]
    names = [row[0] for row in table.rows]
    assert table.quiet == {place for place, name in enumerate(names) if "(published)" in name}
    assert {table.rows[row][column] for row, column in table.strong} == {"89.96"}


# Forms


def test_every_form_is_written_whole_and_nothing_else(folder: Path) -> None:
    names = {file.name for file in folder.iterdir()}
    assert {"report.html", "report.md", "report.tex", "report.json", "scores.csv"} <= names
    assert not [name for name in names if name.startswith(".")]


def test_csv_and_json_hold_the_same_numbers(folder: Path) -> None:
    loaded = json.loads((folder / "report.json").read_text())
    for name in ("scores", "categories", "comparisons", "settings"):
        with (folder / f"{name}.csv").open(newline="") as lines:
            read = list(csv.DictReader(lines))
        for record, row in zip(loaded[name], read, strict=True):
            plain = {k: v for k, v in record.items() if not isinstance(v, list | dict)}
            assert {k: row.get(k, "") for k in plain} == {
                k: "" if v is None else str(v) for k, v in plain.items()
            }


def test_every_text_form_shows_every_table_alike(content: Report, folder: Path) -> None:
    forms = {name: (folder / f"report.{name}").read_text() for name in ("html", "md", "tex")}
    shown = {"html": page_cells(forms["html"]), "md": forms["md"], "tex": forms["tex"]}
    for table in all_tables(content):
        for cell in {cell for row in table.rows for cell in row}:
            assert cell in shown["html"] and cell.replace("|", "\\|") in shown["md"]
            assert escaped(cell) in shown["tex"]


def test_the_numbers_are_those_of_the_json(content: Report, folder: Path) -> None:
    text = (folder / "report.html").read_text()
    for each in as_json(content)["scores"]:
        if each["low"] == each["low"]:
            assert f"{each['low']:.2f} to {each['high']:.2f}" in text
            assert f"{each['model']}, {each['dataset']}: {each['test']:.2f}" in text


def test_unknown_is_a_dash_and_null_never_zero(content: Report) -> None:
    loaded = json.loads(dumps(as_json(content)))
    [score] = [e for e in loaded["scores"] if (e["model"], e["dataset"]) == ("b", "two")]
    assert [score[name] for name in ("test", "n", "low", "deviation")] == [None] * 4
    assert loaded["average"]["b"] is None
    table = next(each for each in all_tables(content) if each.title == "Test scores")
    assert ("two", "b", "macro_f1", "–", "–", "–", "–", "–") in table.rows


def test_before_anything_is_confirmed_there_are_tables_of_dashes_and_no_plot_of_scores(
    tmp_path: Path,
) -> None:
    report = made(tmp_path, {}, ["news_cat"], ["berturk"])
    write(report, tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text()
    assert "Scores by data set" not in text and "Learning curves" in text
    assert rows(paper_tables(report)[1])["BERTurk"] == ("–", "–")


def test_a_folder_that_cannot_be_written_is_one_line(content: Report, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        write(content, tmp_path / "file")


# LaTeX


@pytest.mark.parametrize("text", ["a_b & 50% {x} #1 $2 ~^\\", "İstanbul – ±0.5 < |x| >"])
def test_special_signs_are_escaped(text: str) -> None:
    bare = re.sub(r"\\[A-Za-z]+\{\}|\$\\[a-z]+\$|\\[&%$#_{}]", "", escaped(text))
    assert not set(bare) & set("&%$#_{}~^\\")


def test_the_document_is_balanced_and_its_rows_are_of_one_length(folder: Path) -> None:
    text = (folder / "report.tex").read_text()
    bare = re.sub(r"\\[\\{}&%$#_]", "", text)
    assert bare.count("{") == bare.count("}") and bare.count("$") % 2 == 0
    opened = re.findall(r"\\(begin|end)\{(\w+)\}", text)
    assert sorted(n for w, n in opened if w == "begin") == sorted(
        n for w, n in opened if w == "end"
    )
    for columns, body in re.findall(r"\\begin\{tabular\}\{(l+)\}(.*?)\\end\{tabular\}", text, re.S):
        lines = [line for line in body.split("\n") if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", line)) + 1 for line in lines} == {len(columns)}


def test_a_long_table_breaks_over_pages() -> None:
    table = Table("Many", ("x",), tuple((str(n),) for n in range(99)))
    text = latex("study", [], [table])
    assert r"\begin{longtable}" in text and r"\begin{table}" not in text


# HTML

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Open elements, and what the page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.cells: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.loaded += [
            f"{tag} {given[name]}" for name in ("src", "srcset", "data") if name in given
        ]
        self.loaded += [given["href"] or ""] if tag == "link" else []
        self.links += [given["href"] or ""] if tag == "a" else []
        self.ids |= {given["id"] or ""} if "id" in given else set()
        assert tag != "script"
        if tag == "td":
            self.cells.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "td":
            self.cells[-1] += data


def parsed(text: str) -> Page:
    page = Page()
    page.feed(text)
    page.close()
    return page


def page_cells(text: str) -> set[str]:
    return set(parsed(text).cells)


def test_the_page_is_well_formed_and_its_links_lead_somewhere(folder: Path) -> None:
    page = parsed((folder / "report.html").read_text())
    assert page.open == []
    assert {link.removeprefix("#") for link in page.links} == page.ids


def test_the_page_loads_nothing(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    assert parsed(text).loaded == ["data:,"]
    assert not re.findall(r"https?://|@import|url\(", text)


def test_the_page_has_plots_of_scores_differences_settings_and_curves(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    titles = re.findall(r"<h2>(.*?)</h2>", text)[:5]
    assert titles == [
        "Scores by category",
        "Scores by data set",
        "Difference to a",
        "Sensitivity to each hyper-parameter",
        "Learning curves of the winners",
    ]
    assert text.count("<svg") >= 6 and "nan" not in "".join(re.findall(r"<svg.*?</svg>", text))


def test_names_with_markup_are_shown_not_run(tmp_path: Path) -> None:
    odd = model("odd", title="<b>& |co_1%")
    report = made(tmp_path, {("odd", "news_cat"): [labels(9, 10)]}, ["news_cat"], [odd])
    write(report, tmp_path / "out")
    assert "<b>&" not in (tmp_path / "out" / "report.html").read_text()
    assert r"\<b>& \|co_1%" in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a*b* `c` [d](e)", r"a\*b\* \`c\` \[d](e)"),
        ("_x_ of macro_f1", r"\_x\_ of macro_f1"),
        (r"\| $x$ ~y~", r"\\\| \$x\$ \~y\~"),
        ("&lt; R&D <!-- < 0.001", r"\&lt; R&D \<!-- < 0.001"),
    ],
)
def test_markdown_shows_signs_as_they_stand(text: str, shown: str) -> None:
    table = Table(text, ("what",), ((text,),))
    assert markdown(text, (), [table]).count(shown) == 3


def test_long_titles_leave_half_of_a_chart_to_its_marks(tmp_path: Path) -> None:
    long = dataset("long", title="uzun bir ad " * 40, category="k" * 300)
    report = made(tmp_path, {("odd", "long"): [labels(9, 10)]}, [long], [model("odd")])
    write(report, tmp_path / "out")
    charts = re.findall(r"<svg.*?</svg>", (tmp_path / "out" / "report.html").read_text())
    places = [float(each) for each in re.findall(r'(?:cx|x1|x2)="([^"]+)"', "".join(charts[:2]))]
    assert min(places) >= 480 and max(places) <= 1000


def test_a_difference_beyond_the_scale_could_not_have_been_shown(tmp_path: Path) -> None:
    tests = {("a", "one"): [labels(1, 2)], ("b", "one"): [labels(0, 2)]}
    compared = next(each for each in all_tables(two(tmp_path, tests)) if each.title == "b minus a")
    assert compared.rows[0][compared.header.index("shown by items")] == "> 100"


@pytest.mark.slow  # needs a browser, which a machine for tests may lack
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_a_browser_shows_the_page_without_complaint(folder: Path, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    quiet = ["disable-background-networking", "disable-component-update", "disable-sync"]
    flags = ["headless", "no-sandbox", "disable-gpu", "no-first-run", "enable-logging=stderr"]
    options = [f"--{flag}" for flag in (*quiet, *flags, f"user-data-dir={tmp_path / 'profile'}")]
    shot = [f"--screenshot={picture}", "--window-size=1200,3000"]
    address = (folder / "report.html").as_uri()
    command = [str(CHROMIUM), *options, *shot, address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "CONSOLE" not in done.stderr
    assert picture.stat().st_size > 50_000

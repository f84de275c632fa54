"""Reports of results: what agrees with the paper, and files that say the same figures in three forms."""

import dataclasses
import html.parser
import importlib.resources
import json
import math
import random
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import results
from markdown_it import MarkdownIt

from paper.document import Cell, Claim, Figure, Panel, Report, Row, Series, Table
from paper.report import latex, markdown, page, svg, words, write
from partita import atomic

HOSTILE = (
    "<script>hacked=1</script>\"'><img src=x onerror=hacked=1> a|b_c%d&e $x$ #1 \\input{x} {y} ~z ^w `q` [l](u) *s*"
    "\0\n| é τ 漢"
)
EMPTY = Report("Nothing", {}, (), (), (), ())


@pytest.fixture(scope="module")
def made():
    return results.report()


def hostile(thing):
    """The same report with every text replaced."""
    if isinstance(thing, str):
        return thing if thing in ("line", "points") else HOSTILE
    if isinstance(thing, tuple):
        return tuple(map(hostile, thing))
    if dataclasses.is_dataclass(thing):
        changed = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
        if isinstance(thing, Row):
            return Row(hostile(thing.heads), {HOSTILE: hostile(next(iter(thing.cells.values())))}, HOSTILE, HOSTILE)
        if isinstance(thing, Table):
            changed["columns"] = thing.columns[:1]
        return type(thing)(**{name: hostile(value) for name, value in changed.items()})
    return {HOSTILE: HOSTILE} if isinstance(thing, dict) else thing


class Elements(html.parser.HTMLParser):
    """Tags with their attributes, in order, and all text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def of(self, tag, kind=""):
        return [found for name, found in self.tags if name == tag and kind in found.get("class", "").split(" ")]


# What the figures say


def test_two_points_are_near_and_a_hundredth_more_is_not():
    # In floats 63.41 + 2 - 63.41 is more than 2 for many figures: what is printed decides.
    for printed in range(0, 10_000, 7):
        for off, expected in ((200, "near"), (201, "above"), (-200, "near"), (-201, "below"), (0, "near")):
            assert Cell(printed / 100, ((printed + off) / 100,)).agreement == expected


def test_nothing_to_compare_is_neither_near_nor_far():
    assert Cell(None, (1.0,)).agreement == Cell(60.0, ()).agreement == "none"
    assert Cell(None, (1.0,)).difference is Cell(60.0, ()).difference is Cell(60.0, ()).ours is None
    assert Cell(60.0, (math.nan, 61.0)).agreement == "below"
    assert math.isnan(Cell(60.0, (math.inf, 61.0)).spread)


@pytest.mark.parametrize("values", [(64.2, 65.9, 61.0), (1.0, 1.0), (63.4,)])
def test_mean_and_spread(values):
    cell = Cell(60.0, values)
    np.testing.assert_allclose(cell.ours, np.mean(values), rtol=1e-12)
    expected = np.std(values, ddof=1) if len(values) > 1 else 0.0
    np.testing.assert_allclose(cell.spread, expected, rtol=1e-12)


def test_tallies_count_both_ways(made):
    for table in made.tables:
        for rows in (None, table.rows[:3]):
            for columns in (None, table.columns[1:]):
                chosen = [row.cells[c] for row in rows or table.rows for c in columns or table.columns]
                printed = [cell for cell in chosen if cell.printed is not None]
                off = [cell.ours - cell.printed for cell in printed if cell.values]
                tally = table.tally(rows, columns)
                assert tally["above"] == sum(value > 2.005 for value in off)
                assert tally["below"] == sum(value < -2.005 for value in off)
                assert tally["near"] == len(off) - tally["above"] - tally["below"]
                assert tally["none"] == len(printed) - len(off)
        assert sum(table.tallies().values(), Counter()) == table.tally()
        assert set(table.tallies()) == {row.group for row in table.rows if row.block == results.METHOD}
    assert made.tables[0].tally()["none"] == 1
    assert not made.tables[0].tally(rows=made.tables[0].rows[-2:])


def test_counts_are_given_both_ways_over_all_and_by_group():
    def row(group, *values):
        cells = {
            column: Cell(60.0, (float(value),) if value else ()) for column, value in zip("abc", values, strict=True)
        }
        return Row((group,), cells, group=group)

    rows = (row("one", 60, 61, 62), row("one", 70, 57, None), row("two", 90, 90, 90), Row(("beside",), {}))
    table = Table("t", "T", "", ("h",), tuple("abc"), rows)
    assert [(name, text) for name, _, text in words.summaries(table)] == [
        ("All", "3 of 9 within 2 points, 4 above, 1 below, 1 not run (within or above: 7, 78%)"),
        ("one", "3 of 6 within 2 points, 1 above, 1 below, 1 not run (within or above: 4, 67%)"),
        # Far above is not agreement.
        ("two", "0 of 3 within 2 points, 3 above, 0 below (within or above: 3, 100%)"),
    ]
    report = dataclasses.replace(EMPTY, tables=(table,))
    for text in (markdown.document(report), latex.document(report).replace(r"\%", "%"), page.document(report)):
        for _, _, said in words.summaries(table):
            assert said in text


def test_what_has_nothing_printed_says_so():
    table = Table("t", "T", "", ("h",), ("a",), (Row(("x",), {"a": Cell(None, (1.0,))}),))
    assert [text for _, _, text in words.summaries(table)] == ["The paper prints no figures to compare with"]


def test_a_table_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match=r"heads \('a', 'b'\); got \('x',\)"):
        Table("t", "", "", ("a", "b"), ("c",), (Row(("x",), {}),))
    with pytest.raises(ValueError, match=r"columns \('c',\); row \('x',\) fills \['d'\]"):
        Table("t", "", "", ("a",), ("c",), (Row(("x",), {"d": Cell(1.0, ())}),))
    with pytest.raises(ValueError, match="2 x and 1 y"):
        Series("s", (1.0, 2.0), (1.0,))


# What the files say


def expected_numbers(cell):
    """In the order in which Markdown and LaTeX print them."""
    told = [] if cell.ours is None else [cell.ours] + ([cell.spread] if len(cell.values) > 1 else [])
    return told, [value for value in (cell.printed, cell.difference) if value is not None]


def numbers(text):
    return [
        float(found) for found in re.findall(r"[+-]?\d+\.\d\d", text.replace("−", "-").replace(r"\ensuremath{-}", "-"))
    ]


# Half of the last printed decimal, and what floats add to it.
CLOSE = {"rtol": 0, "atol": 0.005 + 1e-9}


def test_markdown_says_the_same_figures(made):
    lines = [line for line in markdown.document(made).splitlines() if line.startswith("|")]
    cells = iter([part.split(" | ") for part in (line.strip("| ") for line in lines)][2 + len(made.claims) :])
    for table in made.tables:
        assert next(cells) == ["Block", *table.heads, *table.columns]
        next(cells)
        for row in table.rows:
            block, *found = next(cells)
            assert (block, *found[: len(row.heads)]) == (row.block, *row.heads)
            for column, text in zip(table.columns, found[len(row.heads) :], strict=True):
                first, second = expected_numbers(row.cells[column])
                np.testing.assert_allclose(numbers(text), [*first, *second], **CLOSE)


def test_latex_says_the_same_figures(made):
    text = latex.document(made)
    for table, body in zip(made.tables, re.findall(r"\\endhead(.*?)\\bottomrule", text, re.DOTALL), strict=True):
        lines = iter(line for line in body.strip().splitlines() if r"\multicolumn" not in line)
        for row in table.rows:
            ours, paper = zip(*(expected_numbers(row.cells[column]) for column in table.columns), strict=True)
            for figures in (ours, paper) if any(paper) else (ours,):
                found = next(lines).removesuffix("*").removesuffix(r" \\").split(" & ")[len(table.heads) :]
                for part, values in zip(found, figures, strict=True):
                    np.testing.assert_allclose(numbers(part), values, **CLOSE)
        assert next(lines, None) is None


def test_the_page_says_the_same_figures(made):
    cells = iter(Elements(page.document(made)).of("td", "cell"))
    for table in made.tables:
        for row in table.rows:
            for column in table.columns:
                found, cell = next(cells), row.cells[column]
                known = {"data-ours": cell.ours, "data-paper": cell.printed, "data-difference": cell.difference}
                assert {name: float(found[name]) for name in known if name in found} == {
                    name: value for name, value in known.items() if value is not None
                }
                assert found["data-label"] == column
                assert cell.agreement in found["class"].split()
    assert next(cells, None) is None


def test_figures_say_their_values(made):
    for figure in made.figures:
        for panel in figure.panels:
            drawn = xml.fromstring(svg.file(panel))
            groups = [found for found in drawn.iter() if found.get("class") == "series"]
            assert [group.get("data-name") for group in groups] == [series.name for series in panel.series]
            for group, series in zip(groups, panel.series, strict=True):
                points = [[float(value) for value in point] for point in json.loads(group.get("data-points"))]
                np.testing.assert_allclose(np.array(points)[:, 2:], np.c_[series.x, series.y], rtol=6e-4)
                assert (np.array(points)[:, :2] >= 0).all()


def test_all_files_are_written_and_named(made, tmp_path):
    paths = write(made, tmp_path / "new" / "folder")
    pictures = [f"figures/figure{figure}-{panel}.svg" for figure in (1, 2) for panel in (1, 2, 3)]
    assert list(paths) == ["report.html", "report.md", "report.tex", *pictures]
    assert {path for path in (tmp_path / "new" / "folder").rglob("*") if path.is_file()} == set(paths.values())
    linked = re.findall(r"!\[[^]]*\]\(([^)]*)\)", paths["report.md"].read_text("utf-8"))
    assert linked == pictures


def test_a_write_that_fails_changes_nothing(made, tmp_path, monkeypatch):
    before = {path: path.read_bytes() for path in write(EMPTY, tmp_path).values()}
    count = []

    def full(path, mode):
        count.append(path)
        if len(count) == 3:
            raise OSError("No space left on device")
        return open(path, mode)

    monkeypatch.setattr(atomic, "open", full, raising=False)
    with pytest.raises(OSError, match="No space"):
        write(made, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


# What the files do not say


def test_the_page_loads_nothing(made):
    text = page.document(made)
    assert not re.search(r"https?:|url\(|@import|\bsrc=|<link|<base|<iframe", text)
    found = Elements(text)
    assert all(tag["href"].startswith("#") for tag in found.of("a"))
    anchors = {found_["id"] for _, found_ in found.tags if "id" in found_}
    assert {tag["href"][1:] for tag in found.of("a")} <= anchors
    (policy,) = (tag["content"] for tag in found.of("meta") if "http-equiv" in tag)
    assert "default-src 'none'" in policy


def test_hostile_text_is_only_text_in_the_page(made):
    plain, bad = Elements(page.document(made)), Elements(page.document(hostile(made)))
    assert {tag for tag, _ in bad.tags} <= {tag for tag, _ in plain.tags}
    allowed = {name for _, found in plain.tags for name in found}
    assert {name for _, found in bad.tags for name in found} <= allowed
    assert len(bad.of("script")) == 1
    assert words.clean(HOSTILE) in bad.text


def test_hostile_text_is_only_text_in_markdown(made):
    plain, bad = (
        Elements(MarkdownIt("commonmark").enable("table").render(markdown.document(one)))
        for one in (made, hostile(made))
    )
    assert {tag for tag, _ in bad.tags} <= {tag for tag, _ in plain.tags} | {"table"}
    count = [sum(tag in ("th", "td") for tag, _ in found.tags) for found in (plain, bad)]
    # Of each table of figures only one column is left.
    assert count[0] - count[1] == sum((len(table.columns) - 1) * (1 + len(table.rows)) for table in made.tables)
    assert bad.text.count(words.clean(HOSTILE)) > count[1] / 2
    assert "\\$x\\$" in markdown.escape(HOSTILE), "GitHub reads dollars as mathematics"


def test_hostile_text_is_only_text_in_latex():
    escaped = latex.escape(HOSTILE)
    bare = re.sub(r"\\(?:[{}$&#_%]|text\w+\{\}|ensuremath\{\\?\S+?\})|\{[][*]\}", "", escaped)
    assert not re.search(r"[\\{}$&#_%~^<>|`\"\[\]*]", bare)
    assert latex.escape("漢") == "{[}U+6F22{]}"


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="LaTeX is not installed")
@pytest.mark.parametrize("kind", ["plain", "hostile", "empty"])
def test_latex_compiles(made, kind, tmp_path):
    report = {"plain": made, "hostile": hostile(made), "empty": EMPTY}[kind]
    (tmp_path / "report.tex").write_text(latex.document(report), "utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "-draftmode", "report.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]


def test_hostile_names_stay_in_the_folder(tmp_path):
    panel = Panel(HOSTILE, HOSTILE, HOSTILE, (Series(HOSTILE, (1.0,), (1.0,)),))
    names = ["../../up", "/etc/x", "", "con.svg", "a", "A", "a-2", "x" * 300]
    report = dataclasses.replace(EMPTY, figures=tuple(Figure(name, "", "", (panel, panel)) for name in names))
    paths = write(report, tmp_path / "in")
    pictures = {path for name, path in paths.items() if name.startswith("figures/")}
    assert len(pictures) == 2 * len(names)
    assert {path.parent for path in pictures} == {tmp_path / "in" / "figures"}
    assert {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")} == {"in"}
    for path in pictures:
        assert "".join(xml.parse(path).getroot().itertext()).startswith("\n")


# What is missing, odd or empty


def test_an_empty_report_says_so(tmp_path):
    paths = write(EMPTY, tmp_path)
    assert "Nothing was run yet." in paths["report.html"].read_text("utf-8")
    assert paths["report.md"].read_text("utf-8") == "# Nothing\n"


def test_cells_that_were_not_run_one_seed_and_notes():
    cells = {"a": Cell(60.0, ()), "b": Cell(None, (61.0,), "odd"), "c": Cell(59.0, (58.996, 58.998), "odd")}
    table = Table("t", "T", "", ("h",), ("a", "b", "c", "d"), (Row(("x",), cells),))
    text = markdown.document(dataclasses.replace(EMPTY, tables=(table,)))
    line = "| x | not run<br>60.00 | **61.00**<sup>1</sup> | **59.00** ± 0.00<sup>1</sup><br>59.00 ⬜ ≈ +0.00 | – |"
    assert line in text
    assert "- <sup>1</sup> odd" in text
    assert text.count("odd") == 1, "a note that two cells share is printed once"
    assert "1 of 2 within 2 points, 0 above, 0 below, 1 not run (within or above: 1, 50%)." in text


@pytest.mark.parametrize(
    ("x", "y", "logs", "drawn"),
    [
        ((), (), False, 0),
        ((1.0,), (5.0,), False, 1),
        ((0.0, 0.0), (0.0, 0.0), False, 2),
        ((1.0, 2.0, 3.0), (math.nan, math.inf, 1.0), False, 1),
        ((0.0, -1.0, 10.0, 100.0), (1.0, 1.0, 0.0, 1e-300), True, 1),
        ((1e-30, 1e30), (1e30, 1e-30), True, 2),
        ((5.0, 6.0), (5.0, 5.1), True, 2),
        ((1e9, 1e9 + 1), (1e-9, 2e-9), False, 2),
    ],
)
def test_odd_values_have_a_picture(x, y, logs, drawn):
    text = svg.file(Panel("p", "x", "y", (Series("s", x, y),), logs, logs))
    found = [
        json.loads(group.get("data-points", "[]")) for group in xml.fromstring(text).iter() if group.get("data-points")
    ]
    assert sum(map(len, found)) == drawn
    assert ("No values yet" in text) == (drawn == 0)
    assert "nan" not in text
    assert "inf" not in text


def test_a_long_line_keeps_its_ends_peaks_and_gaps():
    rng = random.Random(0)
    y = [rng.gauss(0, 1) for _ in range(2500)] + [0.5] * 2500
    y[1234], y[4321], y[2500] = 50.0, -50.0, math.nan
    steps = tuple(map(float, range(5000)))
    text = svg.file(Panel("p", "x", "y", (Series("s", steps, tuple(y)),)))
    (group,) = (found for found in xml.fromstring(text).iter() if found.get("class") == "series")
    points = [tuple(map(float, point[2:])) for point in json.loads(group.get("data-points"))]
    assert 300 < len(points) <= 610
    assert {(0.0, float(f"{y[0]:.4g}")), (1234.0, 50.0), (4321.0, -50.0), (4999.0, float(f"{y[-1]:.4g}"))} <= set(
        points
    )
    assert group.find(".//{*}path").get("d").count("M") == 2


def test_a_line_is_broken_where_a_value_is_missing():
    text = svg.panel(Panel("p", "x", "y", (Series("s", (1.0, 2.0, 3.0, 4.0), (1.0, 2.0, math.nan, 1.0)),)))
    line = re.findall(r'class="line" d="([^"]*)"', text.partition('class="series"')[2])[0]
    assert re.sub("[^MLh]", "", line) == "MhLMh"


def test_ticks_are_round_few_and_on_the_axis():
    rng = random.Random(0)
    for log in (False, True):
        for _ in range(2000):
            low = rng.uniform(-8, 8) if log else rng.uniform(-1, 1) * 10 ** rng.uniform(-6, 6)
            high = low + (rng.uniform(0.05, 12) if log else 10 ** rng.uniform(-3, 7))
            axis = svg.Axis(low, high, log, 0, 100)
            ticks = axis.ticks()
            assert 2 <= len(ticks) <= 7
            assert all(-0.1 <= axis.place(value) <= 100.1 for value, _ in ticks)
            assert len({text for _, text in ticks}) == len(ticks), "no two read alike"


def test_names_are_safe_and_differ():
    assert words.slugs(["Table 1", "table-1", "ö", ""]) == ["table-1", "table-1-2", "unnamed", "unnamed-2"]


def test_no_two_parts_of_a_page_have_the_same_name(made):
    renamed = [dataclasses.replace(made.tables[0], name=name) for name in ("tools", "filter", "table", "TABLE", "tip")]
    found = Elements(page.document(dataclasses.replace(made, tables=tuple(renamed))))
    names = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(set(names)) == len(names)
    assert set(names) >= set(page.PART_NAMES)


def test_the_report_needs_no_jax():
    code = "import sys, paper.report, paper.document; print('jax' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_parts_of_the_page_are_in_the_package():
    folder = importlib.resources.files("paper.report")
    assert {Path(str(part)).name for part in folder.iterdir() if part.is_file()} >= {"page.html", "page.css", "page.js"}
    assert "</script" not in (folder / "page.js").read_text("utf-8")


def test_verdicts_have_words():
    said = [words.verdict(Claim("", verdict, ""))[1] for verdict in (True, False, None)]
    assert said == ["holds", "does not hold", "undecided"]

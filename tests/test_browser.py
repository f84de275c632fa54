"""The page of results in headless Chromium: sorting, filtering, values on hover and focus, dark, small, printed."""

import itertools
import json
import re
import shutil

import pytest
import results
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from test_report import hostile

from paper import tables
from paper.report import page
from paper.settings import FULL

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="Chromium and its driver are not installed: `make browser` does it as root"
)

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
SIZES = {"large": 1480, "desktop": 1280, "laptop": 1064, "tablet": 800, "phone": 380, "small": 320}
# Readable by WCAG 2: the contrast of small text with what is behind it.
LEAST_CONTRAST = 4.5


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER)) as driver:
        yield driver


@pytest.fixture(scope="module")
def made():
    return results.report()


@pytest.fixture(scope="module")
def address(made, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page.document(made), "utf-8")
    return path.as_uri()


@pytest.fixture
def opened(browser, address):
    """The page, as a user finds it on a desktop; at the end, no error may have been logged."""
    scheme(browser, "light")
    size(browser, "desktop")
    browser.get(address)
    yield browser
    assert browser.get_log("browser") == []


def scheme(browser, name, media=""):
    features = [{"name": "prefers-color-scheme", "value": name}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def size(browser, name):
    phone = name in ("phone", "small")
    metrics = {"width": SIZES[name], "height": 900, "deviceScaleFactor": 1, "mobile": phone}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": phone})


def all_of(browser, selector):
    return browser.find_elements(By.CSS_SELECTOR, selector)


def one(browser, selector):
    return browser.find_element(By.CSS_SELECTOR, selector)


def shown_rows(browser, table):
    """(heads..., figure that is shown first in each column) of the visible rows, in their order."""
    script = """
    return [...document.querySelectorAll(`#${arguments[0]} tbody tr:not(.group)`)].filter(row => !row.hidden)
      .map(row => [...row.querySelectorAll("th")].map(head => head.firstChild.textContent))"""
    return [tuple(heads) for heads in browser.execute_script(script, table)]


def press(browser, table, column, key=None):
    button = one(browser, f"#{table} thead th:nth-child({1 + column}) button")
    button.send_keys(key) if key else button.click()
    return one(browser, f"#{table} thead th:nth-child({1 + column})").get_attribute("aria-sort")


def by_figure(table, column, name, reverse):
    """Heads of the rows in the order of a figure, those without one last; equals stay in their order."""
    value = {row.heads: getattr(row.cell(column), name) for row in table.rows}
    known = sorted((row.heads for row in table.rows if value[row.heads] is not None), key=value.get, reverse=reverse)
    return known + [row.heads for row in table.rows if value[row.heads] is None]


def test_a_column_of_figures_sorts_by_click_and_by_key(opened, made):
    table = made.tables[0]
    column = table.columns.index("birds")
    before = shown_rows(opened, "table1")
    assert before == [row.heads for row in table.rows]
    for key in (None, Keys.ENTER, Keys.SPACE):
        place = len(table.heads) + column
        assert press(opened, "table1", place, key) == "descending"
        assert shown_rows(opened, "table1") == by_figure(table, "birds", "ours", True)
        assert not one(opened, "#table1 .group").is_displayed()
        assert one(opened, "#table1 tbody tr .block").text in {row.block for row in table.rows}
        assert press(opened, "table1", place, key) == "ascending"
        assert shown_rows(opened, "table1") == by_figure(table, "birds", "ours", False)
        assert press(opened, "table1", place, key) == "none"
        assert shown_rows(opened, "table1") == before
        assert one(opened, "#table1 .group").is_displayed()


def test_a_column_of_texts_sorts(opened, made):
    heads = [row.heads for row in made.tables[1].rows]
    assert press(opened, "table2", 2) == "ascending"
    assert shown_rows(opened, "table2") == sorted(heads, key=lambda row: row[2].lower())
    assert press(opened, "table2", 0) == "ascending"
    sorts = [head.get_attribute("aria-sort") for head in all_of(opened, "#table2 thead th")]
    assert sorts == ["ascending"] + ["none"] * (len(sorts) - 1), "only one column is the sorted one"


@pytest.mark.parametrize(("shown", "name"), [("paper", "printed"), ("difference", "difference"), ("ours", "ours")])
def test_the_switch_says_what_is_shown_first_and_sorted(opened, made, shown, name):
    press(opened, "table1", 2)
    one(opened, f"input[value={shown}] + span").click()
    assert shown_rows(opened, "table1") == by_figure(made.tables[0], "yeast", name, True)
    heights = {
        part: one(opened, f"#table1 td .figures .{part}").size["height"] for part in ("ours", "paper", "difference")
    }
    assert max(heights, key=heights.get) == shown
    for part in heights:
        assert one(opened, f"#table1 td .figures .{part}").is_displayed()


def test_rows_are_filtered_by_text(opened, made):
    total = sum(len(table.rows) for table in made.tables)
    assert one(opened, "#count").text == f"{total} rows"
    one(opened, "#filter").send_keys("MIN-MIN mlp")
    for table in made.tables:
        wanted = [row.heads for row in table.rows if "min-min" in row.heads[0] and "MLP" in row.heads[-1]]
        assert shown_rows(opened, table.name) == wanted
        # The loss is read at the first row that shows it, though its first row is filtered out.
        again = all_of(opened, f"#{table.name} tbody tr:not([hidden]):not(.again):not(.group)")
        assert len(again) == len({heads[0] for heads in wanted})
        groups = [group.text for group in all_of(opened, f"#{table.name} .group") if group.is_displayed()]
        assert groups == [results.METHOD]
    assert re.fullmatch(rf"\d+ of {total} rows", one(opened, "#count").text)
    one(opened, "#filter").send_keys(" nothing-has-this")
    assert [part.text for part in all_of(opened, "article .empty")] == ["No row matches."] * len(made.tables)
    assert not one(opened, "#table1 table").is_displayed()
    one(opened, "#filter").clear()
    one(opened, "#filter").send_keys(Keys.SPACE)
    assert one(opened, "#count").text == f"{total} rows"


def test_chips_choose_blocks_and_rows_that_are_off(opened, made):
    table = made.tables[0]
    today, library = (one(opened, f'.chip[data-block="{name}"]') for name in (results.TODAY, results.LIBRARY))
    today.click()
    assert today.get_attribute("aria-pressed") == "true"
    assert shown_rows(opened, "table1") == [row.heads for row in table.rows if row.block == results.TODAY]
    library.click()
    assert shown_rows(opened, "table1") == [row.heads for row in table.rows if row.block != results.METHOD]
    today.click()
    library.click()
    seen = set()
    for kind in ("below", "above"):
        one(opened, f".chip[data-off={kind}]").click()
        seen |= {row.heads for row in table.rows if any(cell.agreement == kind for cell in row.cells.values())}
        assert shown_rows(opened, "table1") == [row.heads for row in table.rows if row.heads in seen]
        assert 0 < len(seen) < len(table.rows)
    for kind in ("below", "above"):
        one(opened, f".chip[data-off={kind}]").click()
    assert len(shown_rows(opened, "table1")) == len(table.rows)


def test_hover_and_touch_tell_the_values_of_a_point(opened, made):
    plot = one(opened, "#figure2 .plot")
    tip = one(opened, "#tip")
    series = made.figures[1].panels[0].series[0]
    for touch in (False, True):
        place, told = point_on_screen(opened, plot, 0, 7)
        point_at(opened, *place, touch=touch)
        assert tip.is_displayed()
        assert tip.text == f"unseen rows\nexact log-partition: {told[2]}\nlearned tau: {told[3]}"
        assert [float(value) for value in told[2:]] == pytest.approx([series.x[7], series.y[7]], rel=6e-4)
    point_at(opened, 5, 5)
    assert not tip.is_displayed()


def point_on_screen(browser, plot, series, place):
    """Where a point is on the screen, and what it carries; one that no other is nearer to."""
    script = """
    const [plot, series, place] = arguments;
    plot.scrollIntoView({block: "center"});
    const point = JSON.parse(plot.querySelectorAll(".series")[series].dataset.points)[place];
    const at = new DOMPoint(point[0], point[1]).matrixTransform(plot.getScreenCTM());
    return [[at.x, at.y], point]"""
    return browser.execute_script(script, plot, series, place)


def point_at(browser, x, y, touch=False):
    if touch:
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    else:
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})


def test_the_keyboard_reaches_every_point(opened, made):
    panel = made.figures[0].panels[2]
    one(opened, "#figure1 .panels div:nth-child(2) .plot").send_keys(Keys.TAB)
    plot = opened.switch_to.active_element
    assert panel.title in plot.get_attribute("aria-label")
    tip = one(opened, "#tip")
    assert tip.text.startswith("min-min\nB': 4\n")
    seen = {tip.text}
    for _ in panel.series[0].x:
        plot.send_keys(Keys.ARROW_RIGHT)
        seen.add(tip.text)
    assert len(seen) == len(panel.series[0].x)
    assert one(opened, "#heard").get_attribute("textContent") == tip.text
    plot.send_keys(Keys.ARROW_DOWN)
    assert tip.text.startswith("exact MLE\nB': 4096\n")
    plot.send_keys(Keys.HOME)
    assert tip.text == "exact MLE\nB': 4\nF1, %: 61.46"
    plot.send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()
    plot.send_keys(Keys.ARROW_UP)
    assert tip.is_displayed()
    plot.send_keys(Keys.TAB)
    assert tip.text.startswith("unseen rows"), "the next plot has the focus"


def test_light_and_dark_follow_the_system_and_the_button(opened):
    def is_dark():
        color = opened.execute_script("return getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", color)[:3])) < 200

    button = one(opened, "#theme")
    assert (is_dark(), button.text) == (False, "Dark")
    button.click()
    assert (is_dark(), button.text) == (True, "Light")
    button.click()
    assert not is_dark()
    opened.refresh()
    scheme(opened, "dark")
    # The page hears of the system's change after its styles do.
    WebDriverWait(opened, 5).until(lambda _: one(opened, "#theme").text == "Light")
    assert is_dark()
    one(opened, "#theme").click()
    assert not is_dark(), "the button is stronger than the system"
    opened.refresh()
    assert is_dark(), "and remembered no longer than the page is open"


CONTRAST = """
const lightness = color => {
  const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = node => {
  for (let at = node; at; at = at.parentElement) {
    const color = getComputedStyle(at).backgroundColor;
    if (!/, 0\\)$|transparent/.test(color)) return color;
  }
};
const own = node => [...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim());
return [...document.querySelectorAll("body *:not(script):not(svg *)")]
  .filter(node => own(node) && node.checkVisibility() && getComputedStyle(node).color !== "rgba(0, 0, 0, 0)")
  .map(node => {
    const [a, b] = [getComputedStyle(node).color, ground(node)].map(lightness).sort((a, b) => b - a);
    return [(a + 0.05) / (b + 0.05), `${node.className || node.tagName}: ${node.textContent.slice(0, 40)}`];
  });"""


@pytest.mark.parametrize("name", ["light", "dark"])
def test_text_stands_out(opened, name):
    scheme(opened, name)
    found = opened.execute_script(CONTRAST)
    assert len(found) > 500
    assert min(found)[0] >= LEAST_CONTRAST, min(found)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """All tables of the paper with their own heads, and figures of three seeds."""
    path = tmp_path_factory.mktemp("page") / "real.html"
    all_tables = tuple(tables.build(name, lambda _: (70.0, 92.0, 98.0), FULL) for name in tables.TABLES)
    path.write_text(page.document(results.Report("Real", {}, all_tables, (), (), ())), "utf-8")
    return path.as_uri()


@pytest.mark.parametrize(("width", "shown"), [*itertools.product(SIZES, ["ours", "difference"])])
@pytest.mark.parametrize("where", ["address", "real"])
def test_no_screen_scrolls_sideways(opened, request, where, width, shown):
    opened.get(request.getfixturevalue(where))
    size(opened, width)
    opened.execute_script(f"document.querySelector('input[value={shown}]').click()")
    assert opened.execute_script("return document.documentElement.scrollWidth") <= SIZES[width]
    # Nor does a figure stick out of its cell.
    script = """
    const right = node => node.getBoundingClientRect().right;
    const parts = [...document.querySelectorAll("td.cell .figures > span")];
    return [parts.length, parts.filter(part => right(part) > right(part.closest("td")) + 1).length]"""
    count, outside = opened.execute_script(script)
    assert count > 300
    assert outside == 0


def test_nothing_is_loaded(opened):
    assert opened.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_hostile_text_runs_nothing(opened, made, tmp_path):
    path = tmp_path / "hostile.html"
    path.write_text(page.document(hostile(made)), "utf-8")
    opened.get(path.as_uri())
    assert opened.execute_script("return typeof hacked") == "undefined"
    one(opened, ".chip[data-block]").click()
    one(opened, "#filter").send_keys("<script>")
    assert len(shown_rows(opened, all_of(opened, "article")[0].get_attribute("id"))) == len(made.tables[0].rows)
    size(opened, "phone")
    assert opened.execute_script("return document.documentElement.scrollWidth") <= SIZES["phone"]


def test_print_shows_tables_and_no_tools(opened):
    scheme(opened, "dark", media="print")
    assert not one(opened, "#tools").is_displayed()
    assert not one(opened, "#theme").is_displayed()
    assert one(opened, "#table1 table").is_displayed()
    printed = opened.print_page()
    assert len(printed) > 10_000


def test_pictures_of_the_page_can_be_taken(opened, tmp_path):
    """Left in pytest's folder for whoever wants to look."""
    for width, name in itertools.product(("desktop", "phone"), ("light", "dark")):
        size(opened, width)
        scheme(opened, name)
        assert opened.save_screenshot(str(tmp_path / f"{width}-{name}.png"))
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 4
    assert min(sizes) > 10_000


def test_an_empty_page_has_no_tools(opened, tmp_path):
    path = tmp_path / "empty.html"
    path.write_text(page.document(results.Report("Nothing", {}, (), (), (), ())), "utf-8")
    opened.get(path.as_uri())
    assert one(opened, "main").text == "Nothing was run yet."
    assert json.loads(opened.execute_script("return JSON.stringify(document.title)")) == "Nothing"

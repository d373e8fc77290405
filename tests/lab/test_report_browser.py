"""The report in a real browser. Where there is no Chromium, there is nothing to run."""

from __future__ import annotations

import pytest
from helpers.browser import COMMAND, Browser
from helpers.legible import FAINT, TOO_SMALL
from helpers.synthetic import write_errors, write_realistic

from evodrop.lab.curves import read_curves
from evodrop.lab.panels import find_panel
from evodrop.lab.report import make_page
from evodrop.lab.verdicts import outcomes_of

pytestmark = pytest.mark.skipif(COMMAND is None, reason="there is no Chromium here")
SECTIONS = ("table", "claims", "curves", "layers", "origin")
SEVERAL = {"none": 9, "standard": 8, "uniform": 7, "evolutional": 12, "water-filling": 10}
EVIL = "<b>bold</b><img src=x onerror=alert(1)>"
DRAWN = "[...document.querySelectorAll('.plotly-graph-div')].every(place => place.querySelector('.main-svg'))"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report with all there can be: claims, two layers, a method that diverged, a name with HTML in it."""
    out = tmp_path_factory.mktemp("report")
    for seed in range(3):
        for method, speed in SEVERAL.items():
            layers = ("dropout1", EVIL) if method != "none" else ()
            write_realistic(out / "runs", method, seed, speed, floor=0.2 / speed, layers=layers)
    write_errors(out / "runs", [0.9, 0.8, None], "diverged", method=EVIL)
    outcomes = outcomes_of(read_curves([out / "runs"]), find_panel("fig2-mnist"))
    (out / "report.html").write_text(make_page(outcomes, "evodrop compare"))
    return out / "report.html"


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_the_page_is_whole_and_legible_and_nothing_goes_wrong(browser, page, tmp_path, width, dark):
    browser.open(page, width, dark=dark)
    browser.wait_until(DRAWN)
    places = browser.run("[...document.querySelectorAll('section')].map(part => part.getBoundingClientRect().top)")
    assert places == sorted(places)
    assert browser.run("[...document.querySelectorAll('section')].map(part => part.id)") == list(SECTIONS)
    assert browser.run("document.querySelectorAll('.plotly-graph-div').length") == 3 + 2 * 5
    assert browser.run("document.documentElement.scrollWidth") <= width  # nothing sticks out
    assert browser.run(TOO_SMALL) == []
    assert browser.run(FAINT) == []
    browser.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000
    assert browser.problems == []


@pytest.mark.parametrize("width", [390, 1440])
def test_the_verdict_is_on_the_first_screen(browser, page, width):
    browser.open(page, width, height=800)
    assert browser.run("document.querySelector('.verdict').getBoundingClientRect().bottom") < 800


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_a_ranking_names_all_methods_and_says_where_the_baseline_is(browser, tmp_path, width, dark):
    names = ["standard", *(f"a method of the name {number}" for number in range(11)), EVIL]
    for at, name in enumerate(names):
        for seed in range(2):
            write_errors(tmp_path / "runs", [0.5, 0.3 - 0.01 * at + 0.02 * seed], method=name, seed=seed)
    write_errors(tmp_path / "runs", [0.5, None], "diverged", method="none")
    (tmp_path / "report.html").write_text(make_page(outcomes_of(read_curves([tmp_path / "runs"])), ""))
    browser.open(tmp_path / "report.html", width, dark=dark)
    browser.wait_until(DRAWN)
    ticks = browser.run("[...document.querySelectorAll('#ranking-0-0 .ytick text')].map(tick => tick.textContent)")
    assert sorted(ticks) == sorted([*names, "none (1 of 1 diverged)"])
    assert browser.run("document.querySelectorAll('#ranking-0-0 .shapelayer path').length") == 1
    assert browser.run("document.querySelectorAll('#ranking-0-0 .xerror').length") == len(names)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(FAINT) == browser.run(TOO_SMALL) == browser.problems == []


def visible(browser):
    """The names in the legend of the first plot whose curves are seen."""
    plot = "document.getElementById('clean-0-0')"
    return browser.run(f"{plot}.data.filter(line => line.name && line.visible !== 'legendonly').map(line => line.name)")


def test_a_click_on_a_legend_hides_a_curve_and_its_band(browser, page):
    browser.open(page)
    browser.wait_until(DRAWN)
    before = visible(browser)
    assert before[:-1] == ["standard", "evolutional", "none", "uniform", "water-filling"]
    browser.run("document.getElementById('clean-0-0').scrollIntoView()")
    place = "document.querySelector('#clean-0-0 .legendtoggle').getBoundingClientRect()"
    x, y = browser.run(f"(place => [place.x + 20, place.y + place.height / 2])({place})")
    for kind in ("mousePressed", "mouseReleased"):
        browser.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    browser.wait_until("document.getElementById('clean-0-0').data[1].visible === 'legendonly'")
    assert visible(browser) == before[1:]
    hidden = browser.run("document.getElementById('clean-0-0').data.filter(line => line.visible).length")
    assert hidden == 2  # the curve and its band
    assert browser.problems == []


def test_probabilities_open_on_the_challenger_and_follow_the_chosen_method(browser, page):
    browser.open(page)
    browser.wait_until(DRAWN)
    shown = "document.getElementById('probs-0-1')._fullData.map(trace => trace.visible)"
    before = browser.run(shown)
    header = "document.querySelector('#probs-0-1 .updatemenu-header')"
    assert browser.run(f"{header}.textContent").startswith("evolutional")
    assert [at for at, seen in enumerate(before) if seen] == list(range(8, 16))  # five bands and three lines
    for place in (
        header,
        "document.querySelector('#probs-0-1 .updatemenu-dropdown-button')",
    ):  # open it, take the first
        browser.run(f"{place}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
        browser.wait_until("document.querySelector('#probs-0-1 .updatemenu-dropdown-button')")
    browser.wait_until(f"{shown}.slice(0, 8).every(seen => seen)")
    assert browser.problems == []


def test_plots_follow_the_scheme_while_the_page_is_open(browser, page):
    browser.open(page)
    browser.wait_until(DRAWN)
    ink = "getComputedStyle(document.querySelector('#clean-0-0 .xtick text')).fill"
    assert browser.run(ink) == "rgb(27, 27, 27)"
    browser.resize(1440, dark=True)
    browser.wait_until(f"{ink} === 'rgb(236, 236, 236)'")
    assert browser.problems == []


def test_names_from_records_stay_text(browser, page):
    browser.open(page)
    browser.wait_until(DRAWN)
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("document.querySelectorAll('.plot b').length") == 0
    legend = browser.run("[...document.querySelectorAll('#clean-0-0 .legendtext')].map(name => name.textContent)")
    assert legend[-1] == f"{EVIL} (1 of 1 diverged)"
    titles = browser.run("[...document.querySelectorAll('#layers h3')].map(title => title.textContent)")
    assert titles == ["Layer dropout1", f"Layer {EVIL}"]
    assert browser.problems == []


def test_without_scripts_the_words_are_there(browser, page):
    browser.open(page, scripts=False)
    root = browser.ask("DOM.getDocument")["root"]["nodeId"]
    for section in SECTIONS:
        part = browser.ask("DOM.querySelector", nodeId=root, selector=f"#{section} h2")
        assert part["nodeId"] != 0

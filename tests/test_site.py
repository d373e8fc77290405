"""The site builds without a warning, its links lead somewhere, it has every public name, and a browser likes it."""

from __future__ import annotations

import importlib
import io
import os
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest
from filelock import FileLock
from helpers.browser import COMMAND, Browser
from helpers.legible import FAINT, TOO_SMALL
from sphinx.util.inventory import InventoryFile
from test_readme import ROOT

PUBLIC = ("definitions", "noise", "sampling", "nn", "nn.functional", "nn.zoo", "linear", "linear.dask", "theory")
SHOWN = (
    *("index", "layers", "theory", "zoo", "benchmarks"),
    *("api/generated/evodrop.nn.EvolutionalDropout", "auto_gallery/index", "auto_gallery/plot_3_describe"),
)
NO_TRANSITIONS = "document.head.insertAdjacentHTML('beforeend', '<style>* { transition: none !important; }</style>')"
in_a_browser = pytest.mark.skipif(COMMAND is None, reason="there is no Chromium here")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site without the runs of the gallery, which has a test of its own. It is made once for all test processes."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with FileLock(shared / "site.lock"):
        if not (shared / "site").exists():
            made = tmp_path_factory.mktemp("site")
            build_site(tmp_path_factory.mktemp("tree"), made)
            made.rename(shared / "site")
    return shared / "site"


def build_site(tree, out):
    """In a copy of what it needs, since Sphinx writes to docs."""
    for name in ("docs", "results"):  # copied, since MyST follows symbolic links
        made = shutil.ignore_patterns("_build", "auto_gallery", "generated", "sg_execution_times.rst", "*.gz")
        shutil.copytree(ROOT / name, tree / name, ignore=made)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, tree)
        elif path.name in ("src", "tests", "tools", "benchmarks", "examples"):
            (tree / path.name).symlink_to(path)
    command = [sys.executable, "-m", "sphinx", "--builder", "html", "--nitpicky", "--quiet", "-D", "plot_gallery=0"]
    run = subprocess.run(
        [*command, tree / "docs", out], capture_output=True, text=True, timeout=600, check=False, cwd=tree
    )
    assert (run.returncode, run.stderr) == (0, "")


@pytest.fixture(scope="module")
def address(site):
    handler = partial(Silent, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


class Page(HTMLParser):
    """What a page links to, and what can be linked to."""

    def __init__(self, path):
        super().__init__()
        self.links, self.places = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.places |= {found.get("id"), found.get("name")}
        if tag != "link":
            self.links += [found[name] for name in ("href", "src") if found.get(name)]


def test_no_link_within_the_site_is_broken(site):
    pages = {path: Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}
    assert len(pages) > 60
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or link == "#":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            if not target.exists() or (place and target in pages and place not in pages[target].places):
                broken.append((path.name, link))
    assert broken == []


def test_every_public_name_is_in_the_api(site):
    inventory = InventoryFile.load(io.BytesIO((site / "objects.inv").read_bytes()), "", os.path.join)
    documented = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    last = {name.rpartition(".")[2] for name in documented}
    for module in PUBLIC:
        assert f"evodrop.{module}" in documented
        missing = set(importlib.import_module(f"evodrop.{module}").__all__) - last
        assert not missing, f"the API lacks names of evodrop.{module}: {sorted(missing)}; list them in docs/api"


def test_formulas_are_drawn_without_the_network(site):
    for page in ("theory", "api/generated/evodrop.nn.EvolutionalDropout"):
        text = (site / f"{page}.html").read_text(encoding="utf-8")
        assert text.count("<math") >= 1
        assert not re.search(r'<script[^>]+src="(?!/)\w+:', text)


@in_a_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("page", SHOWN)
def test_a_page_is_whole_and_legible_and_nothing_goes_wrong(browser, address, page, width, dark):
    browser.open(f"{address}/{page}.html", width, dark=dark)
    browser.wait_until("document.readyState === 'complete'")
    browser.run(NO_TRANSITIONS)  # colours are on their way from one scheme to the other
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert browser.run(TOO_SMALL) == []
    assert browser.run(FAINT) == []
    assert browser.problems == []


@in_a_browser
@pytest.mark.parametrize(
    ("words", "found"), [("convert_dropout", "evodrop.nn.convert_dropout"), ("misprint", "theory")]
)
def test_the_search_finds(browser, address, words, found):
    browser.open(f"{address}/search.html?q={words}")
    browser.wait_until("document.querySelectorAll('#search-results li a').length > 0")
    links = browser.run("[...document.querySelectorAll('#search-results li a')].map(link => link.getAttribute('href'))")
    assert any(re.search(rf"{re.escape(found)}\.html", link) for link in links)
    assert browser.problems == []

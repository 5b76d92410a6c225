"""The documentation site: built without a network and without a warning, and read without another host."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.machine.lock import locked
from lab.tools import chromium
from lab.tools.browser import NETWORK_CHANGED, Browser
from tasks.site.build import build
from tests.worker import of_all_workers

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.functional

ROOT = Path(__file__).parents[2]
BUILT_S = 250.0
LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"([^\"]+)|<link\b[^>]*\bhref=\"([^\"]+)")
BACK = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
IMPORTED = re.compile(r"url\(\s*['\"]?(?!data:)(https?:|//)|@import")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once for all workers, in a network of its own that leads nowhere."""
    shared = of_all_workers(tmp_path_factory)
    folder, done = shared / "site", shared / "site.built"
    with locked(shared / "site.lock", wait_s=BUILT_S):
        if not done.exists():
            build = [sys.executable, "-P", "-m", "tasks.site", "--output", str(folder)]
            argv = ["unshare", "--net", "--map-root-user", *build]
            result = subprocess.run(argv, cwd=ROOT, text=True, capture_output=True, timeout=BUILT_S, check=False)
            assert (result.returncode, result.stderr) == (0, ""), result.stdout
            done.touch()
    return folder


def pages(site: Path) -> Iterator[tuple[str, str]]:
    for page in site.rglob("*.html"):
        yield str(page.relative_to(site)), page.read_text(encoding="utf-8")


def test_every_page_of_the_documents_is_there(site: Path) -> None:
    documents = {path.relative_to(ROOT).with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}

    assert {str(page) for page in documents if not (site / page).exists()} == set()
    assert 'url=docs/README.html"' in site.joinpath("index.html").read_text()


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    loaded = {(page, one or other) for page, text in pages(site) for one, other in LOADED.findall(text)}
    foreign = {each for each in loaded if re.match(r"[a-z]+:|//", each[1]) and not each[1].startswith("data:")}
    styles = [path for path in site.rglob("*.css") if IMPORTED.search(path.read_text(encoding="utf-8"))]

    assert len(loaded) > 1000
    assert (foreign, styles) == (set(), [])


class Served(SimpleHTTPRequestHandler):
    """Serves the site and says nothing of it."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Served, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(chromium.ensure()) as window:
        yield window


def open_page(browser: Browser, url: str) -> None:
    browser.complaints.clear()
    browser.go(url)
    browser.wait(f"location.href.startsWith('{url}') && document.readyState === 'complete'")


@pytest.mark.parametrize("width", [1280, 390], ids=["wide", "narrow"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_read_at_two_widths_in_light_and_dark(
    browser: Browser, address: str, width: int, scheme: str
) -> None:
    browser.resize(width, 900)
    browser.prefer(scheme)
    for page in ("README", "complaints", "reference/declaration", "drivers", "upgrade"):
        open_page(browser, f"{address}/docs/{page}.html")

        assert browser.run("document.documentElement.scrollWidth") == width, f"{page}: nothing is cut off at the side"
        assert (browser.run(BACK) > 128) == (scheme == "light")
        assert [each for each in browser.complaints if NETWORK_CHANGED not in each and "favicon" not in each] == []


def test_the_first_page_leads_each_role_to_its_path(browser: Browser, address: str) -> None:
    browser.resize(1280, 900)
    browser.go(f"{address}/")
    browser.wait("location.pathname === '/docs/README.html' && document.readyState === 'complete'")
    first = browser.run("[...document.querySelectorAll('.sidebar-tree .toctree-l1 > a')].map((each) => each.innerText)")

    assert first[:3] == ["I have bare machines", "I have a cluster", "I come from the GPU operator"]
    assert [each for each in first if each in {"Decisions", "Complaints"}] == []


def test_the_navigation_shows_where_a_page_is(browser: Browser, address: str) -> None:
    browser.resize(1280, 900)
    open_page(browser, f"{address}/docs/hook/loader.html")
    current = browser.run("[...document.querySelectorAll('.sidebar-tree .current > a')].map((each) => each.innerText)")
    top = browser.run("document.querySelector('.sidebar-tree .current-page').getBoundingClientRect().top")

    assert current == ["The hook", "How a container's loader finds the driver"]
    assert 0 < top < 900


def test_a_search_finds_a_key_of_the_declaration(browser: Browser, address: str) -> None:
    browser.resize(1280, 900)
    open_page(browser, f"{address}/search.html?q=moduleParameters")
    browser.wait("document.querySelector('#search-results a[href*=\"docs/reference/declaration.html\"]') !== null")

    title = browser.run("document.querySelector('#search-results a[href*=\"reference/declaration\"]').innerText")
    assert title == "Keys of the declaration"


@pytest.mark.filterwarnings("ignore:.*Check CHANGES for Sphinx API")  # MyST's, with a newer Sphinx
@pytest.mark.parametrize(
    ("link", "told"),
    [
        ("[drivers](drivers.md), [signing](drivers.md#signing-it), [samples](good)", ""),
        ("[drivers](driver.md)", "driver.md"),
        ("[signing](drivers.md#signing)", "'signing'"),
        ("[above](#nothing)", "'nothing'"),
        ("[a script](../lab/nothing.py)", "../lab/nothing.py"),
        ("![a picture](images/nothing.png)", "docs/images/nothing.png"),
    ],
    ids=["right ones", "a page", "an anchor", "an anchor of the page", "a file", "a picture"],
)
def test_what_leads_nowhere_is_told(tmp_path: Path, link: str, told: str) -> None:
    docs = tmp_path / "checkout" / "docs"
    docs.joinpath("good").mkdir(parents=True)
    docs.joinpath("drivers.md").write_text("# Drivers\n\n## Signing it\n\nWith a key.\n")
    docs.joinpath("README.md").write_text(f"# Documentation\n\n## First\n\n| | |\n|---|---|\n| {link} | it |\n")

    warnings = build(tmp_path / "site", tmp_path / "working", docs.parent)

    assert len(warnings) == bool(told)
    assert all(each.startswith("docs/README.md:") and told in each for each in warnings)


def test_a_search_shows_how_things_are_before_why(browser: Browser, address: str) -> None:
    open_page(browser, f"{address}/search.html?q=reboots")
    browser.wait("document.querySelector('#search-results li a[href*=\"docs/decisions/\"]') !== null")

    found = browser.run("[...document.querySelectorAll('#search-results li a')].map((each) => each.pathname)")
    why = [page.startswith(("/docs/decisions/", "/docs/complaints", "/CHANGELOG")) for page in found]
    assert why == sorted(why)
    assert not why[0]

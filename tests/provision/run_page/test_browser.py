"""The page of a run in a real browser: two widths, light and dark, no complaint, and nothing that a node says runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.tools import chromium
from lab.tools.browser import NETWORK_CHANGED, Browser
from provision.report.run_page import render_page
from tests.provision.runs.story import HOSTILE, HOSTILE_NAME, night, report_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.functional

WIDE, NARROW = (1280, 900), (390, 844)
# The contrast of two colours as WCAG 2.2 defines it.
CONTRAST = """(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => parts(colour).slice(0, 3).map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  return [...document.querySelectorAll('.badge, .do, .verdict .mark')].map((mark) => {
    const style = getComputedStyle(mark);
    const [one, other] = [light(style.color), light(style.backgroundColor)];
    return [mark.className, (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)];
  });
})()"""
BACK = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with Browser(chromium.ensure()) as browser:
        yield browser


@pytest.fixture
def browser(window: Browser, tmp_path: Path) -> Iterator[Browser]:
    """A browser that shows the report of a bad night, and may not complain about it."""
    page = tmp_path / "report.html"
    page.write_text(render_page(report_of(night())), encoding="utf-8")
    window.complaints.clear()
    window.resize(*WIDE)
    window.prefer("light")
    window.go(page.as_uri())
    window.wait("document.readyState === 'complete'")
    yield window
    complaints = [each for each in window.complaints if NETWORK_CHANGED not in each]
    window.go("about:blank")
    assert complaints == []


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read(browser: Browser, size: tuple[int, int], scheme: str) -> None:
    browser.resize(*size)
    browser.prefer(scheme)
    browser.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")

    assert browser.run("document.documentElement.scrollWidth") == size[0], "nothing is cut off at the side"
    assert (browser.run(BACK) > 128) == (scheme == "light")
    contrasts = browser.run(CONTRAST)
    assert len(contrasts) > 8
    assert [each for each in contrasts if each[1] < 4.5] == []


def test_the_failed_node_and_its_remedy_are_seen_without_scrolling(browser: Browser) -> None:
    for size in (WIDE, NARROW):
        browser.resize(*size)
        bottoms = browser.run(
            "['h1', '.trouble h2', '.trouble .reason', '.trouble .do']"
            ".map((each) => document.querySelector(each).getBoundingClientRect().bottom)"
        )
        assert bottoms == sorted(bottoms)
        assert bottoms[-1] < size[1]


def test_the_switch_works_without_storage_or_scripts(browser: Browser) -> None:
    browser.run("document.getElementById('scheme-dark').click()")
    assert browser.run(BACK) < 128
    browser.run("document.getElementById('scheme-light').click()")
    browser.prefer("dark")
    assert browser.run(BACK) > 128
    browser.run("document.getElementById('scheme-auto').click()")
    assert browser.run(BACK) < 128
    assert browser.run("document.scripts.length") == 0


def test_what_nodes_say_is_text(browser: Browser) -> None:
    text = browser.run("document.body.textContent")

    assert HOSTILE_NAME in text
    assert HOSTILE.partition("\x1b")[0] in text
    assert browser.run("document.title").startswith("4 of 44 nodes need somebody")
    assert not browser.run("document.querySelector('img, body script, main b > b')")


def test_nothing_could_run_if_it_got_in(browser: Browser) -> None:
    browser.run(
        "document.body.append(Object.assign(document.createElement('script'),"
        " {textContent: \"document.title = 'gone'\"}))"
    )
    assert browser.run("document.title") != "gone"
    assert [each for each in browser.complaints if "Content Security Policy" in each]
    browser.complaints.clear()


def test_it_prints_in_light_colours(browser: Browser) -> None:
    browser.prefer("dark")
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.run(BACK) > 200
        assert not browser.run("document.querySelector('.scheme').checkVisibility()")
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")

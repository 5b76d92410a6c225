"""The page in a real browser: 5,000 nodes, two widths, light and dark, by keyboard, and with servers that go away."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lab.tools import chromium
from lab.tools.browser import NETWORK_CHANGED, Browser
from provision.report.status_page.feed import Feed
from provision.report.status_page.server import PageServer, Settings
from provision.rollout.model import Phase
from tests.provision.status_page.fleets import STACKS, FakeReader, changed, fleet, in_drain, record
from tests.provision.status_page.test_rows import APPLIED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.rollout.status.model import Seen

pytestmark = pytest.mark.functional

SMALL = fleet(60, 4, done=0.5, flying=7, failed=2)
LARGE = fleet()
WIDE, NARROW = (1400, 900), (390, 844)
TOKEN = "a-token-that-nobody-guesses"  # noqa: S105 - of this test
CELLS = "document.querySelectorAll('#grid [role=gridcell]')"
# The contrast of two colours as WCAG 2.2 defines it.
CONTRAST = """(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => parts(colour).slice(0, 3).map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  return [...document.querySelectorAll('#chips .mark')].map((mark) => {
    const style = getComputedStyle(mark);
    const [one, other] = [light(style.color), light(style.backgroundColor)];
    return [mark.className, (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)];
  });
})()"""


class Stage:
    """A server of the page, which can go away and come back at the same address."""

    def __init__(self, seen: Seen, token: str = "") -> None:
        self.seen, self.token, self.port = seen, token, 0
        self.stack = contextlib.ExitStack()

    def start(self) -> None:
        self.feed = Feed(FakeReader(self.seen), clock=self.seen.time.timestamp)
        self.feed.take(self.seen)
        settings = Settings(address="127.0.0.1", port=self.port, token=self.token)
        self.server = self.stack.enter_context(PageServer(self.feed, settings))
        self.port = self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def stop(self) -> None:
        self.feed.close()
        self.server.shutdown()
        self.thread.join()
        self.stack.close()

    def change(self, **records: object) -> None:
        """Let nodes have other records."""
        self.seen = changed(self.seen, records)  # type: ignore[arg-type]  # records by name
        self.feed.take(self.seen)


@contextlib.contextmanager
def stage(seen: Seen, token: str = "") -> Iterator[Stage]:
    made = Stage(seen, token)
    made.start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with Browser(chromium.ensure()) as browser:
        yield browser


@pytest.fixture
def browser(window: Browser) -> Iterator[Browser]:
    """One browser for all tests; a page may not complain in any of them."""
    window.complaints.clear()
    window.call("Network.clearBrowserCookies")
    window.resize(*WIDE)
    window.prefer("light")
    yield window
    complaints = [each for each in window.complaints if NETWORK_CHANGED not in each]
    window.go("about:blank")
    assert complaints == []


def opened(browser: Browser, served: Stage) -> None:
    browser.go(served.server.url)
    browser.wait(f"{CELLS}.length === {len(served.seen.nodes)}")


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_five_thousand_nodes_are_seen(browser: Browser, size: tuple[int, int], scheme: str) -> None:
    browser.resize(*size)
    browser.prefer(scheme)
    with stage(LARGE) as served:
        opened(browser, served)

        assert browser.run("document.documentElement.scrollWidth") == size[0], "nothing is cut off at the side"
        assert browser.run("document.querySelectorAll('#grid .group').length") == 4
        assert browser.run("document.getElementById('done').textContent") == "1,647"
        assert browser.run("document.getElementById('attention-title').textContent") == "4 nodes need somebody"
        back = browser.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]")
        assert (back > 128) == (scheme == "light")
        contrasts = browser.run(CONTRAST)
        assert len(contrasts) > 8
        assert [each for each in contrasts if each[1] < 4.5] == [], "marks can be read"


def test_stacks_are_seen_with_what_is_wrong(browser: Browser) -> None:
    with stage(replace(fleet(40, 4), stacks=STACKS)) as served:
        opened(browser, served)

        assert browser.run("document.getElementById('stacks-title').textContent") == "2 stacks"
        texts = browser.run("[...document.querySelectorAll('#stacks li')].map((each) => each.innerText)")
        assert "serving Degraded, 37/40 as declared" in texts[0]
        assert "gpu08, gpu09: cannot be reached" in texts[0]
        assert "no controller has looked at it yet" in texts[1]
        assert "<b>3 of 4 GPUs answer</b>" in texts[0], "what a node says is text"
        assert "false" not in "".join(texts)


def test_nodes_without_an_upgrade_are_seen_with_their_machines(browser: Browser) -> None:
    """The page said: 0 of 0 nodes done."""
    with stage(APPLIED) as served:
        opened(browser, served)

        assert browser.run("document.querySelector('.figure').textContent") == "4 nodes, no upgrade of any is recorded"
        rows = browser.run("[...document.querySelectorAll('#machines tbody tr')].map((row) => row.textContent)")
        assert len(rows) == 2
        assert rows[0].startswith("n4550.163.01opencontainerd 1.7.27reports1 of 4 offered")
        browser.run("document.querySelector('#attention .names button').click()")
        browser.wait("document.querySelector('.machine')?.textContent.includes('1 of 4 offered')")


def test_a_change_touches_the_cells_of_its_nodes_alone(browser: Browser) -> None:
    with stage(LARGE) as served:
        opened(browser, served)
        browser.run(
            "window.touched = new Set(); new MutationObserver((all) => all.forEach((one) => touched.add("
            "one.target.dataset?.number ?? one.target.parentElement?.dataset?.number ?? one.target.className)))"
            ".observe(document.getElementById('grid'), "
            "{subtree: true, childList: true, attributes: true, characterData: true})"
        )
        name = in_drain(LARGE)
        served.change(**{name: record(Phase.VERIFY, 90, 1)})
        browser.wait(f"document.querySelector('[aria-label=\"{name}: verify\"]')")

        touched = browser.run("[...touched]")
        assert touched == [browser.run(f"document.querySelector('[aria-label=\"{name}: verify\"]').dataset.number")]


def test_everything_can_be_done_by_keyboard(browser: Browser) -> None:
    focused = "document.activeElement.getAttribute('aria-label')"
    with stage(SMALL) as served:
        opened(browser, served)
        browser.press("/")
        assert browser.run("document.activeElement.id") == "search"
        browser.press("ArrowDown")
        first = browser.run(focused)
        assert first == "gpu-001-01: done"
        browser.press("ArrowRight")
        assert browser.run(focused) == "gpu-001-02: done"
        above = browser.run("document.activeElement.getBoundingClientRect().top")
        browser.press("ArrowDown")
        assert browser.run("document.activeElement.getBoundingClientRect().top") > above
        browser.press("ArrowUp")
        assert browser.run(focused) == "gpu-001-02: done"
        browser.press("End")
        assert browser.run(focused).startswith("gpu-004-15: ")
        browser.press("Home")
        browser.press("Enter")
        browser.wait("document.querySelector('#drawer:not([hidden]) .steps')")
        assert browser.run("document.activeElement.id") == "drawer-title"
        assert browser.run("document.activeElement.textContent") == "gpu-001-01"
        browser.press("Escape")
        assert browser.run("document.getElementById('drawer').hidden")
        assert browser.run(focused) == first, "one is where one was"


def test_who_needs_somebody_is_a_key_away(browser: Browser) -> None:
    needy = "document.getElementById('drawer-title').textContent"
    with stage(SMALL) as served:
        opened(browser, served)
        found = []
        for _ in range(4):
            browser.press("n")
            browser.wait("document.querySelector('#drawer-body .do')")
            found.append(browser.run(needy))
        browser.press("p")

        assert found[0] == found[3], "after the last one comes the first"
        assert len(set(found)) == 3
        assert browser.run(needy) == found[2]


def test_a_cell_can_be_reached_by_the_tab_key_and_only_one(browser: Browser) -> None:
    with stage(SMALL) as served:
        opened(browser, served)

        assert browser.run("document.querySelectorAll('#grid [tabindex=\"0\"]').length") == 1


def test_search_and_states_leave_what_matches(browser: Browser) -> None:
    visible = f"[...{CELLS}].filter((cell) => cell.checkVisibility()).length"
    with stage(SMALL) as served:
        opened(browser, served)
        browser.press("/")
        browser.write("rack 002 done")
        browser.wait("document.getElementById('shown').textContent.startsWith('14 of 60')")
        assert browser.run(visible) == 14
        browser.press("Escape")
        browser.wait("document.getElementById('shown').textContent === ''")
        assert browser.run(visible) == 60
        browser.run("document.querySelector('#chips [data-key=failed-in-verify]').click()")
        assert browser.run(visible) == 2
        assert browser.run("document.querySelector('#chips [data-key=failed-in-verify]').ariaPressed") == "true"


def test_a_list_of_five_thousand_has_few_rows_at_a_time(browser: Browser) -> None:
    with stage(LARGE) as served:
        opened(browser, served)
        browser.press("v")
        assert browser.run("document.querySelector('.row .name').textContent") == "gpu-025-05", "the first that failed"
        assert browser.run("document.querySelectorAll('.row').length") < 60
        browser.run("document.querySelector('.row').focus()")
        browser.press("End")
        assert browser.run("document.activeElement.getAttribute('aria-rowindex')") == "5001"
        assert browser.run("document.querySelectorAll('.row').length") < 60
        browser.press("Enter")
        browser.wait("document.querySelector('#drawer .facts')")


def test_what_a_node_says_is_text(browser: Browser) -> None:
    hostile = "<img src=x onerror=document.title='gone'><script>document.title='gone'</script>"
    name, standing = in_drain(SMALL), SMALL.standing
    assert standing is not None
    seen = replace(SMALL, standing=replace(standing, waiting={**standing.waiting, name: hostile}))
    with stage(seen) as served:
        opened(browser, served)
        browser.run(f"document.querySelector('[aria-label=\"{name}: drain\"]').click()")
        browser.wait("document.querySelector('#drawer .facts')")
        browser.run("document.getElementById('as-list').click()")

        assert hostile in browser.run("document.getElementById('drawer-body').textContent")
        assert hostile in browser.run("document.getElementById('list').textContent")
        assert not browser.run("document.querySelector('main img')")
        assert browser.run("document.title") != "gone"


def test_a_node_that_is_open_follows_what_happens(browser: Browser) -> None:
    name = in_drain(SMALL)
    with stage(SMALL) as served:
        opened(browser, served)
        browser.run(f"document.querySelector('[aria-label=\"{name}: drain\"]').click()")
        browser.wait("document.querySelector('#drawer .badge')?.textContent.includes('drain')")
        served.change(**{name: record(Phase.FAILED, 90, 1, failed_in=Phase.DRAIN, reason="pods did not leave")})
        browser.wait("document.querySelector('#drawer .badge')?.textContent.includes('failed in drain')")

        assert browser.run("document.querySelectorAll('#drawer .log li').length") == 2
        assert "Seen since 2026-05-04" in browser.run("document.querySelector('#drawer .seen').textContent")
        assert browser.run("document.getElementById('said').textContent") == f"{name}: failed in drain"
        browser.wait("document.getElementById('attention-title').textContent === '4 nodes need somebody'")


def test_what_is_offered_can_be_typed_as_it_is(browser: Browser) -> None:
    looks = fleet(20, 1, done=0.0, flying=0, failed=0)
    assert looks.standing is not None
    kept = record(Phase.FAILED, 90, 1, failed_in=Phase.VERIFY, reason="3 of 4 GPUs answer")
    alone = replace(looks, standing=replace(looks.standing, domains=()))
    one, other = list(alone.nodes)[:2]
    with stage(changed(alone, {one: kept, other: kept})) as served:
        opened(browser, served)

        offered = browser.run("document.querySelector('#attention .todo').textContent")
        assert f"grapnel apply {one} {other}, or grapnel rollback {one} {other}" in offered
    with stage(changed(looks, {one: kept, other: kept})) as served:
        opened(browser, served)

        offered = browser.run("document.querySelector('#attention .todo').textContent")
        assert "grapnel apply, or grapnel rollback NODE" in offered, "a domain is changed as one"


def test_a_server_that_goes_away_and_comes_back_is_followed_again(browser: Browser) -> None:
    with stage(SMALL) as served:
        opened(browser, served)
        served.stop()
        browser.wait("document.body.textContent.includes('No connection')")
        served.seen = fleet(45, 3, done=0.5, flying=4, failed=0)
        served.start()

        browser.wait(f"{CELLS}.length === 45")
        browser.wait("!document.body.textContent.includes('No connection')")
    browser.complaints.clear()  # a connection that was refused is an error in the console


def test_the_token_is_typed_and_not_in_the_address(browser: Browser) -> None:
    with stage(SMALL, TOKEN) as served:
        browser.go(served.server.url)
        browser.wait("location.pathname === '/login' && document.readyState === 'complete'")
        assert not browser.run("document.getElementById('wrong').checkVisibility()")
        browser.run("document.getElementById('token').focus()")
        browser.write("not-the-token")
        browser.press("Enter")
        browser.wait("location.hash === '#wrong' && document.readyState === 'complete'")
        assert browser.run("document.getElementById('wrong').checkVisibility()")
        browser.run("document.getElementById('token').focus()")
        browser.write(TOKEN)
        browser.press("Enter")
        browser.wait(f"{CELLS}.length === 60")
        history = browser.call("Page.getNavigationHistory")["entries"]
        urls = [entry["url"] for entry in history]
        assert not [url for url in urls if TOKEN in url or "not-the-token" in url]
        assert browser.run("document.cookie") == "", "scripts do not see the cookie"


def test_colours_are_kept(browser: Browser) -> None:
    with stage(SMALL) as served:
        opened(browser, served)
        browser.press("t")
        browser.press("t")
        assert browser.run("getComputedStyle(document.documentElement).colorScheme") == "dark"
        opened(browser, served)
        assert browser.run("document.documentElement.dataset.theme") == "dark"
        browser.press("t")
        assert browser.run("getComputedStyle(document.documentElement).colorScheme") == "light dark"


def test_groups_follow_what_is_asked_for(browser: Browser) -> None:
    titles = "[...document.querySelectorAll('#grid h3')].map((title) => title.textContent)"
    choose = (
        "(() => {{ const group = document.getElementById('group'); group.value = '{}'; "
        "group.dispatchEvent(new Event('change')); }})()"
    )
    with stage(SMALL) as served:
        opened(browser, served)
        assert browser.run(titles) == ["wave 1 of 4 (canary)", "wave 2 of 4 (development)"]
        browser.run(choose.format("state"))
        assert browser.run(titles)[0] == "failed in verify"
        browser.run(choose.format("domain"))
        assert browser.run(titles) == []
        assert browser.run("document.querySelectorAll('#grid h4').length") == 4

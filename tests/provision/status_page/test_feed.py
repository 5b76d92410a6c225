"""Pages are told what has changed since they last asked: no more, no less, and however late they ask."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from provision.report.status_page import feed as feed_module
from provision.report.status_page.feed import Feed, Message
from provision.rollout.errors import UnreachableError
from provision.rollout.model import Phase
from provision.rollout.status.words import Last
from tests.provision.rollout.fakes import view
from tests.provision.status_page.fleets import NOW, REASONS, FakeReader, changed, fleet, in_drain, record

if TYPE_CHECKING:
    from provision.rollout.status.model import Seen

SMALL = fleet(40, 4, done=0.5, flying=4, failed=0)


class Page:
    """A page as a browser keeps it: what it was sent, put together."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.ident = ""
        self.nodes: dict[int, list[Any]] = {}
        self.reasons: list[str] = []
        self.head: dict[str, Any] = {}

    def ask(self) -> Message | None:
        message = self.feed.wait(self.ident, 0)
        if message is None:
            return None
        document = json.loads(message.body)
        if message.kind == "fleet":
            self.nodes, self.reasons = {}, []
        self.reasons[document["firstReason"] :] = document["reasons"]
        self.nodes |= {entry[0]: entry for entry in document["nodes"]}
        for number in document["gone"]:
            del self.nodes[number]
        self.head = document.get("head", self.head)
        self.ident = message.ident
        return message

    def shown(self) -> dict[str, tuple[str, str]]:
        """Return the state and the reason of each node."""
        return {entry[1]: (entry[2], self.reasons[entry[7]]) for entry in self.nodes.values()}


def started(seen: Seen = SMALL) -> tuple[Feed, Page]:
    feed = Feed(FakeReader(seen), clock=NOW.timestamp)
    feed.take(seen)
    return feed, Page(feed)


def entries(message: Message | None) -> list[str]:
    assert message is not None
    return [entry[1] for entry in json.loads(message.body)["nodes"]]


def test_the_first_message_has_everything_and_the_next_only_what_has_changed() -> None:
    feed, page = started()
    first = page.ask()
    assert first is not None
    assert first.kind == "fleet"
    assert set(page.shown()) == set(SMALL.nodes)

    name = in_drain(SMALL)
    feed.take(changed(SMALL, {name: record(Phase.VERIFY, 90, 1)}))
    message = page.ask()

    assert message is not None
    assert message.kind == "change"
    assert entries(message) == [name]
    assert page.shown()[name] == ("verify", "")


def test_nothing_is_sent_while_nothing_changes() -> None:
    feed, page = started()
    page.ask()

    feed.take(SMALL)

    assert page.ask() is None


def test_an_estimate_that_hardly_moves_is_not_sent() -> None:
    feed, page = started()
    page.ask()

    feed.take(replace(SMALL, time=SMALL.time.replace(second=3)))

    assert page.ask() is None


def test_a_page_that_is_late_misses_versions_and_no_change() -> None:
    feed, page = started()
    page.ask()
    name = in_drain(SMALL)
    seen = changed(SMALL, {name: record(Phase.VERIFY, 90, 1)})
    feed.take(seen)
    waiting = list(SMALL.standing.waiting if SMALL.standing else ())[-1]
    feed.take(changed(seen, {name: record(Phase.DONE, 90, 0), waiting: record(Phase.CORDON, 0, 0)}))
    other = Page(feed)
    other.ask()

    assert sorted(entries(page.ask())) == sorted([name, waiting])
    assert page.shown() == other.shown()


def test_a_node_that_leaves_is_gone_and_may_come_back() -> None:
    feed, page = started()
    page.ask()
    name = next(iter(SMALL.nodes))
    feed.take(replace(SMALL, nodes={other: view for other, view in SMALL.nodes.items() if other != name}))
    page.ask()
    assert name not in page.shown()

    feed.take(SMALL)
    page.ask()

    assert set(page.shown()) == set(SMALL.nodes)


def test_names_that_come_and_go_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may register Nodes had each name remembered, with what was seen of it, for as long as the page ran."""
    monkeypatch.setattr(feed_module, "MAX_GONE", 100)
    feed, page = started()
    page.ask()
    one = next(iter(SMALL.nodes.values()))
    for number in range(2000):
        feed.take(replace(SMALL, nodes={**SMALL.nodes, f"n{number}": replace(one, name=f"n{number}")}))
    page.ask()

    assert len(feed._known) <= len(SMALL.nodes) + 101
    assert len(feed._logs) <= len(SMALL.nodes) + 101
    assert set(page.shown()) == {*SMALL.nodes, "n1999"}
    assert len(feed._logs[next(iter(SMALL.nodes))]) == 1


def test_a_page_of_a_server_that_was_started_again_is_sent_everything() -> None:
    _feed, page = started()
    page.ask()
    again, _ = started()
    page.feed = again

    message = page.ask()

    assert message is not None
    assert message.kind == "fleet"


@pytest.mark.parametrize("ident", ["x", "-", "0-1", "9999999999-9999999999", "é-1", ""])
def test_a_version_that_nobody_gave_is_none(ident: str) -> None:
    feed, page = started()
    page.ident = ident
    message = page.ask()
    assert message is not None
    assert message.kind == "fleet"
    page.ident = f"{page.ident.partition('-')[0]}-99999999"
    assert feed.wait(page.ident, 0) is not None, "a version that is still to come"


def test_reasons_do_not_pile_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "MAX_REASONS", 5)
    feed, page = started()
    name, standing = in_drain(SMALL), SMALL.standing
    assert standing is not None
    kinds = []
    for number in range(12):
        waiting = {**standing.waiting, name: f"pod web-{number} still on the node"}
        feed.take(replace(SMALL, standing=replace(standing, waiting=waiting)))
        message = page.ask()
        assert message is not None
        kinds.append(message.kind)
        assert page.shown()[name][1] == f"pod web-{number} still on the node"

    assert kinds.count("fleet") > 1
    assert len(page.reasons) <= 5 + 2


def test_what_a_node_says_is_one_line_of_visible_characters() -> None:
    name, standing = in_drain(SMALL), SMALL.standing
    assert standing is not None
    hostile = "\x1b[2J\u202egnp\n<script>alert(1)</script>"
    _feed, page = started(replace(SMALL, standing=replace(standing, waiting={**standing.waiting, name: hostile})))
    page.ask()

    assert page.shown()[name][1] == r"\x1b[2J\u202egnp\n<script>alert(1)</script>"


def test_a_log_has_the_states_that_were_seen() -> None:
    feed, _page = started()
    name = in_drain(SMALL)
    feed.take(changed(SMALL, {name: record(Phase.VERIFY, 90, 1)}))
    feed.take(changed(SMALL, {name: record(Phase.DONE, 90, 0)}))

    found = feed.node(name)

    assert found is not None
    log = found[2]
    assert [line.state for line in log.lines] == ["drain", "verify", "done"]
    assert log.lines[0].reason == REASONS[Phase.DRAIN]
    assert log.began <= log.lines[0].time, "what was before was not seen"
    assert feed.node("nobody") is None


def test_a_place_that_does_not_answer_is_told_and_asked_again() -> None:
    reader = FakeReader(SMALL)
    feed = Feed(reader, follow_s=0.01)
    feed.start()
    page = Page(feed)
    page.ask()
    reader.news.put(UnreachableError("cluster test does not answer: connection refused"))

    message = feed.wait(page.ident, 30)
    assert message is not None
    page.ask()
    feed.close()

    (notice,) = page.head["notices"]
    assert notice == [
        "warn",
        "cluster test does not answer: connection refused: trying again; this is what was seen last",
    ]
    assert set(page.shown()) == set(SMALL.nodes)


def test_whoever_waits_is_woken() -> None:
    feed, page = started()
    page.ask()
    heard: list[Message | None] = []
    waiting = threading.Thread(target=lambda: heard.append(feed.wait(page.ident, 60)))
    waiting.start()
    feed.take(changed(SMALL, {in_drain(SMALL): record(Phase.RESUME, 90, 1)}))
    waiting.join(60)
    assert heard
    assert entries(heard[0]) == [in_drain(SMALL)]

    waiting = threading.Thread(target=lambda: heard.append(feed.wait(feed.wait("", 0).ident, 60)))  # type: ignore[union-attr]  # everything is known
    waiting.start()
    feed.close()
    waiting.join(60)
    assert heard[1] is None


def test_who_comes_after_the_end_does_not_wait() -> None:
    feed, page = started()
    page.ask()
    feed.close()
    heard: list[Message | None] = []
    coming = threading.Thread(target=lambda: heard.append(feed.wait(page.ident, 3600)), daemon=True)
    coming.start()
    coming.join(60)
    assert heard == [None]


@pytest.mark.slow
def test_five_thousand_nodes_are_sent_in_little() -> None:
    seen = fleet()
    feed, page = started(seen)
    first = page.ask()
    assert first is not None
    assert len(first.body) < 600_000

    feed.take(changed(seen, {in_drain(seen): record(Phase.VERIFY, 90, 1)}))
    message = page.ask()

    assert message is not None
    assert len(message.body) < 2_000


def test_runs_that_end_are_told_within_a_minute() -> None:
    time = [NOW.timestamp()]
    runs = {"gpu-001-01": Last("apply: converged", NOW)}
    feed = Feed(FakeReader(SMALL), clock=lambda: time[0], runs=lambda: dict(runs))
    feed.take(SMALL)
    page = Page(feed)
    page.ask()
    runs["gpu-001-01"] = Last("apply: failed", NOW)
    feed.take(SMALL)
    assert page.ask() is None
    time[0] += 60
    feed.take(SMALL)
    page.ask()
    assert "apply: failed" in [row[0][-1] for row in page.head["machines"]["rows"]]


def test_a_run_that_failed_needs_somebody_on_the_page_too() -> None:
    seen = replace(SMALL, tenant=None, standing=None, nodes={"n1": view("n1")})
    feed = Feed(FakeReader(seen), clock=NOW.timestamp, runs=lambda: {"n1": Last("apply: failed", NOW, is_good=False)})
    feed.take(seen)
    page = Page(feed)
    page.ask()

    assert page.shown() == {"n1": ("last-run-failed", "apply: failed")}

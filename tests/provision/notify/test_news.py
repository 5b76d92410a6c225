"""What of a rollout is news, in sentences and in the format of the contract; and what a broken listener does."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import jsonschema
import pytest

from provision.report.notify.listeners import Listeners
from provision.report.notify.news import Newsroom, encode
from provision.rollout.interface.progress import NodeWaits, PhaseEntered
from provision.rollout.interface.standing import Members
from provision.rollout.model import Phase
from tests.provision.contracts.schemas import CONTRACTS, render_schema
from tests.provision.rollout.fakes import NOON
from tests.provision.rollout.status.test_derive import standing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.report.notify.news import Message
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.interface.progress import RolloutProgress
    from provision.rollout.interface.standing import Standing

WAVES = (Members("wave 1 of 2 (canary)", ("n1",)), Members("wave 2 of 2", ("n2", "n3")))


def newsroom(*, begun: bool = True) -> Newsroom:
    room = Newsroom("cluster test", "rollout-1")
    if begun:
        list(room.see(standing(), NOON))
    return room


def hear(room: Newsroom, *steps: tuple[str, Phase, str]) -> list[Message]:
    return [news for node, phase, reason in steps for news in room.hear(PhaseEntered(node, phase, reason), NOON)]


def test_a_node_is_news_when_it_leaves_and_when_it_is_back() -> None:
    told = hear(
        newsroom(),
        *[
            ("n1", phase, "")
            for phase in Phase
            if phase is not Phase.FAILED and phase.value not in ("returned", "rollback")
        ],
    )

    assert [(one.type, one.text) for one in told] == [
        ("node.started", "cluster test: n1 is taken out of service"),
        ("node.done", "cluster test: n1 is in service again"),
    ]


def test_a_failure_says_where_and_why() -> None:
    told = hear(newsroom(), ("n1", Phase.SWAP, ""), ("n1", Phase.FAILED, "apt: broken"))

    assert told[-1].type == "node.failed"
    assert told[-1].text == "cluster test: n1 has failed in swap: apt: broken"
    assert (told[-1].data.phase, told[-1].data.reason) == ("swap", "apt: broken")


def test_a_wave_begins_with_its_first_node() -> None:
    room = newsroom(begun=False)
    list(room.see(replace(standing(n2="waits"), waves=WAVES), NOON))
    told = hear(room, ("n1", Phase.CORDON, ""), ("n2", Phase.CORDON, ""), ("n3", Phase.CORDON, ""))

    assert [one.data.wave for one in told if one.type == "wave.started"] == ["wave 1 of 2 (canary)", "wave 2 of 2"]


def test_a_rollout_begins_stops_and_ends_once() -> None:
    room = newsroom(begun=False)
    told = [
        *room.see(standing(out=("n1",), n2="waits for n1"), NOON),
        *room.see(standing(out=("n1",), n2="waits"), NOON),
    ]
    told += hear(room, ("n1", Phase.SWAP, ""), ("n1", Phase.FAILED, "apt"))
    told += [
        *room.see(standing(stop="n1 failed in swap", n2="stopped"), NOON),
        *room.see(standing(stop="n1 failed in swap", n2="stopped"), NOON),
    ]
    told += list(room.end(NOON))

    assert [one.type for one in told] == [
        "rollout.started",
        "node.started",
        "node.failed",
        "rollout.stopped",
        "rollout.ended",
    ]
    assert told[0].text == "cluster test: a rollout of 2 nodes has begun"
    assert told[-1].text == "cluster test: the rollout has ended: 1 failed, 1 waiting"
    assert told[-1].data.reason == "n1 failed in swap"


def test_the_beginning_comes_before_the_first_node_whatever_is_heard_first() -> None:
    room = newsroom(begun=False)

    assert hear(room, ("n1", Phase.CORDON, "")) == []
    told = list(room.see(replace(standing(out=("n1",)), waves=WAVES), NOON))
    assert [one.type for one in told] == ["rollout.started", "wave.started", "node.started"]


def test_nothing_that_began_has_no_end() -> None:
    assert list(newsroom(begun=False).end(NOON)) == []


def test_what_waits_and_what_a_task_does_is_no_news() -> None:
    assert list(newsroom().hear(NodeWaits("n1", "waits for n2"), NOON)) == []


def test_what_a_node_says_is_one_short_line() -> None:
    told = hear(newsroom(), ("n1", Phase.FAILED, "\x1b[2J" + "x" * 9999))

    assert "\x1b" not in told[0].text
    assert len(told[0].text) <= 1000
    assert len(encode(told[0])) < 5000


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("@alice look", "@ alice look"),
        ("(@bob.smith)", "(@ bob.smith)"),
        ("\u2060@carol", "\\u2060@ carol"),
        ("grapnel@0.service of ops@example.com", "grapnel@0.service of ops@example.com"),
        ("a @ b", "a @ b"),
    ],
)
def test_a_node_calls_no_single_person_in_a_chat(said: str, shown: str) -> None:
    """Mattermost and Rocket.Chat tell everybody whose name follows an ``@`` in what is posted to them."""
    told = hear(newsroom(), ("n1", Phase.FAILED, said))

    assert told[0].text.endswith(f": {shown}")


def test_messages_follow_the_contract() -> None:
    room = newsroom(begun=False)
    told = [
        *room.see(replace(standing(n2="waits"), waves=WAVES), NOON),
        *hear(
            room,
            ("n1", Phase.CORDON, ""),
            ("n1", Phase.FAILED, "apt"),
            ("n2", Phase.CORDON, ""),
            ("n2", Phase.DONE, ""),
        ),
    ]
    told += [*room.see(standing(stop="n1"), NOON), *room.end(NOON)]
    schema = json.loads((CONTRACTS / "rollout-notification/schema.json").read_text())

    assert {one.type for one in told} >= {
        "rollout.started",
        "rollout.stopped",
        "rollout.ended",
        "wave.started",
        "node.done",
    }
    for one in told:
        jsonschema.validate(json.loads(encode(one)), schema)
    assert schema == render_schema("rollout-notification")


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (
            "<!channel> see <https://evil.example|grapnel>",
            "\u2039!channel\u203a see \u2039https://evil.example|grapnel\u203a",
        ),
        ("[sign in again](https://evil.example)", "[sign in again] (https://evil.example)"),
        ("[sign in again][1]", "[sign in again] [1]"),
        ("@channel, @Here and @all", "@ channel, @ Here and @ all"),
        ("held by ada@alloy (41873)", "held by ada@alloy (41873)"),
    ],
)
def test_a_node_calls_nobody_and_forges_no_link_in_a_chat(reason: str, shown: str) -> None:
    """A chat service reads markup in the text, which looks as if grapnel had said it."""
    (*_, told) = hear(newsroom(), ("n1", Phase.SWAP, ""), ("n1", Phase.FAILED, reason))

    assert told.text == f"cluster test: n1 has failed in swap: {shown}"
    assert told.data.reason == reason, "a program is told what was said"


def test_names_that_are_no_text_keep_nobody_from_hearing() -> None:
    """Half a character, of a file's name that is no UTF-8 or of a wave's, ended all notifications."""
    room = Newsroom("state file /srv/\udcff/state", "rollout-1")
    list(room.see(replace(standing(n1="waits"), waves=(Members("wave \udcff", ("n1",)),)), NOON))

    for told in hear(room, ("n1", Phase.CORDON, ""), ("n1", Phase.FAILED, "\udcff\x1b[2J\r\nX-Evil: 1")):
        document = json.loads(encode(told))
        assert document["data"]["place"] == r"state file /srv/\udcff/state"
        assert document["data"]["wave"] == r"wave \udcff"
        assert all(text.isprintable() for text in (document["text"], *map(str, document["data"].values())))


class Ear:
    """Remembers what it heard."""

    def __init__(self, *, is_broken: bool = False) -> None:
        self.steps: list[RolloutProgress] = []
        self.standings: list[Standing] = []
        self.names: set[str] = set()
        self.is_broken = is_broken

    def hear(self, progress: RolloutProgress) -> None:
        if self.is_broken:
            raise RuntimeError("deaf")
        self.steps.append(progress)

    def see(self, standing: Standing, nodes: Sequence[NodeState]) -> None:
        self.standings.append(standing)
        self.names |= {node.name for node in nodes}

    def close(self) -> str:
        return "it was loud"


def test_a_listener_that_fails_is_told_of_and_keeps_nobody_from_hearing() -> None:
    deaf, ear, shown = Ear(is_broken=True), Ear(), list[object]()
    listeners = Listeners([deaf, ear])
    observe = listeners.observing(shown.append)
    observe(PhaseEntered("n1", Phase.CORDON))
    observe(PhaseEntered("n1", Phase.DRAIN))

    assert len(shown) == len(ear.steps) == 2
    assert listeners.close() == ("Ear ended with a bug: RuntimeError", "it was loud")

"""Fleets for the live page: 5,000 nodes in 300 domains in the middle of their upgrade, and a reader that tells news."""

from __future__ import annotations

import queue
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from provision.rollout.interface.standing import Members, Standing
from provision.rollout.model import NodeView, Phase, Record
from provision.rollout.status.model import Seen, StackSeen, StackTrouble, Tenant
from tests.provision.rollout.fakes import MINUTE, NEW, NOON, OLD

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW = NOON + 200 * MINUTE
TOOK = {
    Phase.CORDON: 0.6,
    Phase.DRAIN: 74.0,
    Phase.RELEASE: 6.1,
    Phase.SWAP: 48.5,
    Phase.VERIFY: 17.2,
    Phase.RESUME: 4.4,
}
WAVES = (
    ("wave 1 of 4 (canary)", 32),
    ("wave 2 of 4 (development)", 400),
    ("wave 3 of 4", 1500),
    ("wave 4 of 4", 10**6),
)
REASONS = {
    Phase.DRAIN: "pod ml/train-7f9c-2 (the disruption budget train needs 4 healthy pods, and has 4) still on the node",
    Phase.RELEASE: "a GPU is held by python3 (41873, jupyter.service)",
}


class FakeReader:
    """Tells what it is given: the first look at once, the others when they come."""

    def __init__(self, first: Seen) -> None:
        self.first = first
        self.news: queue.SimpleQueue[Seen | Exception] = queue.SimpleQueue()

    def look(self) -> Seen:
        return self.first

    def follow(self, timeout_s: float) -> Seen:
        try:
            following = self.news.get(timeout=timeout_s)
        except queue.Empty:
            return self.first
        if isinstance(following, Exception):
            raise following
        self.first = following
        return following


def names(nodes: int, domains: int) -> list[tuple[str, str]]:
    """Return names of nodes, each with its domain; the last racks are a little smaller."""
    per = -(-nodes // domains)
    return [
        (f"gpu-{number // per + 1:03}-{number % per + 1:02}", f"rack {number // per + 1:03}") for number in range(nodes)
    ]


def record(phase: Phase, began_ago_s: float, since_ago_s: float, **more: object) -> Record:
    fields = {
        "target": NEW,
        "origin": OLD,
        "began": NOW - timedelta(seconds=began_ago_s),
        "since": NOW - timedelta(seconds=since_ago_s),
        **more,
    }
    return Record(phase=phase, **fields)  # type: ignore[arg-type]  # fields of the record, by name


def fleet(nodes: int = 5000, domains: int = 300, *, done: float = 0.33, flying: int = 40, failed: int = 3) -> Seen:
    """Return a fleet of which a part is done, some nodes are out of service, and some have failed."""
    named = names(nodes, domains)
    last = int(nodes * done)
    phases = [Phase.DRAIN, Phase.SWAP, Phase.DRAIN, Phase.VERIFY, Phase.RELEASE, Phase.CORDON, Phase.RESUME]
    views: dict[str, NodeView] = {}
    waiting: dict[str, str] = {}
    for index, (name, _domain) in enumerate(named):
        if index < last:
            kept = record(Phase.DONE, 9000 - index % 7000, 8800 - index % 7000, took=TOOK)
            views[name] = _in(name, kept)
        elif index < last + flying:
            phase = phases[index % len(phases)]
            took = {
                each: seconds for each, seconds in TOOK.items() if list(Phase).index(each) < list(Phase).index(phase)
            }
            views[name] = _out(name, record(phase, 120 + index % 50, 4 + 7 * (index % 9), took=took))
            if phase in REASONS:
                waiting[name] = REASONS[phase]
        else:
            views[name] = _in(name)
            waiting[name] = f"waits for wave 3 of 4: {named[last][0]}: drain and {flying - 1} more"
    out = [name for name, view in views.items() if view.record is not None and view.record.phase is not Phase.DONE]
    _spoil(named, views, waiting, last, failed)
    standing = Standing(
        began=NOW - 190 * MINUTE,
        time=NOW,
        at_once=50,
        soak=timedelta(0),
        wave_soak=30 * MINUTE,
        out=frozenset(out),
        waiting=waiting,
        waves=_waves([name for name, _ in named]),
        domains=_domains(named),
    )
    tenant = Tenant(holder="ada@ops-1/fleet", since=NOW - 191 * MINUTE, heard=NOW)
    return Seen(place="cluster prod at https://10.0.0.1:6443", time=NOW, nodes=views, tenant=tenant, standing=standing)


def in_drain(seen: Seen) -> str:
    """Return a node whose pods are leaving."""
    return next(
        name
        for name, view in seen.nodes.items()
        if isinstance(view, NodeView) and view.record is not None and view.record.phase is Phase.DRAIN
    )


def changed(seen: Seen, records: Mapping[str, Record]) -> Seen:
    """Return the fleet a moment later, with other records of some nodes."""
    standing = seen.standing
    assert standing is not None
    views = {
        name: _out(name, kept) if kept.phase is not Phase.DONE else _in(name, kept) for name, kept in records.items()
    }
    waiting = {name: reason for name, reason in standing.waiting.items() if name not in records}
    out = standing.out | records.keys()
    return replace(seen, nodes={**seen.nodes, **views}, standing=replace(standing, waiting=waiting, out=out))


def _in(name: str, kept: Record | None = None) -> NodeView:
    return NodeView(name=name, record=kept, is_cordoned=False, is_ready=True)


def _out(name: str, kept: Record) -> NodeView:
    return NodeView(name=name, record=kept, is_cordoned=True, is_ready=True)


def _spoil(
    named: list[tuple[str, str]], views: dict[str, NodeView], waiting: dict[str, str], last: int, failed: int
) -> None:
    """Have some nodes fail, one not be ready, and one be cordoned by somebody."""
    for number in range(failed):
        name = named[last * (number + 1) // (failed + 1)][0]
        reason = "allocation: gpu 3 (GPU-02bdf2c8): hangs: memory could not be used within 86.2 s"
        kept = record(Phase.FAILED, 2400 + number, 2100 + number, failed_in=Phase.VERIFY, reason=reason, took=TOOK)
        views[name] = _out(name, kept)
    name = named[last + (len(named) - last) // 2][0]
    views[name] = NodeView(name=name, record=None, is_cordoned=False, is_ready=False)
    waiting.pop(name, None)
    name = named[-5][0]
    views[name] = NodeView(name=name, record=None, is_cordoned=True, is_ready=True)
    waiting.pop(name, None)


def _waves(nodes: list[str]) -> tuple[Members, ...]:
    found, start = [], 0
    for title, size in WAVES:
        if members := tuple(nodes[start : start + size]):
            found.append(Members(title, members))
        start += size
    return tuple(found)


def _domains(named: list[tuple[str, str]]) -> tuple[Members, ...]:
    found: dict[str, list[str]] = {}
    for name, domain in named:
        found.setdefault(domain, []).append(name)
    return tuple(Members(title, tuple(members)) for title, members in found.items())


STACKS = (
    StackSeen(
        name="serving",
        state="Degraded",
        message="37 of 40 nodes as declared, gpu07 failed: <b>3 of 4 GPUs answer</b>",
        driver=NEW,
        nodes={"total": 40, "asDeclared": 37, "failed": 3},
        troubles=(
            StackTrouble("gpu07", "<b>3 of 4 GPUs answer</b>"),
            StackTrouble("gpu08", "cannot be reached"),
            StackTrouble("gpu09", "cannot be reached"),
        ),
    ),
    StackSeen(name="training", is_outdated=True),
)

"""Says what past runs left of each node: when it was last brought to its declaration, and by which run. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from provision.apply.model import Status
from provision.planning.node_plan import Action, Role
from provision.report.runs.model import State
from provision.rollout.status.words import Last

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from provision.planning.node_plan import Item
    from provision.report.runs.model import NodeReport, RunReport

RUNS: Final = 10  # that are looked at
_VERSION: Final = re.compile(r"(?P<version>\d{3}\.\d{1,4}(?:\.\d{1,4})?)")
_EXCHANGES: Final = frozenset({Action.INSTALL, Action.UPGRADE, Action.DOWNGRADE, Action.REMOVE, Action.STAGE})
_UNTOUCHED: Final = frozenset({Status.WAITING.value, State.DECLINED.value, State.RUNNING.value})


@dataclass(frozen=True, slots=True)
class LastResult:
    """What the last run that had to do with a node left of it.

    ``remedy`` and ``command`` say what helps, and are empty where nothing is wrong.
    """

    run: str
    verb: str
    result: str
    is_good: bool
    time: datetime
    remedy: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """The last run, and the last result of each node; nothing where no run is kept.

    ``drivers`` are those that an apply has brought to nodes, with its end, where nothing else was done to them since.
    """

    last: RunReport | None = None
    nodes: Mapping[str, LastResult] = field(default_factory=dict)
    drivers: Mapping[str, tuple[str, datetime]] = field(default_factory=dict)

    @property
    def as_declared(self) -> list[str]:
        """Nodes that were as declared when they were last applied, and that nothing else was done to since."""
        return [name for name, one in self.nodes.items() if one.verb == "apply" and one.is_good]


def last_words(history: History | None) -> dict[str, Last]:
    """Return what the last run left of each node, in words."""
    nodes = {} if history is None else history.nodes
    drivers = {} if history is None else history.drivers
    left = {
        name: f"{driver}, as the run of {time:%Y-%m-%d %H:%M} UTC left it" for name, (driver, time) in drivers.items()
    }
    return {
        name: Last(f"{one.verb}: {one.result}", one.time, left.get(name, ""), one.is_good)
        for name, one in nodes.items()
    }


def history_of(reports: Iterable[RunReport]) -> History:
    """Return what runs left behind, the newest run first; only verbs that change nodes count for a node."""
    last: RunReport | None = None
    nodes: dict[str, LastResult] = {}
    drivers: dict[str, tuple[str, datetime] | None] = {}  # None: what came later makes older runs no evidence
    for report in reports:
        last = last or report
        if report.verb == "stage":
            continue
        planned = {name: group.items for group in report.groups for name in group.nodes}
        helps = {name: (one.remedy, one.command) for one in report.troubles for name in one.nodes}
        for node in report.nodes:
            if node.result in _UNTOUCHED:
                continue
            time = report.ended or report.began
            if node.name not in drivers and (driver := _driver(report, node, planned.get(node.name, ()))) is not None:
                drivers[node.name] = (driver, time) if driver else None
            if node.name not in nodes:
                nodes[node.name] = LastResult(
                    report.run, report.verb, node.result, node.is_good, time, *helps.get(node.name, ("", ""))
                )
    return History(last, nodes, {name: found for name, found in drivers.items() if found is not None})


def _driver(report: RunReport, node: NodeReport, items: Iterable[Item]) -> str | None:
    """Return the driver that a run has brought to a node, None where it left alone which one it has.

    It is empty where that cannot be said.
    """
    if report.verb == "reboot" and node.is_good:
        return None
    if report.verb != "apply" or not node.is_good:
        return ""
    if node.target:
        return node.target
    told = [found["version"] for item in items if item.role is Role.DRIVER and (found := _version_in(item))]
    if told:
        return told[-1]
    return "" if any(item.role is Role.DRIVER and item.action in _EXCHANGES for item in items) else None


def _version_in(item: Item) -> re.Match[str] | None:
    text = item.to if item.action in (Action.LOAD, Action.RELOAD) else item.target.removeprefix("driver ")
    return _VERSION.fullmatch(text or "")

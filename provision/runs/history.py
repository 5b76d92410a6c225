"""Says what past runs left of each node: when it was last brought to its declaration, and by which run. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from provision.apply.model import Status
from provision.rollout.status.words import Last
from provision.runs.model import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from provision.runs.model import RunReport

RUNS: Final = 10  # that are looked at
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
    """The last run, and the last result of each node; nothing where no run is kept."""

    last: RunReport | None = None
    nodes: Mapping[str, LastResult] = field(default_factory=dict)

    @property
    def as_declared(self) -> list[str]:
        """Nodes that were as declared when they were last applied, and that nothing else was done to since."""
        return [name for name, one in self.nodes.items() if one.verb == "apply" and one.is_good]


def last_words(history: History | None) -> dict[str, Last]:
    """Return what the last run left of each node, in words."""
    nodes = {} if history is None else history.nodes
    return {name: Last(f"{one.verb}: {one.result}", one.time) for name, one in nodes.items()}


def history_of(reports: Iterable[RunReport]) -> History:
    """Return what runs left behind, the newest run first; only verbs that change nodes count for a node."""
    last: RunReport | None = None
    nodes: dict[str, LastResult] = {}
    for report in reports:
        last = last or report
        if report.verb == "stage":
            continue
        helps = {name: (one.remedy, one.command) for one in report.troubles for name in one.nodes}
        for node in report.nodes:
            if node.result not in _UNTOUCHED and node.name not in nodes:
                time = report.ended or report.began
                nodes[node.name] = LastResult(
                    report.run, report.verb, node.result, node.is_good, time, *helps.get(node.name, ("", ""))
                )
    return History(last, nodes)

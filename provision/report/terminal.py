"""Defines the words and styles that all views share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.table import Table

from provision.apply.model import Status
from provision.planning.node_plan import Action, Disruption
from provision.rollout.model import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console, RenderableType

    from provision.report.console import Text
    from provision.rollout.interface.progress import PhaseEntered

NAMES_SHOWN = 12
HEAD_WIDTH = 40  # what a name may take of a line before the text behind it
CELL_WIDTH = 40  # what a node's own words may take of a table that it shares with others
_DIGEST = re.compile(r"^(?:sha256:)?[0-9a-f]{40,}$")
_MINUTE_S = 60
_HOUR_S = 3600
_DAY_S = 24 * _HOUR_S
_WORTH_S = 1  # what took less last time is over before it is read

STATUS_STYLES = {
    Status.UNCHANGED: "green",
    Status.CONVERGED: "bold green",
    Status.STAGED: "bold green",
    Status.RETURNED: "bold green",
    Status.REMOVED: "bold green",
    Status.REBOOTED: "bold green",
    Status.SKIPPED: "yellow",
    Status.CHECKED: "bold green",
    Status.UNFINISHED: "bold yellow",
    Status.WAITING: "yellow",
    Status.REFUSED: "bold yellow",
    Status.CANCELED: "bold yellow",
    Status.FAILED: "bold red",
    Status.UNREACHABLE: "bold red",
}
DISRUPTION_STYLES = {
    Disruption.NONE: "",
    Disruption.RELOAD: "cyan",
    Disruption.RESTART_RUNTIME: "yellow",
    Disruption.CHANGE_OVER: "yellow",
    Disruption.DRAIN: "bold red",
    Disruption.REBOOT: "bold red",
}
PHASE_WORDS = {
    Phase.CORDON: "cordon: takes no new work",
    Phase.JOBS: "wait-for-jobs: the jobs on it are waited for",
    Phase.DRAIN: "drain: pods with a GPU leave",
    Phase.RELEASE: "release: the node daemon closes the driver",
    Phase.SWAP: "swap: the driver is exchanged",
    Phase.VERIFY: "verify: what runs is compared with what is declared",
    Phase.RESUME: "resume: the node daemon offers the GPUs again",
    Phase.DONE: "done: in service again",
    Phase.ROLLBACK: "rollback: the former driver is brought back",
    Phase.RETURNED: "returned: in service again with the former driver",
}
_IN_PLACE_WORDS = {
    Phase.SWAP: "swap: its GPUs are given by another interface, and pods keep theirs",
    Phase.VERIFY: "verify: it is seen whether pods can be given its GPUs",
    Phase.DONE: "done: its GPUs are given by another interface",
    Phase.ROLLBACK: "rollback: the former interface is brought back",
}
ACTION_STYLES = {
    Action.REMOVE: "red",
    Action.DISABLE: "red",
    Action.UPGRADE: "yellow",
    Action.DOWNGRADE: "yellow",
    Action.RELOAD: "yellow",
}


def show(console: Console, parts: Iterable[RenderableType]) -> None:
    """Print renderables one below the other."""
    for part in parts:
        console.print(part)


def hanging(head: Text | int, text: Text) -> RenderableType:
    """Return text behind a head, or an indent, whose further lines begin where its first does.

    So nothing that a node says can begin a line as if it were another node's.
    """
    grid = Table.grid()
    if isinstance(head, int):
        grid.add_column(width=head)
    else:
        grid.add_column(no_wrap=True, max_width=HEAD_WIDTH)
    grid.add_column(overflow="fold")
    grid.add_row("" if isinstance(head, int) else head, text)
    return grid


def names(nodes: Sequence[str]) -> str:
    """Return node names as a list that stays readable: ``n1, n2 and 40 more``."""
    if len(nodes) <= NAMES_SHOWN:
        return ", ".join(nodes)
    return f"{', '.join(nodes[: NAMES_SHOWN - 2])} and {len(nodes) - NAMES_SHOWN + 2} more"


def count(number: int, noun: str) -> str:
    """Return ``1 node``, ``2 nodes``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def short(value: str) -> str:
    """Return a value fit for a table: a digest by its first 12 digits, anything else as it is."""
    return value.removeprefix("sha256:")[:12] if _DIGEST.match(value) else value


def duration(seconds: float) -> str:
    """Return ``7s`` or ``2m05s``."""
    whole = int(seconds)
    return f"{whole}s" if whole < _MINUTE_S else f"{whole // _MINUTE_S}m{whole % _MINUTE_S:02}s"


def age(seconds: float) -> str:
    """Return ``7s``, ``2m05s``, ``3h07m`` or ``2d05h``."""
    if seconds < _HOUR_S:
        return duration(max(0.0, seconds))
    whole = int(seconds)
    if whole < _DAY_S:
        return f"{whole // _HOUR_S}h{whole % _HOUR_S // 60:02}m"
    return f"{whole // _DAY_S}d{whole % _DAY_S // _HOUR_S:02}h"


def last_time(last: Mapping[str, float], what: str, seconds: float) -> str:
    """Return how long something lasts already, and how long it took last time; empty where that is not known."""
    before = last.get(what)
    return "" if before is None or before < _WORTH_S else f"  {duration(seconds)}, {duration(before)} last time"


def crowd(nodes: Sequence[str]) -> str:
    """Return several nodes as one short text, ``40 nodes: gpu001, …``, that leaves room for what they do."""
    return nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes: {nodes[0]}, …"


def spread(seconds: Iterable[float]) -> str:
    """Return durations from the shortest to the longest."""
    found = sorted(seconds)
    least, most = duration(found[0]), duration(found[-1])
    return least if least == most else f"{least} to {most}"


def waiting_words(reason: str) -> str:
    """Return a reason behind a node and its phase, as that for which it waits; many reasons say so themselves."""
    return reason if reason.startswith("waits ") else f"waits: {reason}"


def phase_words(entered: PhaseEntered) -> str:
    """Return what a phase of a rollout means for the node."""
    if entered.phase is Phase.FAILED:
        return f"failed, {'and takes pods' if entered.takes_pods else 'stays out of service'}: {entered.reason}"
    if entered.phase is Phase.RETURNED:
        return entered.reason or PHASE_WORDS[entered.phase]
    if entered.phase is Phase.ROLLBACK and entered.reason:
        return f"rollback: {entered.reason}"
    return (_IN_PLACE_WORDS if entered.is_in_place else PHASE_WORDS).get(entered.phase, entered.phase.value)

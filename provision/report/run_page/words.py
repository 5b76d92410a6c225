"""Says how results, times and names read on the page. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.apply.model import Status
from provision.declaration.fleet.series import in_series
from provision.report.runs.model import State

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from provision.planning.node_plan import Item
    from provision.report.runs.model import RunReport

_MINUTE_S: Final = 60
_TENTHS_S: Final = 10  # from here on a tenth does not matter
_HOUR_S: Final = 3600
NAMES: Final = 60
_DIGEST: Final = re.compile(r"^(?:sha256:)?[0-9a-f]{40,}$")
_TONES: Final = {
    Status.FAILED.value: "bad",
    Status.UNREACHABLE.value: "bad",
    "killed": "bad",
    Status.UNFINISHED.value: "warn",
    Status.REFUSED.value: "warn",
    Status.CANCELED.value: "warn",
    Status.WAITING.value: "wait",
    Status.SKIPPED.value: "wait",
    Status.UNCHANGED.value: "off",
    State.DECLINED.value: "off",
    State.RUNNING.value: "work",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first thing that is read: a sentence, the next one, and a tone."""

    tone: str
    mark: str
    title: str
    more: str


def verdict(report: RunReport) -> Verdict:
    """Return how the run ended, in the words of somebody who was woken by it."""
    nodes = len(report.nodes)
    bad = sum(len(one.nodes) for one in report.troubles)
    out = sum(len(one.nodes) for one in report.troubles if one.out_of_service)
    counted = ", ".join(f"{number:,} {result}" for result, number in report.counts.items())
    if report.state is State.RUNNING:
        return Verdict("work", "▶", "The run goes on", counted)
    if report.state is State.DECLINED:
        return Verdict("off", "\u2013", "Nothing was changed", "the question was not answered with yes")
    if bad:
        title = f"{bad:,} of {_nodes(nodes)} {'needs' if bad == 1 else 'need'} somebody"
        gone = f"{_nodes(out)} out of service; " if out else ""
        return Verdict("bad", "✕", title, f"{gone}{counted}")
    if report.error or report.state is not State.SUCCEEDED:
        return Verdict("bad", "✕", f"The run {_ENDINGS.get(report.state, 'failed')}", report.error or counted)
    changed = sum(1 for one in report.nodes if one.result != Status.UNCHANGED.value)
    if not changed:
        return Verdict("ok", "✓", f"{_nodes(nodes)} as declared: nothing to do", "")
    return Verdict("ok", "✓", f"{_nodes(changed)} changed, all is well", counted)


_ENDINGS: Final = {State.INTERRUPTED: "was interrupted", State.KILLED: "was killed", State.FAILED: "failed"}


def _nodes(number: int) -> str:
    return f"{number:,} node{'' if number == 1 else 's'}"


def tone_of(result: str, *, is_good: bool = True) -> str:
    """Return the tone of a result: ok, work, wait, warn, bad or off."""
    return _TONES.get(result, "ok") if is_good else _TONES.get(result, "bad")


def result_words(result: str) -> str:
    """Return a result as a heading."""
    return result[:1].upper() + result[1:]


def clock(seconds: float | None) -> str:
    """Return ``0.4s``, ``12s``, ``2m05s`` or ``3h07m``; a dash where nothing is known."""
    if seconds is None:
        return "\u2013"
    if seconds < _TENTHS_S:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < _MINUTE_S:
        return f"{whole}s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S}m{whole % _MINUTE_S:02}s"
    return f"{whole // _HOUR_S}h{whole % _HOUR_S // _MINUTE_S:02}m"


def moment(time: datetime | None) -> str:
    """Return a moment, in UTC."""
    return "\u2013" if time is None else f"{time:%Y-%m-%d %H:%M:%S} UTC"


def node_names(nodes: Sequence[str]) -> str:
    """Return names as one text that stays readable."""
    names = in_series(nodes)
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return ", ".join(names[:NAMES]) + more


def because(items: Sequence[Item]) -> list[tuple[str, list[Item]]]:
    """Return items by role and reason, in the order of the first of each."""
    found: dict[tuple[str, str], list[Item]] = {}
    for item in items:
        found.setdefault((item.role, item.reason), []).append(item)
    return [(reason, those) for (_, reason), those in found.items()]


def versions(item: Item) -> str:
    """Return from what to what an item leads, where that tells a reader something."""
    return " → ".join(_short(value) for value in (item.from_, item.to) if value is not None)


def _short(value: str) -> str:
    return value.removeprefix("sha256:")[:12] if _DIGEST.match(value) else value

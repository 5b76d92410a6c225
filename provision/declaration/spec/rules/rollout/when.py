"""Checks rules across the keys that say when nodes may be changed, and in which order, as far as they show it alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import chain, combinations
from typing import TYPE_CHECKING, Final, TypeVar

from provision.declaration.spec.model import Day, Order, Tool
from provision.declaration.spec.rules.remark import error, warning
from provision.declaration.spec.validate import nearest
from provision.declaration.spec.values.time_zones import find_zone, moment_of, zone_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.spec.model import Blackout, Rollout, Window
    from provision.declaration.spec.rules.remark import Remark
    from provision.declaration.spec.text.findings import KeyPath

WINDOWS: Final[KeyPath] = ("rollout", "windows")
BLACKOUTS: Final[KeyPath] = ("rollout", "blackouts")
ZONES: Final[KeyPath] = ("rollout", "zones")
_Entry = TypeVar("_Entry", "Window", "Blackout")
_DAY_MINUTES: Final = 24 * 60
_WEEK_MINUTES: Final = 7 * _DAY_MINUTES
_LONG: Final = timedelta(days=28)


def judge_when(rollout: Rollout) -> Iterator[Remark]:
    """Yield every rule about windows, blackouts, zones and order that is not kept, errors and warnings."""
    return chain(
        _time_zones(rollout),
        _lengths(rollout),
        _overlaps(rollout),
        _blackouts(rollout),
        _zones(rollout),
        _order(rollout),
        _maintenance(rollout),
    )


def _time_zones(rollout: Rollout) -> Iterator[Remark]:
    windows = [(path, each.time_zone) for path, each in _listed(WINDOWS, rollout.windows)]
    blackouts = [(path, each.time_zone) for path, each in _listed(BLACKOUTS, rollout.blackouts)]
    for path, name in (*windows, *blackouts):
        if find_zone(name) is None:
            message = f"this machine knows no time zone '{name}'"
            yield error((*path, "timeZone"), message, _known(name, zone_names()))


def _known(name: str, known: list[str]) -> str:
    if not known:
        return "install the package tzdata on this machine"
    near = nearest(name, known)
    return f"did you mean {near}?" if near else "`timedatectl list-timezones` lists them"


def _lengths(rollout: Rollout) -> Iterator[Remark]:
    """Yield windows that are shorter than a node; one that follows another without a gap is as long as both."""
    needed = rollout.node_minutes
    if needed is None:
        return
    if not rollout.windows:
        hint = "declare windows, or leave nodeMinutes out"
        if not rollout.blackouts:
            yield warning(("rollout", "nodeMinutes"), "has no effect without windows and blackouts", hint)
        return
    for path, window in _listed(WINDOWS, rollout.windows):
        length = window_minutes(window)
        is_alone = not any(other is not window and _touch(window, other) for other in rollout.windows)
        if length < needed and is_alone:
            message = f"is {length} minutes long, and a node takes {needed} (nodeMinutes)"
            yield error(path, message, "no node would ever begin in it: make it longer, or nodeMinutes shorter")


def _overlaps(rollout: Rollout) -> Iterator[Remark]:
    for (index, first), (other, second) in combinations(enumerate(rollout.windows), 2):
        if first.time_zone == second.time_zone and any(
            start < until and begin < end for start, end in spans(first) for begin, until in spans(second)
        ):
            message = f"overlaps window {index + 1}"
            yield warning(
                (*WINDOWS, other), message, "together they count as one; leave one of them out if that is all"
            )


def _blackouts(rollout: Rollout) -> Iterator[Remark]:
    blackouts = rollout.blackouts
    for path, each in _listed(BLACKOUTS, blackouts):
        zone = find_zone(each.time_zone)
        if zone is None:
            continue
        first, last = moment_of(each.first, zone, is_last=False), moment_of(each.last, zone, is_last=True)
        for key, moment in (("first", first), ("last", last)):
            if moment is None:
                yield error((*path, key), f"there is no day {getattr(each, key)}", "see `cal`")
        if first is None or last is None:
            continue
        if last <= first:
            yield error(path, f"ends ({each.last}) before it begins ({each.first})", "exchange first and last")
        elif last - first > _LONG:
            message = f"no node is taken out of service for {(last - first).days} days"
            yield warning(path, message, "shorten it, unless that is meant")
    yield from _end_to_end(blackouts)


def _end_to_end(blackouts: tuple[Blackout, ...]) -> Iterator[Remark]:
    """Yield blackouts that are long together, as they follow each other without a gap."""
    times: list[tuple[datetime, datetime]] = []
    for each in blackouts:
        zone = find_zone(each.time_zone)
        first = None if zone is None else moment_of(each.first, zone, is_last=False)
        last = None if zone is None else moment_of(each.last, zone, is_last=True)
        if first is not None and last is not None and first < last <= first + _LONG:
            times.append((first.astimezone(UTC), last.astimezone(UTC)))
    begun: datetime | None = None
    end: datetime | None = None
    for first, last in sorted(times):
        if end is None or begun is None or first > end:
            begun, end = first, last
        else:
            end = max(end, last)
        if end - begun > _LONG:
            message = f"they follow each other, and no node is taken out of service for {(end - begun).days} days"
            yield warning(BLACKOUTS, message, "leave a gap, unless that is meant")
            return


def _zones(rollout: Rollout) -> Iterator[Remark]:
    zones = rollout.zones
    if zones is None:
        return
    if zones.node_label is not None and zones.groups:
        yield error(ZONES, "nodeLabel and groups both say what a zone is", "declare one of them")
    elif zones.node_label is None and not zones.groups:
        yield error(ZONES, "says nothing of what a zone is", "declare nodeLabel, or groups of the inventory")


def _order(rollout: Rollout) -> Iterator[Remark]:
    if rollout.order is not Order.SPREAD:
        return
    path: KeyPath = ("rollout", "order")
    if rollout.zones is None:
        yield error(path, "spread takes nodes of each zone in turn, and there are no zones", "declare rollout.zones")
    elif rollout.zones.one_at_a_time:
        message = "spread takes nodes of each zone in turn, and zones.oneAtATime all of one zone first"
        yield error(path, message, "leave one of them out")


def _maintenance(rollout: Rollout) -> Iterator[Remark]:
    """Yield that NVSentinel is kept off nodes, whatever it is doing there."""
    if rollout.maintenance.nvsentinel and Tool.NVSENTINEL not in rollout.respect:
        message = "keeps NVSentinel off nodes that it has quarantined as well, since respect does not have it"
        hint = "add nvsentinel to rollout.respect: its repairs would be cut off"
        yield error(("rollout", "maintenance", "nvsentinel"), message, hint)


def _listed(path: KeyPath, entries: tuple[_Entry, ...]) -> Iterator[tuple[KeyPath, _Entry]]:
    return (((*path, index), each) for index, each in enumerate(entries))


def window_minutes(window: Window) -> int:
    """Return how long a window is by the clock."""
    start, end = (_minutes(text) for text in (window.start, window.end))
    return end - start if end > start else end - start + _DAY_MINUTES


def spans(window: Window) -> list[tuple[int, int]]:
    """Return the times of a window in minutes of a week; one that goes over the week's end is in two parts."""
    length, found = window_minutes(window), []
    days = list(Day)
    for day in window.days or days:
        start = (days.index(day) * _DAY_MINUTES + _minutes(window.start)) % _WEEK_MINUTES
        found.append((start, min(start + length, _WEEK_MINUTES)))
        if start + length > _WEEK_MINUTES:
            found.append((0, start + length - _WEEK_MINUTES))
    return found


def _touch(one: Window, other: Window) -> bool:
    """Tell whether two windows follow each other without a gap, or may: those of other time zones do some day."""
    if one.time_zone != other.time_zone:
        return True
    return any(
        start <= until % _WEEK_MINUTES <= end or begin <= end % _WEEK_MINUTES <= until
        for start, end in spans(one)
        for begin, until in spans(other)
    )


def _minutes(text: str) -> int:
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)

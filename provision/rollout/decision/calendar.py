"""Says when nodes may be taken out of service: windows of the week without blackouts. Pure.

Times of windows are those of a wall clock in a time zone. Where summer time begins, a time that no clock shows counts
as if the clock had not been changed yet; where it ends, the first of two times that look the same counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Day
from provision.declaration.spec.values.time_zones import find_zone, moment_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from zoneinfo import ZoneInfo

    from provision.declaration.spec.model import Blackout, Rollout, Window

NEVER: Final = datetime.max.replace(tzinfo=UTC)
_DAYS: Final = tuple(Day)
_LONG: Final = timedelta(days=8)  # no node takes as long, so that it does not matter how much longer a window is open
_REACH: Final = timedelta(days=400)  # in which a window of every week comes again and again, whatever clocks do
_MOST: Final = 50  # windows that are looked at: no time is lost where none is long enough
_FORMAT: Final = "%Y-%m-%d %H:%M"


Span = tuple[datetime, datetime]  # in UTC, without its end


@dataclass(frozen=True, slots=True)
class Hours:
    """A window of the week: the days on which it begins, and its times in its time zone."""

    days: frozenset[int]
    start: time
    length: timedelta  # by the wall clock
    zone: ZoneInfo

    def times(self, now: datetime) -> Iterator[Span]:
        """Yield its times in their order, from one that ``now`` may lie in on, each worked out when it is asked for."""
        first = (now.astimezone(self.zone) - self.length).date() - timedelta(days=1)
        last = (now + _REACH).astimezone(self.zone).date()
        for day in range(first.toordinal(), last.toordinal() + 1):
            if (day - 1) % len(_DAYS) in self.days:  # the first day of the calendar was a Monday
                start = datetime.combine(date.fromordinal(day), self.start)
                yield _utc(start, self.zone), _utc(start + self.length, self.zone)


@dataclass(frozen=True, slots=True)
class Closure:
    """A blackout, in UTC, and why."""

    first: datetime
    last: datetime
    reason: str
    zone: ZoneInfo


@dataclass(frozen=True, slots=True)
class Calendar:
    """When nodes may be taken out of service. Without ``hours``: at any time that is not in a blackout."""

    hours: tuple[Hours, ...] = ()
    blackouts: tuple[Closure, ...] = ()

    def closes(self, now: datetime) -> datetime | None:
        """Return until when nodes may be taken out of service; None where that may not be done now."""
        start, end = next(self._spans(now), (NEVER, NEVER))
        return end if start <= now else None

    def opens(self, now: datetime, needed: timedelta) -> datetime | None:
        """Return the next moment from which on a node has the time that it needs; None where none comes."""
        for start, end in islice(self._spans(now), _MOST):
            moment = max(start, now)
            if end - moment >= needed:
                return moment
        return None

    def _spans(self, now: datetime) -> Iterator[Span]:
        """Yield when nodes may be out of service, in order, from what ends after ``now`` on."""
        moment = now
        while (blackout := self._blackout(moment)) is not None:
            moment = blackout.last
        for start, end in self._windows(moment) if self.hours else iter([(moment, NEVER)]):
            yield from self._without_blackouts(max(start, moment), end)

    def _windows(self, now: datetime) -> Iterator[Span]:
        """Yield the windows that end after ``now``; those that follow each other without a gap are one."""
        begun: Span | None = None
        for start, end in merge(*(hours.times(now) for hours in self.hours)):
            if end <= max(now, start):
                continue
            if begun is not None and start <= begun[1] < begun[0] + _LONG:
                begun = begun[0], max(begun[1], end)
                continue
            if begun is not None:
                yield begun
            begun = start, end
        if begun is not None:
            yield begun

    def _without_blackouts(self, start: datetime, end: datetime) -> Iterator[Span]:
        for blackout in sorted(self.blackouts, key=lambda each: each.first):
            if start < blackout.first < end:
                yield start, blackout.first
            if blackout.first < end:
                start = max(start, blackout.last)
        if start < end:
            yield start, end

    def why_closed(self, now: datetime, needed: timedelta) -> str:
        """Return why no node begins now that takes as long as it ``needed``, and when one may; empty where it may."""
        end = self.closes(now)
        if end is not None and end - now >= needed:
            return ""
        moment = self.opens(now, needed)
        if moment is None:
            return f"no window is long enough for a node, which takes {minutes(needed)}: declare a longer one"
        blackout = self._blackout(now)
        if blackout is not None:
            return f"waits until {self._shown(moment)}, because of a blackout{blackout.reason}"
        if end is None:
            return f"waits for its window, which opens {self._shown(moment)}"
        return (
            f"a node takes {minutes(needed)}, and the window closes {self._shown(end)}: "
            f"waits for the one that opens {self._shown(moment)}"
        )

    def _shown(self, moment: datetime) -> str:
        """Return a moment by the clock of the first window, or blackout: people have that time zone in mind."""
        zone = self.hours[0].zone if self.hours else self.blackouts[0].zone
        return f"{moment.astimezone(zone):{_FORMAT}} {zone.key}"

    def _blackout(self, now: datetime) -> Closure | None:
        found = [each for each in self.blackouts if each.first <= now < each.last]
        return max(found, key=lambda each: each.last) if found else None


def calendar_of(rollout: Rollout) -> Calendar | None:
    """Return the calendar of a declaration that was judged; None where nodes may begin at any time."""
    if not rollout.windows and not rollout.blackouts:
        return None
    return Calendar(
        tuple(hours for window in rollout.windows if (hours := hours_of(window)) is not None),
        tuple(closure for blackout in rollout.blackouts if (closure := _closure(blackout)) is not None),
    )


def hours_of(window: Window) -> Hours | None:
    """Return a window with its times; None where its time zone is not known."""
    zone = find_zone(window.time_zone)
    if zone is None:
        return None
    start, end = _minutes_of(window.start), _minutes_of(window.end)
    length = end - start if end > start else end - start + 24 * 60
    days = window.days or _DAYS
    days_later, start = divmod(start, 24 * 60)  # 24:00 is the beginning of the next day
    return Hours(
        days=frozenset((_DAYS.index(day) + days_later) % len(_DAYS) for day in days),
        start=time(start // 60, start % 60),
        length=timedelta(minutes=length),
        zone=zone,
    )


def usual_time(times: Sequence[timedelta]) -> timedelta:
    """Return how long nine of ten nodes took: some may have told nonsense, and the window is not to be overrun."""
    return sorted(times)[(len(times) * 9 - 1) // 10]


def minutes(length: timedelta) -> str:
    """Return a length as people say it."""
    number = -(-int(length.total_seconds()) // 60)
    return "1 minute" if number == 1 else f"{number} minutes"


def _closure(blackout: Blackout) -> Closure | None:
    zone = find_zone(blackout.time_zone)
    if zone is None:
        return None
    first, last = (
        moment_of(blackout.first, zone, is_last=False),
        moment_of(blackout.last, zone, is_last=True),
    )
    if first is None or last is None:
        return None
    reason = f": {blackout.reason}" if blackout.reason else ""
    return Closure(first.astimezone(UTC), last.astimezone(UTC), reason, zone)


def _minutes_of(text: str) -> int:
    hours, minutes_past = text.split(":")
    return int(hours) * 60 + int(minutes_past)


def _utc(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.replace(tzinfo=zone).astimezone(UTC)

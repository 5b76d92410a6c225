"""Events on their way to the API: counted together, bounded, and no more often than the API can bear. Pure.

Not here: when the next one is sent (`plan`), and its form (`requests`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plugin.publication.node_object.model import Note

MAX_SERIES = 64
PACE_S = 60.0  # of one series: what happens meanwhile is counted
LIFE_S = 3600.0  # the API server forgets an event after an hour (its --event-ttl)


@dataclass(frozen=True)
class Series:
    """Notes that are one event: how many so far, when the first and the last was, and what the API has of it.

    `number` makes the event's name, the same one at each try; `name` is "" while the API has none. `told` is the count
    that it has, since `told_s`.
    """

    note: Note
    count: int
    first: str
    last: str
    number: int = 0
    name: str = ""
    told: int = 0
    told_s: float = 0.0

    @property
    def is_told(self) -> bool:
        """Whether the API has all of it."""
        return self.told >= self.count

    @property
    def due_s(self) -> float:
        """When the API may be told of it: a new one at once."""
        return self.told_s + PACE_S if self.name else float("-inf")


class EventBook:
    """All series, the one that was noted longest ago first. `dropped` counts notes that found no room."""

    def __init__(self, limit: int = MAX_SERIES) -> None:
        self._series: dict[tuple[str, str, str], Series] = {}
        self._limit = limit
        self.dropped = 0

    def __iter__(self) -> Iterator[Series]:
        return iter(tuple(self._series.values()))

    def note(self, note: Note, utc: str, now_s: float, number: int = 0) -> None:
        """Count a note; `number` is for a new event. With too many series one is given up, best one that is told."""
        known = self._series.pop(note.series, None)
        if known is not None and known.is_told and now_s - known.told_s > LIFE_S:
            known = None
        if known is None:
            self._make_room()
            self._series[note.series] = Series(note, 1, utc, utc, number)
        else:
            self._series[note.series] = replace(known, note=note, count=known.count + 1, last=utc)

    def _make_room(self) -> None:
        if len(self._series) < self._limit:
            return
        victim = next((series for series in self if series.is_told), next(iter(self)))
        self.dropped += victim.count - victim.told
        del self._series[victim.note.series]

    def due(self, now_s: float) -> Series | None:
        """Return the series to tell next, None while there is none."""
        return next((series for series in self if not series.is_told and series.due_s <= now_s), None)

    def due_s(self) -> float | None:
        """Return when the next one is due; None when the API has all."""
        return min((series.due_s for series in self if not series.is_told), default=None)

    def told(self, sent: Series, name: str, now_s: float) -> None:
        """Note that the API has a series as it was when it was sent."""
        self._update(sent, name=name, told=sent.count, told_s=now_s)

    def forgotten(self, sent: Series) -> None:
        """Note that the API has no such event any more: it is made again, with all that was counted."""
        self._update(sent, name="", told=0)

    def give_up(self, sent: Series) -> None:
        """Note that the API will never take it."""
        self._series.pop(sent.note.series, None)

    def _update(self, sent: Series, **changes: object) -> None:
        known = self._series.get(sent.note.series)
        if known is not None:
            self._series[sent.note.series] = replace(known, **changes)  # type: ignore[arg-type] # named by the callers above

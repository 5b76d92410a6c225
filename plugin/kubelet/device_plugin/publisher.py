"""The current device list, and the streams that show it to kubelets.

A publication never changes; a newer one takes its place and wakes every stream. Nothing is queued, so
a stream that is slow misses nothing but intermediate states, and a dead one delays no other.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plugin.devices.allocation.table import AllocationTable
    from plugin.devices.resources import Offer


@dataclass(frozen=True)
class Publication:
    """What is offered now. After the last one streams end."""

    offers: tuple[Offer, ...]
    table: AllocationTable
    is_last: bool = False
    superseded: asyncio.Event = field(default_factory=asyncio.Event, compare=False, repr=False)


class Stream:
    """What one kubelet was sent last."""

    def __init__(self, progress: Callable[[], None]) -> None:
        self.offers: tuple[Offer, ...] | None = None
        self._progress = progress

    def sent(self, publication: Publication) -> None:
        """Remember what was handed to the connection."""
        self.offers = publication.offers
        self._progress()


class Publisher:
    """Holds the publication of one resource. Made and used in the event loop's thread."""

    def __init__(self, publication: Publication, clock: Callable[[], float]) -> None:
        self.current = publication
        self.last_stream_change = clock()
        self.stream_ended = asyncio.Event()
        self._clock = clock
        self._streams: set[Stream] = set()
        self._progress = asyncio.Event()

    def publish(self, publication: Publication) -> None:
        """Show another list; streams are only woken when the list differs, the table counts at once."""
        previous = self.current
        if (previous.offers, previous.is_last) == (publication.offers, publication.is_last):
            self.current = Publication(
                previous.offers, publication.table, previous.is_last, superseded=previous.superseded
            )
            return
        self.current = publication
        previous.superseded.set()

    @property
    def open_streams(self) -> int:
        """How many kubelets watch."""
        return len(self._streams)

    @contextmanager
    def stream(self) -> Iterator[Stream]:
        """Count a stream for as long as it is open."""
        stream = Stream(self._progress.set)
        self._streams.add(stream)
        self.last_stream_change = self._clock()
        try:
            yield stream
        finally:
            self._streams.discard(stream)
            self.last_stream_change = self._clock()
            self.stream_ended.set()
            self._progress.set()

    async def shown(self, *, to_at_least: int) -> None:
        """Wait until so many streams are open, and each of them has the current list."""
        while len(self._streams) < to_at_least or any(stream.offers != self.current.offers for stream in self._streams):
            self._progress.clear()
            await self._progress.wait()

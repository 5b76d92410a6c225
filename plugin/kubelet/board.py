"""The current device list, and the streams that show it to kubelets.

A publication never changes; a newer one takes its place and wakes every stream. Nothing is queued, so
a stream that is slow misses nothing but intermediate states, and a dead one holds nobody up.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plugin.allocation import AllocationTable
    from plugin.resources import Offer


@dataclass(frozen=True)
class Publication:
    """What is offered now. After the last one streams end."""

    offers: tuple[Offer, ...]
    table: AllocationTable
    is_last: bool = False
    superseded: asyncio.Event = field(default_factory=asyncio.Event, compare=False, repr=False)


class Board:
    """Holds the publication of one resource. Made and used in the event loop's thread."""

    def __init__(self, publication: Publication, clock: Callable[[], float]) -> None:
        self.current = publication
        self.open_streams = 0
        self.last_stream_change = clock()
        self.stream_ended = asyncio.Event()
        self._clock = clock

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

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Count a stream for as long as it is open."""
        self.open_streams += 1
        self.last_stream_change = self._clock()
        try:
            yield
        finally:
            self.open_streams -= 1
            self.last_stream_change = self._clock()
            self.stream_ended.set()

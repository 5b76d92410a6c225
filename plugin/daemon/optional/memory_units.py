"""What the daemon says of memory units: nothing, and nothing is imported, while no card is offered in units.

In front of `plugin.gpushare.keeper`. Used in the event loop's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plugin.gpushare.keeper import UnitKeeper
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment


class MemoryUnits:
    """`annotate` puts annotations on the Node."""

    def __init__(self, annotate: Callable[[Mapping[str, str | None]], None]) -> None:
        self._annotate = annotate
        self._keeper: UnitKeeper | None = None
        self._last: tuple[tuple[DeviceAssignment, ...], float] | None = None  # what the kubelet listed, and when

    def offered(self, resource: str, unit_bytes: int, cards: tuple[tuple[str, int, int, bool], ...]) -> None:
        """Take what is offered in units: UUID, index, number of units and whether it is healthy, of each card."""
        if self._keeper is None:
            if not cards:
                return
            self._keeper = self._make()
        from plugin.gpushare.books.model import Card

        self._keeper.offered(resource, unit_bytes, tuple(Card(*card) for card in cards))

    def allocated(self, resource: str, at: float) -> None:
        """Hear that a container was given devices."""
        if self._keeper is not None:
            self._keeper.allocated(resource, at)

    def listed(self, assignments: tuple[DeviceAssignment, ...], asked_at: float) -> None:
        """Take what the kubelet lists; `asked_at` is when it was asked, in seconds since the epoch."""
        self._last = assignments, asked_at
        if self._keeper is not None:
            self._keeper.listed(assignments, asked_at)

    def _make(self) -> UnitKeeper:
        from plugin.gpushare.keeper import UnitKeeper

        keeper = UnitKeeper(self._annotate)
        if self._last is not None:
            keeper.listed(*self._last)
        return keeper

"""Who hears what the kubelet asks for, counts it, and knows who has a device already. Not here: what is made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from plugin.devices.allocation.table import NoHoldings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from plugin.devices.allocation.preference.choice import Preference
    from plugin.devices.allocation.table import Holdings


class AllocationObserver(Protocol):
    """Called in the event loop's thread, in the kubelet's admission of a pod: it must not hold anybody up."""

    def preferred(
        self, resource: str, available: Sequence[str], required: Sequence[str], preference: Preference, size: int
    ) -> None:
        """Hear what was preferred for a container."""

    def reliable(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """Return which devices to choose from, of those that the kubelet takes for free."""

    async def holdings(self, device_ids: Sequence[str]) -> Holdings:
        """Return who has any of these devices, as far as anybody can say within half a second."""

    def giving(self, device_ids: Sequence[str]) -> None:
        """Know from now on that a container has these devices: the next one is given others."""

    def allocated(self, resource: str, device_ids: Sequence[str]) -> None:
        """Hear what a container was given, once that is answered."""

    def refused(self, resource: str, device_ids: Sequence[str], reason: str) -> None:
        """Hear that a container got nothing, or no preference, and why."""


class NoAllocationObserver:
    """Keeps nothing of what it hears, and knows of no container that has devices."""

    def preferred(
        self, resource: str, available: Sequence[str], required: Sequence[str], preference: Preference, size: int
    ) -> None:
        """Do nothing."""

    def reliable(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """Return all of them."""
        del required, size
        return available

    async def holdings(self, _device_ids: Sequence[str]) -> Holdings:
        """Return that no pod has any."""
        return NoHoldings()

    def giving(self, device_ids: Sequence[str]) -> None:
        """Do nothing."""

    def allocated(self, resource: str, device_ids: Sequence[str]) -> None:
        """Do nothing."""

    def refused(self, resource: str, device_ids: Sequence[str], reason: str) -> None:
        """Do nothing."""


class CallCounter(Protocol):
    """Hears of it; called in the event loop's thread."""

    def registered(self, resource: str) -> None:
        """Hear that a kubelet took a registration."""

    def called(self, method: str, code: str, seconds: float) -> None:
        """Hear of a call that was answered or refused; `code` is the name of gRPC's status."""

    def allocated(self, device_ids: Iterable[str]) -> None:
        """Hear of devices that a container was given."""


class NoCallCounter:
    """Counts nothing."""

    def registered(self, resource: str) -> None:
        """Do nothing."""

    def called(self, method: str, code: str, seconds: float) -> None:
        """Do nothing."""

    def allocated(self, device_ids: Iterable[str]) -> None:
        """Do nothing."""

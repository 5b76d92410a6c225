"""Who counts what the kubelets do. Not here: what is made of the counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable


class CallCounter(Protocol):
    """Hears of it; called in the event loop's thread."""

    def registered(self, resource: str) -> None:
        """Hear that a kubelet took a registration."""

    def called(self, method: str, code: str, seconds: float) -> None:
        """Hear of a call that was answered or refused; `code` is the name of gRPC's status."""

    def allocated(self, device_ids: Iterable[str]) -> None:
        """Hear of devices that a container was given."""


class NoCallCounter:
    """Nobody counts."""

    def registered(self, resource: str) -> None:
        """Do nothing."""

    def called(self, method: str, code: str, seconds: float) -> None:
        """Do nothing."""

    def allocated(self, device_ids: Iterable[str]) -> None:
        """Do nothing."""

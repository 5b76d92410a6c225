"""Passes what an engine says on to whoever listens. A listener that fails is not asked again, and stops nothing."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from provision.report.notify.news import Newsroom
    from provision.report.notify.webhook import Webhook
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.interface.progress import RolloutObserver, RolloutProgress
    from provision.rollout.interface.standing import Standing

CLOSE_S: Final = 15.0  # a run that ends waits so long for what is still to be sent


class Listener(Protocol):
    """Hears a rollout on the engine's thread: it takes note, and does what takes time elsewhere."""

    def hear(self, progress: RolloutProgress) -> None:
        """Take note of a step."""

    def see(self, standing: Standing, nodes: Sequence[NodeState]) -> None:
        """Take note of how the rollout stands, and its nodes."""

    def close(self) -> str:
        """End, in bounded time; return what went wrong, for people."""


class Webhooks:
    """Tells receivers the news of a rollout."""

    def __init__(
        self, webhooks: Sequence[Webhook], newsroom: Newsroom, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._webhooks, self._newsroom, self._clock = webhooks, newsroom, clock

    def hear(self, progress: RolloutProgress) -> None:
        """Tell what is news of a step."""
        for message in self._newsroom.hear(progress, self._clock()):
            for webhook in self._webhooks:
                webhook.tell(message)

    def see(self, standing: Standing, nodes: Sequence[NodeState]) -> None:
        """Tell what is news of how the rollout stands."""
        for message in self._newsroom.see(standing, self._clock()):
            for webhook in self._webhooks:
                webhook.tell(message)

    def close(self) -> str:
        """Tell the end, and return what was not delivered."""
        for message in self._newsroom.end(self._clock()):
            for webhook in self._webhooks:
                webhook.tell(message)
        for webhook in self._webhooks:
            webhook.hurry()
        deadline = time.monotonic() + CLOSE_S
        left = (webhook.close(max(0.0, deadline - time.monotonic())) for webhook in self._webhooks)
        return "; ".join(filter(None, left))


class Listeners:
    """All listeners of one rollout. Nothing that one of them does reaches the engine."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = list(listeners)
        self._troubles: list[str] = []

    def observing(self, observe: RolloutObserver) -> RolloutObserver:
        """Return an observer that tells the listeners, and then ``observe``."""

        def both(progress: RolloutProgress) -> None:
            self._each(lambda listener: listener.hear(progress))
            observe(progress)

        return both

    def see(self, standing: Standing, nodes: Sequence[NodeState]) -> None:
        """Tell them how the rollout stands."""
        self._each(lambda listener: listener.see(standing, nodes))

    def close(self) -> tuple[str, ...]:
        """End all of them; return what went wrong."""
        self._each(lambda listener: self._troubles.append(listener.close()))
        return tuple(filter(None, self._troubles))

    def _each(self, act: Callable[[Listener], None]) -> None:
        for listener in tuple(self._listeners):
            try:
                act(listener)
            except Exception as error:  # noqa: BLE001 - an upgrade does not depend on who hears of it
                self._listeners.remove(listener)
                self._troubles.append(f"{type(listener).__name__} ended with a bug: {type(error).__name__}")

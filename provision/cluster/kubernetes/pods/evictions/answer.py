"""Says what has become of an EvictionRequest. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

    from provision.cluster.kubernetes.pods.evictions.objects import EvictionRequest, Progress, Responder

ANSWER: Final = timedelta(seconds=30)  # a controller that runs sees a request within a second
HEARTBEAT: Final = timedelta(minutes=20)  # of the API: after that, the next responder has its turn
_SLACK: Final = timedelta(minutes=2)  # for the controller to see to that
_SAID: Final = 200  # letters of what a responder says


@dataclass(frozen=True, slots=True)
class UnderWay:
    """It is being seen to; ``reason`` says by whom."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Nothing in this cluster acts on requests."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Something acts on requests, and does not on this one any more."""


Answer = UnderWay | Unanswered | GivenUp


def read_answer(request: EvictionRequest, progress: Progress | None, now: datetime) -> Answer:
    """Return how a request stands; ``now`` is the API server's time."""
    if any(each.type == "Failed" and each.status == "True" for each in request.status.conditions):
        return GivenUp()
    active = None if progress is None else progress.status.active
    if active is not None:
        return GivenUp() if _is_silent(active, now) else UnderWay(_describe(active))
    created = request.metadata.creation_timestamp or now
    if request.status.observed_generation is None and now - created >= ANSWER:
        return Unanswered()
    return UnderWay("its eviction is requested")


def _is_silent(responder: Responder, now: datetime) -> bool:
    """Tell whether a responder has missed its deadline, and nobody has given its turn to the next one."""
    last = responder.heartbeat_time or responder.start_time
    return last is not None and now - last > HEARTBEAT + _SLACK


def _describe(responder: Responder) -> str:
    said = " ".join((responder.message or "").split())[:_SAID]
    end = responder.expected_completion_time
    until = "" if end is None else f", expected until {end:%Y-%m-%d %H:%M:%S} UTC"
    return f"its eviction is requested, and {responder.name} is at it{until}{f': {said}' if said else ''}"

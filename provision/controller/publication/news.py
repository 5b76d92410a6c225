"""Says what about a stack is news for whoever looks at it: the Events of `kubectl describe gpustack`. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from provision.base.printable import brief
from provision.controller.stacks.derive import NodeIs
from provision.controller.stacks.status import StackState
from provision.declaration.spec.text.excerpt import few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from provision.controller.stacks.derive import Observed
    from provision.controller.stacks.status import StackStatus
    from provision.rollout.interface.standing import Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class StackEvent:
    """Something that has happened to a stack; ``node`` is the one that it is about."""

    reason: str
    message: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StackKnown:
    """What is known of a stack at one moment, as far as news is made of it. ``failed`` are nodes with why.

    ``began`` is when its latest rollout did, ``is_over`` whether that one has ended, ``stop`` why it stopped.
    """

    state: str = ""
    message: str = ""
    failed: Mapping[str, str] = field(default_factory=dict)
    claimed: frozenset[str] = frozenset()
    began: datetime | None = None
    is_over: bool = False
    stop: str = ""


def known_before(status: StackStatus) -> StackKnown:
    """Return what was known when a stack got its status, by whoever led then: it is no news any more."""
    failed = {each.node: each.message for each in status.troubles[: status.nodes.failed]}  # they are named first
    return StackKnown(state=status.state, message=status.message, failed=failed)


def known_now(status: StackStatus, observed: Observed, latest: Standing | None, *, is_over: bool) -> StackKnown:
    """Return what is known of a stack now, and of its latest rollout."""
    return StackKnown(
        state=status.state,
        message=status.message,
        failed={name: each.reason for name, each in observed.nodes.items() if each.how is NodeIs.FAILED},
        claimed=frozenset(observed.disputed),
        began=None if latest is None else latest.began,
        is_over=is_over,
        stop="" if latest is None else latest.stop,
    )


def news(before: StackKnown, now: StackKnown) -> Iterator[StackEvent]:
    """Yield what has happened between two moments."""
    if now.state == StackState.REFUSED and (before.state, before.message) != (now.state, now.message):
        yield StackEvent(reason="Refused", message=now.message, is_warning=True)
    if before.state == StackState.REFUSED and now.state != StackState.REFUSED:
        yield StackEvent(reason="Accepted", message="the declaration is used again")
    is_another = now.began is not None and now.began != before.began
    if is_another:
        yield StackEvent(reason="RolloutBegan", message="a rollout has begun: nodes leave service in turn")
    if now.stop and (is_another or now.stop != before.stop):
        yield StackEvent(reason="RolloutStopped", message=f"no further node begins: {brief(now.stop)}", is_warning=True)
    for name, why in now.failed.items():
        if name not in before.failed:  # another word for the same failure is no news
            message = f"{name}: {brief(why)}" if why else name
            yield StackEvent(reason="NodeFailed", message=message, is_warning=True)
    if claimed := sorted(now.claimed - before.claimed):
        message = f"another stack selects {few(claimed)} as well: nothing is done about what two stacks select"
        yield StackEvent(reason="ClaimedTwice", message=message, is_warning=True)
    if now.is_over and (is_another or not before.is_over):
        how = f"it had stopped: {brief(now.stop)}" if now.stop else now.message
        yield StackEvent(reason="RolloutEnded", message=f"the rollout has ended: {how}")
    if now.state == StackState.AS_DECLARED and before.state not in (StackState.AS_DECLARED, ""):
        yield StackEvent(reason="AsDeclared", message=now.message)

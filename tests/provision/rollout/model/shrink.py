"""Shortens an interleaving that violates something, so that a person can read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.provision.rollout.model.events import Event, play

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def violated(events: Sequence[Event]) -> str:
    """Return what an interleaving violates, empty where it violates nothing. A bug of the engine is one, too."""
    return violated_by(play, events)


def violated_by(play: Callable[[Sequence[Event]], None], events: Sequence[Event]) -> str:
    """Return the same of an interleaving that is played in some way."""
    try:
        play(events)
    except Exception as error:  # noqa: BLE001 - whatever it raises, an engine must not
        return f"{type(error).__name__}: {error}"
    return ""


def shrink(events: Sequence[Event], violated: Callable[[Sequence[Event]], str] = violated) -> list[Event]:
    """Return the events without those that are not needed: it still violates something, if not the same."""
    left, size = list(events), max(1, len(events) // 2)
    while size:
        at = 0
        while at < len(left):
            fewer = left[:at] + left[at + size :]
            if violated(fewer):
                left = fewer
            else:
                at += size
        size //= 2
    return left


def told(events: Sequence[Event]) -> str:
    """Return an interleaving as the test that it belongs into has it."""
    return "".join(f"    {each!r},\n" for each in events)

"""Says how each state looks: a tone, which becomes a colour and a shape, and a mark, so that no colour is needed. Pure.

States that have no mark here get one from their title, so that a state that is added needs no change of the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.rollout.status import situations

if TYPE_CHECKING:
    from provision.rollout.status.situations import Situation

_MARKS: Final = {
    "done": "✓",
    "waiting": "·",
    "idle": "-",
    "cordoned": "/",
    "not-ready": "!",
    "unclear": "?",
    "not-begun": "‖",
    "resume": "U",  # uncordoned next; R is release
    "wait-for-jobs": "J",
    "rollback": "B",
    "returned": "↩",
}


@dataclass(frozen=True, slots=True)
class Look:
    """``tone`` is one of ok, wait, work, warn, bad, off; ``mark`` one character."""

    tone: str
    mark: str


def look_of(situation: Situation) -> Look:
    """Return how a state looks."""
    return Look(_tone(situation), _mark(situation))


def _tone(situation: Situation) -> str:
    if situation is situations.DONE:
        return "ok"
    if situation.key.startswith(("failed", "returned")):
        return "bad"
    if situation.needs_somebody:
        return "warn"
    if situation in situations.AT_WORK:
        return "work"
    return "off" if situation in (situations.IDLE, situations.CORDONED) else "wait"


def _mark(situation: Situation) -> str:
    key = situation.key
    if key in _MARKS:
        return _MARKS[key]
    if key.startswith("failed"):
        return "✕"
    if key.startswith("left-in-"):
        return _MARKS.get(key.removeprefix("left-in-"), key.removeprefix("left-in-")[0].upper())
    return situation.title[0].upper()

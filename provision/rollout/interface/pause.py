"""Defines a pause: no further node is to begin until it is taken back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

RESUME: Final = "`grapnel resume` ends it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Who paused the rollouts of a place where node state lives, since when (None: not known), and why."""

    by: str
    since: datetime | None = None
    reason: str = ""

    def __str__(self) -> str:
        since = "" if self.since is None else f" since {self.since:%Y-%m-%d %H:%M:%S} UTC"
        why = f": {self.reason}" if self.reason else ""
        return f"by {self.by}{since}{why}"

    @property
    def as_reason(self) -> str:
        """Why a node waits, with what ends it."""
        return f"paused {self}; {RESUME}"

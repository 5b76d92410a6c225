"""Says whether what blocked nodes is gone since a round ended without beginning with them. Pure.

Why a node waits often lies with others: one that failed has stopped the rollout, one that somebody has cordoned takes
the budget. The waiting node itself does not change when that is over, so the blockers are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.controller.nodes import SeenNode
    from provision.rollout.pause import Pause


class Change(Enum):
    """What has changed since."""

    NOTHING = auto()
    BY_ITSELF = auto()  # it may come and go all the time: not every time is worth a try
    BY_SOMEBODY = auto()  # a person, or a node that has been brought to its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Blockers:
    """What may keep a round of a stack from beginning with a node, as the round has seen it.

    ``generation`` is that of the stack, ``pause`` what keeps a round from beginning with anybody. ``failed`` are nodes
    whose upgrade failed, also while it is tried again: they stay among them until that has succeeded. ``out`` are nodes
    that take no pods, are not ready, or that another tool is at.
    """

    generation: int
    pause: Pause | None
    failed: frozenset[str]
    skipped: frozenset[str]
    out: frozenset[str]


def blockers_of(generation: int, pause: Pause | None, members: Mapping[str, SeenNode]) -> Blockers:
    """Return what may block nodes of a stack now."""
    return Blockers(
        generation=generation,
        pause=pause,
        failed=frozenset(name for name, node in members.items() if node.is_unfinished),
        skipped=frozenset(name for name, node in members.items() if node.is_skipped),
        out=frozenset(name for name, node in members.items() if node.is_out),
    )


def change(former: Blockers, now: Blockers) -> Change:
    """Return which change there is for waiting nodes; a further blocker is none."""
    is_resumed = former.pause is not None and former.pause != now.pause
    is_said = former.generation != now.generation or former.skipped != now.skipped
    if is_resumed or is_said or former.failed - now.failed:
        return Change.BY_SOMEBODY
    return Change.BY_ITSELF if former.out - now.out else Change.NOTHING

"""Says whether what kept nodes waiting has changed since a round ended without beginning with them. Pure.

Why a node waits often lies with others: one that failed has stopped the rollout, one that somebody has cordoned takes
the budget. Such a node itself does not change when that is over, so that what is around it is compared.
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
class Surroundings:
    """What a round of a stack has met beside the nodes that it was about.

    ``generation`` is that of the stack, ``pause`` what keeps a round from beginning with anybody. ``failed`` are nodes
    whose upgrade failed, also while it is tried again: they stay among them until that has succeeded. ``out`` are nodes
    that take no pods, are not ready, or that another tool is at.
    """

    generation: int
    pause: Pause | None
    failed: frozenset[str]
    skipped: frozenset[str]
    out: frozenset[str]


def surroundings_of(generation: int, pause: Pause | None, members: Mapping[str, SeenNode]) -> Surroundings:
    """Return what is around the nodes of a stack."""
    return Surroundings(
        generation=generation,
        pause=pause,
        failed=frozenset(name for name, node in members.items() if node.is_unfinished),
        skipped=frozenset(name for name, node in members.items() if node.is_skipped),
        out=frozenset(name for name, node in members.items() if node.is_out),
    )


def change(former: Surroundings, now: Surroundings) -> Change:
    """Return what has changed for those who wait: that something more is in their way is no reason to try."""
    is_resumed = former.pause is not None and former.pause != now.pause
    is_said = former.generation != now.generation or former.skipped != now.skipped
    if is_resumed or is_said or former.failed - now.failed:
        return Change.BY_SOMEBODY
    return Change.BY_ITSELF if former.out - now.out else Change.NOTHING

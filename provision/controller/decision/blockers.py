"""Says whether what blocked nodes is gone since a round ended without beginning with them. Pure.

Why a node waits often lies with others: one that failed has stopped the rollout, one that others have cordoned takes
the budget. The waiting node itself does not change when that is over, so the blockers are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.controller.nodes import SeenNode
    from provision.rollout.interface.pause import Pause

LATE_S: Final = 30.0  # what a round has seen of Nodes may be that old when it has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Blockers:
    """What may keep a round of a stack from beginning with a node, as the round has seen it.

    ``generation`` is that of the stack, ``pause`` what keeps a round from beginning with anybody. ``failed`` are nodes
    whose upgrade failed, also while it is tried again: they stay among them until that has succeeded. ``out`` are nodes
    that take no pods, are not ready, or that another tool is at; those that are out for their own upgrade are not among
    them. ``back`` says when a node was out last, ``noted_s`` when all of this was noted, both by one clock.
    """

    generation: int
    pause: Pause | None
    failed: frozenset[str]
    skipped: frozenset[str]
    out: frozenset[str]
    back: Mapping[str, float]
    noted_s: float


def blockers_of(generation: int, pause: Pause | None, members: Mapping[str, SeenNode], now_s: float) -> Blockers:
    """Return what may block nodes of a stack now."""
    return Blockers(
        generation=generation,
        pause=pause,
        failed=frozenset(name for name, node in members.items() if node.is_unfinished),
        skipped=frozenset(name for name, node in members.items() if node.is_skipped),
        out=frozenset(name for name, node in members.items() if node.is_out_by_others),
        back={name: node.back_s for name, node in members.items() if node.back_s is not None},
        noted_s=now_s,
    )


def is_lifted(former: Blockers, now: Blockers) -> bool:
    """Tell whether it was told to go on, or a node was brought to its end; a further blocker is none."""
    is_resumed = former.pause is not None and former.pause != now.pause
    is_said = former.generation != now.generation or former.skipped != now.skipped
    return is_resumed or is_said or bool(former.failed - now.failed)


def returned(former: Blockers, now: Blockers) -> frozenset[str]:
    """Return the nodes that are back, or have left; the same ones may come and go all the time.

    One that was back just before the round had ended counts: the round may not have seen it any more.
    """
    late = (name for name, back_s in now.back.items() if back_s > former.noted_s - LATE_S and name not in now.out)
    return (former.out - now.out).union(late)

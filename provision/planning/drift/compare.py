"""Turns the items of a node's plan into differences: what is as it should not be, without the work that follows."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from provision.planning.drift.model import Difference, DriftKind, Subject
from provision.planning.node_plan import EDITED, Action, Role
from provision.planning.render.declared import DECLARED_RECORD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.planning.node_plan import Item, NodePlan

_KINDS: Final[Mapping[Action, DriftKind]] = {
    Action.INSTALL: DriftKind.VERSION,
    Action.UPGRADE: DriftKind.VERSION,
    Action.DOWNGRADE: DriftKind.VERSION,
    Action.REMOVE: DriftKind.VERSION,
    Action.STAGE: DriftKind.VERSION,
    Action.HOLD: DriftKind.HOLD,
    Action.UNHOLD: DriftKind.HOLD,
    Action.WRITE: DriftKind.FILE,
    Action.KEEP: DriftKind.FILE,
    Action.START: DriftKind.SERVICE,
    Action.RESTART: DriftKind.SERVICE,
    Action.ENABLE: DriftKind.SERVICE,
    Action.DISABLE: DriftKind.SERVICE,
    Action.RELOAD: DriftKind.MODULE,
    Action.LOAD: DriftKind.MODULE,
    Action.DEPLOY: DriftKind.SOFTWARE,
    Action.DIVIDE: DriftKind.MIG,
    Action.SET: DriftKind.KERNEL,
    Action.REBOOT: DriftKind.KERNEL,
    Action.REPAIR: DriftKind.INTERRUPTED,
}

_NO_DIFFERENCE: Final = frozenset({Action.STAGE, Action.KEEP})


def differences_of(plan: NodePlan) -> tuple[Difference, ...]:
    """Return the differences of a node, in the order of its plan; none for one that is as declared.

    Copies of what is about to be overwritten are none. Restarts, staging and the node's record of what was brought
    about count only where nothing else differs, as otherwise they follow from the rest. A file whose text depends on a
    package that is missing is no difference yet.
    """
    items = [item for item in plan.items if item.action not in _NO_DIFFERENCE and not _is_foreseen(item)]
    causes = [item for item in items if item.action is not Action.RESTART and item.target != DECLARED_RECORD]
    grouped = groupby(
        causes or items or plan.items, key=lambda item: (_kind(item), item.role, item.reason, _edited(item))
    )
    return tuple(
        Difference(kind, role, reason, tuple(map(_subject, together)), is_edit=is_edit)
        for (kind, role, reason, is_edit), together in grouped
    )


def _edited(item: Item) -> bool:
    return item.action is Action.WRITE and item.from_ == EDITED


def _kind(item: Item) -> DriftKind:
    """Return what differs: what is removed is a package or a file, what is set a setting of the kernel or of GPUs."""
    if item.action is Action.SET and item.role is Role.NODE_DAEMON:
        return DriftKind.GPUS
    return DriftKind.FILE if item.action is Action.REMOVE and item.target.startswith("/") else _KINDS[item.action]


def _is_foreseen(item: Item) -> bool:
    """Tell whether an item is about something that cannot be compared yet; packages are known when they wait, too."""
    return item.deferred and item.action is Action.WRITE


def _subject(item: Item) -> Subject:
    if item.action in {Action.WRITE, Action.RESTART}:  # a digest, or the version that a pin is for, says nothing here
        return Subject(item.target)
    return Subject(item.target, item.from_, item.to)

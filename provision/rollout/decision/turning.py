"""Says what becomes of a node in flight that is not to be changed any more, as long as its driver was not. Pure.

Before the swap its driver is what it was: the node is turned round, back into service with what it has, and verified
only if its GPUs were released. From the swap on it comes to an end first, whoever changes their mind.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from provision.rollout.decision.snapshot import Withdraw, Write
from provision.rollout.model import BEFORE_SWAP, UNTOUCHED, ChangeKind, Phase

if TYPE_CHECKING:
    from datetime import datetime

    from provision.rollout.decision.order.domains import Domain
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.model import Record

AS_DECLARED: Final = "it has what is declared"
_IN_PLACE: Final = "what is declared can be changed while it is in service"


def turn_round(node: NodeState, record: Record, now: datetime, domain: Domain | None) -> Withdraw | Write | None:
    """Return how a node goes back into service as it is, None where its upgrade goes on.

    A node that has what is declared and whose GPUs were released is none of these: it is verified as changed ones are.
    """
    if record.is_returning or record.phase not in BEFORE_SWAP or node.is_half_done or node.is_replaced:
        return None
    why = _why(node, domain)
    if not why:
        return None
    if record.phase in UNTOUCHED and not record.is_touched and not node.is_released:
        return put_back(node, record, why)
    if not (node.called_off or node.view.is_skipped or node.obstacle or (domain is not None and domain.called_off)):
        return None
    has = record  # where the node could not be asked
    if node.origin_change is not None:
        has = replace(record, origin=node.origin, origin_change=node.origin_change)
    back = replace(has, is_returning=True, reason=why, failed_in=None, is_unrelated=True, because_of="")
    return Write(node.name, back.entering(Phase.VERIFY, now), cordoned=True)


def put_back(node: NodeState, record: Record, why: str) -> Withdraw:
    """Return the end of a change that has changed nothing, as if it had not begun; without ``why`` it is put off."""
    return Withdraw(node.name, None if record.was_cordoned else False, why, record.last_upgrade)


def _why(node: NodeState, domain: Domain | None) -> str:
    """Return why a node is turned round, empty where it is not. A domain is, as a whole, or goes on as a whole."""
    if domain is None:
        return node.why_no_change or node.obstacle or _needless(node)
    if domain.failed is not None or domain.is_committed:
        return ""
    other = domain.called_off
    if other is not None:
        of = "" if other is node else f"{other.name} of its domain {domain.title}: "
        return f"{of}{other.why_no_change}"
    if domain.is_changing or domain.why_not_back(node.serves_with or ""):  # such as of one that reboots meanwhile
        return ""
    return _needless(node)


def _needless(node: NodeState) -> str:
    """Return why a node need not be out of service; a reboot that it has had is verified all the same."""
    if node.is_disruptive or node.kind is ChangeKind.REBOOT:
        return ""
    return AS_DECLARED if node.is_as_declared else _IN_PLACE

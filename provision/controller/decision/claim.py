"""Says what on a Node contradicts its claim that it is as declared. Pure.

The claim is an annotation that the controller writes when a node has been brought to its declaration. It is withdrawn
before the first effect on the node. What a claim cannot know is told by others: the node's record, which whoever
changes the driver writes, and its daemon, which reports the driver that answers. A node may forge both; all that comes
of it is that the node is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.rollout.decision.undoing import is_declared
from provision.rollout.model import ChangeKind, Phase

if TYPE_CHECKING:
    from provision.controller.nodes import SeenNode
    from provision.declaration.spec.model import Driver, StackSpec
    from provision.rollout.model import Record


def contradiction(node: SeenNode, spec: StackSpec) -> str:
    """Return what contradicts that a node is as declared, in words; empty where nothing does."""
    return by_record(node.record, spec.driver) or _by_daemon(node.driver, spec.driver)


def by_record(record: Record | None, driver: Driver) -> str:
    """Return what the record of an upgrade that is over says against it.

    A failed node is out of service, whatever it has. Of the driver, a record says nothing where its change was about
    something else, or where a branch stood for the version.
    """
    if record is None or not record.phase.is_over or record.retry:
        return ""
    if record.phase is Phase.FAILED:
        where = "" if record.kind.is_in_place else ", and it is out of service"
        return f"its last change has failed in {record.failed_in or record.phase}{where}"
    if record.kind is not ChangeKind.DRIVER or not driver.enabled:
        return ""
    has = record.origin or "no driver" if record.phase is Phase.RETURNED else record.target
    if not has or is_declared(driver, has):
        return ""
    return f"its last change has left it with {has}"


def has_ended(record: Record | None, driver: Driver) -> bool:
    """Tell whether a record describes what is no more, of a node that was found as declared.

    That an upgrade failed is over once the driver that the node went back to is the declared one; else it would keep
    the node from the next upgrade to the same driver.
    """
    return record is not None and (record.phase is Phase.RETURNED or bool(by_record(record, driver)))


def _by_daemon(reported: str, driver: Driver) -> str:
    if not reported or not driver.enabled or is_declared(driver, reported):
        return ""
    return f"its node daemon reports driver {reported}"

"""Derives how each node stands from what was seen. Pure.

Records are on Nodes, and a node's kubelet may write its own: what they say decides what is shown of that node alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from provision.rollout.decision.undoing import is_declared
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import ChangeKind, Phase
from provision.rollout.status import situations
from provision.rollout.status.estimate import Measures, left_of_fleet, measure
from provision.rollout.status.model import FleetStatus, NodeStatus, WaveStatus
from provision.rollout.status.reported import trouble_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from provision.declaration.spec.model import Driver, Plugin
    from provision.rollout.interface.standing import Standing
    from provision.rollout.model import NodeView, Record
    from provision.rollout.status.model import Seen
    from provision.rollout.status.reported import Reported
    from provision.rollout.status.situations import Situation


_SETTLES: Final = timedelta(minutes=2)  # in which daemon and kubelet say what is so after an upgrade
_SERVES: Final = "it is not cordoned, and takes pods"
_NO_DRIVER: Final = "no driver"
_LEFT_ALONE: Final = "it is skipped, so that no run begins with it"


def fleet_status(seen: Seen) -> FleetStatus:
    """Return how the fleet stands, its nodes in their order."""
    if seen.is_led and not _is_at_work(seen):  # it would go on if anything was left: what was published is long over
        seen = replace(seen, standing=None)
    standing = seen.standing
    records = [view.record for view in seen.nodes.values() if not isinstance(view, NodeProblem) and view.record]
    measures = measure(records, standing)
    found = [_remarked(_node(name, view, seen, measures), view, seen) for name, view in seen.nodes.items()]
    nodes = tuple(_placed(found, seen))
    unnamed = () if standing is None else standing.unnamed
    left_s = None
    if standing is not None and _is_at_work(seen) and seen.pause is None:
        flying = [
            node.left_s
            for node in nodes
            if node.situation in situations.AT_WORK and node.situation is not situations.WORKING[Phase.ROLLBACK]
        ]
        waiting = sum(node.situation is situations.WAITING for node in nodes) + sum(number for _, number in unnamed)
        left_s = left_of_fleet(measures, flying, waiting, standing)
    waves = tuple(wave_statuses(nodes, standing))
    return FleetStatus(seen=seen, nodes=nodes, left_s=left_s, measured=measures.nodes, unnamed=unnamed, waves=waves)


def _placed(nodes: list[NodeStatus], seen: Seen) -> list[NodeStatus]:
    """Return the nodes with the titles of their waves and domains, and with what their Nodes say of the machines."""
    standing = seen.standing
    waves = {} if standing is None else {name: wave.title for wave in standing.waves for name in wave.nodes}
    domains = {} if standing is None else {name: each.title for each in standing.domains for name in each.nodes}
    if not (waves or domains or seen.reported or seen.declared or seen.daemons):
        return nodes
    return [_at(node, waves.get(node.name, ""), domains.get(node.name, ""), seen) for node in nodes]


def _at(node: NodeStatus, wave: str, domain: str, seen: Seen) -> NodeStatus:
    """Return a node with its place. Written out: there are thousands, for which ``dataclasses.replace`` is too slow."""
    reported, plugin = seen.reported.get(node.name), seen.daemons.get(node.name)
    trouble = None if reported is None else _trouble(node, reported, plugin, seen)
    situation, since, reason = trouble or (node.situation, node.since, node.reason)
    return NodeStatus(
        name=node.name,
        situation=situation,
        since=since,
        reason=reason,
        record=node.record,
        left_s=node.left_s,
        wave=wave,
        domain=domain,
        remarks=node.remarks,
        reported=reported,
        declared=seen.declared.get(node.name),
        plugin=plugin,
    )


def _trouble(
    node: NodeStatus, reported: Reported, plugin: Plugin | None, seen: Seen
) -> tuple[Situation, datetime | None, str] | None:
    """Return what of a node that is content as far as upgrades go needs an administrator, since when, and why."""
    if node.situation not in (situations.IDLE, situations.DONE):
        return None
    if node.record is not None and seen.time - node.record.since < _SETTLES:
        return None
    is_changing = seen.tenant is not None and seen.tenant.is_at_work and plugin is not None and plugin.enabled
    found = trouble_of(reported, None if is_changing else plugin)  # what is declared may be about to come
    if found is None:
        return None
    since = reported.said if found[0] is situations.SILENT else None
    return found[0], since, "; ".join(filter(None, (found[1], node.reason)))


def wave_statuses(nodes: Iterable[NodeStatus], standing: Standing | None) -> Iterator[WaveStatus]:
    """Yield how far each wave is, in their order."""
    counts: dict[str, Counter[str]] = {wave.title: Counter() for wave in (() if standing is None else standing.waves)}
    for node in nodes:
        if (count := counts.get(node.wave)) is not None:
            count[_progress(node)] += 1
    for title, count in counts.items():
        yield WaveStatus(
            title=title, total=count.total(), done=count["done"], flying=count["flying"], failed=count["failed"]
        )


def _progress(node: NodeStatus) -> str:
    if node.record is None or node.situation in (situations.WAITING, situations.NOT_BEGUN):
        return "waiting"
    if not node.record.phase.is_over:
        return "flying"
    return "done" if node.record.phase is Phase.DONE else "failed"


def _is_at_work(seen: Seen) -> bool:
    """Tell whether an engine is at work; where the lease could not be read, none is said to have gone."""
    return not seen.is_lease_known or (seen.tenant is not None and seen.tenant.is_at_work)


def _node(name: str, view: NodeView | NodeProblem, seen: Seen, measures: Measures) -> NodeStatus:
    if isinstance(view, NodeProblem):
        reason = f"{view.message} ({view.hint})" if view.hint else view.message
        return NodeStatus(name=name, situation=situations.UNCLEAR, reason=reason)
    waits = "" if seen.standing is None else seen.standing.waiting.get(name, "")
    record = view.record
    if record is None or record.phase.is_in_service:
        return _in_service(name, view, waits, seen)
    if record.phase is Phase.FAILED:
        where = None if record.failed_in is None or record.failed_in.is_over else record.failed_in
        failed = situations.FAILED if where is None else situations.FAILED_IN[where]
        if record.kind is ChangeKind.REBOOT and where is not None and where.may_be_undone:
            failed = situations.FAILED_REBOOT
        elif record.kind is ChangeKind.MIG and where is not None and where.may_be_undone:
            failed = situations.FAILED_MIG
        elif record.kind.is_in_place:
            failed = situations.FAILED_INTERFACE
        if record.is_unrelated:
            failed = situations.UNRELATED
        reason = f"{record.reason}; {_LEFT_ALONE}" if view.is_skipped else record.reason
        return NodeStatus(name=name, situation=failed, since=record.since, reason=reason, record=record)
    reason = "; ".join(filter(None, (record.complaint, waits)))
    reboots = record.kind is ChangeKind.REBOOT and record.phase is Phase.SWAP
    if not _is_worked_at(name, record, seen):
        left = situations.LEFT_REBOOTING if reboots else situations.LEFT[_stage(record)]
        left = situations.LEFT_CHANGING_OVER if record.kind.is_in_place else left
        return NodeStatus(name=name, situation=left, since=record.since, reason=reason, record=record)
    left_s = measures.left_s(record, seen.time)
    divides = record.kind is ChangeKind.MIG and record.phase is Phase.SWAP
    working = situations.DIVIDING if divides else situations.WORKING[_stage(record)]
    working = situations.REBOOTING if reboots else working
    working = situations.CHANGING_OVER if record.kind.is_in_place else working
    return NodeStatus(name=name, situation=working, since=record.since, reason=reason, record=record, left_s=left_s)


def _remarked(node: NodeStatus, view: NodeView | NodeProblem, seen: Seen) -> NodeStatus:
    """Return a node with what else there is to know of it; few have anything."""
    if isinstance(view, NodeProblem):
        return node
    has_failed = view.record is not None and view.record.phase is Phase.FAILED
    serves = _SERVES if has_failed and not view.is_cordoned else ""
    if not (view.remarks or view.told or serves):
        return node
    more = [each for each in (serves, _left_behind(view, seen)) if each]
    return replace(node, remarks=(*view.remarks, *more))


def _left_behind(view: NodeView, seen: Seen) -> str:
    """Return that conditions tell of an upgrade at which no engine is at work: the one that set them was killed."""
    record = view.record
    is_under_way = record is not None and not record.phase.is_over
    if not view.told or (record is not None and is_under_way and _is_worked_at(view.name, record, seen)):
        return ""
    if record is not None and not is_under_way and _is_at_work(seen):
        return ""  # it is about to say so
    until = "goes on, and corrects it" if is_under_way else "corrects it"
    who = "the controller" if seen.is_led else "the next `grapnel apply`"
    return f"left by an engine that is gone: condition {', '.join(view.told)}; {who} {until}"


def _stage(record: Record) -> Phase:
    """Return the phase to explain: all of the way back is one to people."""
    return Phase.ROLLBACK if record.is_returning and not record.is_called_off else record.phase


def _in_service(name: str, view: NodeView, waits: str, seen: Seen) -> NodeStatus:
    record = view.record
    since = None if record is None else record.since
    if view.is_skipped and view.is_ready and (waits or record is None):
        reason = "; ".join(filter(None, (waits, "it is cordoned" if view.is_cordoned else "")))
        return NodeStatus(name=name, situation=situations.SKIPPED, reason=reason, record=record)
    if waits:
        situation = situations.WAITING if _is_at_work(seen) else situations.NOT_BEGUN
        return NodeStatus(name=name, situation=situation, reason=waits, record=record)
    if not view.is_ready:
        return NodeStatus(name=name, situation=situations.NOT_READY, record=record)
    other = _is_not_declared(name, view, seen)
    if other and (record is None or record.phase is Phase.DONE):
        situation = situations.WAITING if _is_at_work(seen) else situations.NOT_BEGUN
        return NodeStatus(name=name, situation=situation, reason=_told_by_stacks(name, seen) or other, record=record)
    if record is not None and record.phase is Phase.RETURNED and (other or not _is_declared_again(name, record, seen)):
        reason = record.complaint
        if view.is_skipped:
            return NodeStatus(name=name, situation=situations.SKIPPED, since=since, reason=reason, record=record)
        ended = situations.RETURNED if record.is_returning else situations.PUT_BACK
        ended = situations.RETURNED_INTERFACE if record.kind.is_in_place else ended
        return NodeStatus(name=name, situation=ended, since=since, reason=reason, record=record)
    if record is not None and _is_left_bare(record) and not view.driver:
        return NodeStatus(name=name, situation=situations.WITHOUT_DRIVER, since=since, record=record)
    if record is not None:
        left = left_with(record) or (_NO_DRIVER if _is_left_bare(record) else "")
        if view.driver and left not in ("", view.driver):
            reason = f"its last upgrade left it with {left}, and its node daemon reports {view.driver}"
            return NodeStatus(name=name, situation=situations.CHANGED_SINCE, since=since, reason=reason, record=record)
        asked = f"{record.back_for} has asked for the driver before (`grapnel rollback`)" if record.back_for else ""
        return NodeStatus(name=name, situation=situations.DONE, since=since, reason=asked, record=record)
    situation = situations.CORDONED if view.is_cordoned else situations.IDLE
    return NodeStatus(name=name, situation=situation, reason=view.held_by or _perhaps(seen))


def _is_not_declared(name: str, view: NodeView, seen: Seen) -> str:
    """Return that a node has another driver than it is to have, in words; empty where it has, or it is not known.

    The node daemon's word is the later one: a record tells what an upgrade came to, and not what was done since.
    """
    record, declared = view.record, seen.declared.get(name)
    if declared is None or not declared.enabled:
        return ""
    has = view.driver or ("" if record is None else left_with(record))
    is_bare = not has and record is not None and _is_left_bare(record)
    if not is_bare and (not has or is_declared(declared, has)):
        return ""
    return f"it has {_NO_DRIVER if is_bare else f'driver {has}'}, and {wanted_driver(declared)} is declared"


def wanted_driver(declared: Driver) -> str:
    """Return which driver is declared, in words."""
    return declared.version or (f"branch {declared.branch}" if declared.branch else "one")


def _is_left_bare(record: Record) -> bool:
    """Tell whether an upgrade, or a removal that did not get to end its record, has left a node without a driver."""
    return record.kind is ChangeKind.DRIVER and record.phase.is_in_service and not left_with(record)


def left_with(record: Record) -> str:
    """Return the driver with which an upgrade has left a node; empty where it was about something else."""
    if record.kind is not ChangeKind.DRIVER:
        return ""
    return record.origin if record.phase is Phase.RETURNED else record.target


def _is_declared_again(name: str, record: Record, seen: Seen) -> bool:
    """Tell whether a node went back to the driver, or the interface, that it is to have by now: its failure is over."""
    if record.interface is not None:
        plugin = seen.daemons.get(name)
        return plugin is not None and plugin.interface is record.former_interface
    declared = seen.declared.get(name)
    return declared is not None and bool(record.origin) and is_declared(declared, record.origin)


def _told_by_stacks(name: str, seen: Seen) -> str:
    """Return what a controller says that a node waits for."""
    return next((each.message for stack in seen.stacks for each in stack.troubles if each.node == name), "")


def _perhaps(seen: Seen) -> str:
    """Return what a node may wait for that is not named, because too many are to be named."""
    if seen.standing is None or not seen.standing.unnamed:
        return ""
    reason, number = max(seen.standing.unnamed, key=lambda one: one[1])
    return f"unless it is one of {number} nodes that wait and that the engine did not name: {reason}"


def _is_worked_at(name: str, record: Record, seen: Seen) -> bool:
    """Tell whether the engine at work is at this node: the lease may be held for another fleet of the cluster.

    What it publishes is a little behind what it writes on nodes. Before it has published anything it prepares, and
    comes to the nodes that it finds in flight.
    """
    if not _is_at_work(seen):
        return False
    standing = seen.standing
    return standing is None or name in standing.out or record.since >= standing.time

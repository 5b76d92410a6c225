"""Says what the rollout is told of a Node: its record, its state, what people and other tools say of it. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from provision.base.printable import printable
from provision.cluster.errors import RecordError
from provision.cluster.kubernetes.nodes.marks import LOOKED_AT, UPGRADE
from provision.cluster.kubernetes.nodes.others import (
    EVERYTHING,
    Asked,
    is_skipped,
    labels_of,
    opt_out_of,
    pool_of,
    priority_of,
    remarks_of,
    told_of,
    why_held,
)
from provision.cluster.kubernetes.pods.gpu_pods import NO_PODS, NodePods
from provision.cluster.record import decode_record
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import NodeView

if TYPE_CHECKING:
    from provision.cluster.kubernetes.objects.nodes import Node
    from provision.rollout.model import Record

DRIVER_READY: Final = "GPUDriverReady"  # condition: docs/contracts/node-state
ANSWERS: Final = re.compile(r"driver (?P<version>[0-9.]{1,32}) answers")
FRESH: Final = timedelta(minutes=30)  # the daemon repeats itself every 10 to 15 minutes


def view_of(
    name: str, node: Node, where: str, pods: NodePods = NO_PODS, asked: Asked = EVERYTHING
) -> NodeView | NodeProblem:
    """Return what is seen of a Node, or what is wrong with its record; ``where`` is what messages call the cluster."""
    text = node.metadata.annotations.get(UPGRADE)
    try:
        record = None if text is None else decode_record(text)
    except RecordError as error:
        return NodeProblem(
            name=name,
            message=f"annotation {UPGRADE} of node {node.metadata.name} of {where}: {error.message}",
            hint="check the node; when it is in order, remove the annotation: "
            f"`kubectl annotate node {node.metadata.name} {UPGRADE}-`",
        )
    return NodeView(
        name=name,
        record=record,
        is_cordoned=node.spec.unschedulable,
        is_ready=node.is_ready,
        gpu_pods=pods.gpu,
        jobs=pods.jobs,
        labels=labels_of(node, asked.labels),
        held_by=why_held(node, asked.respect),
        is_skipped=is_skipped(node),
        priority=priority_of(node),
        ailment=ailment_of(node),
        opt_out=opt_out_of(node) if asked.opts_out else (),
        remarks=remarks_of(node),
        pool=pool_of(node),
        uid=node.metadata.uid,
        machine_id=node.status.node_info.machine_id,
        told=told_of(node),
        boot=node.status.node_info.boot_id,
        driver=reported_driver(node, record),
    )


def reported_driver(node: Node, record: Record | None) -> str:
    """Return the driver of which the node's daemon says that it answers, empty where it does not say so now.

    What was said before the last change of the node ended, or before it was looked at, is about what was there before;
    and a daemon that may speak to the API no more leaves what it has said. Labels are no evidence: whoever made them
    may be gone for long.
    """
    conditions = {each.type: each for each in node.status.conditions}
    said, ready = conditions.get(DRIVER_READY), conditions.get("Ready")
    answers = None if said is None or said.status != "True" else ANSWERS.fullmatch(said.message)
    when = None if said is None else moment(said.last_heartbeat_time)
    looked = moment(node.metadata.annotations.get(LOOKED_AT))
    if answers is None or when is None or (record is not None and when < record.since):
        return ""
    if looked is not None and when <= looked:  # both by the clock of the node
        return ""
    heard = None if ready is None else moment(ready.last_heartbeat_time)
    return "" if heard is not None and heard - when > FRESH else answers["version"]


def moment(text: str | None) -> datetime | None:
    """Return a time of the API, None for what a node has made up."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


GPUS_HEALTHY: Final = "GPUsHealthy"  # docs/contracts/node-state
_LONGEST: Final = 300


def ailment_of(node: Node) -> str:
    """Return what a Node says is wrong with its GPUs, empty where it says nothing, or does not know."""
    for condition in node.status.conditions:
        if condition.type == GPUS_HEALTHY:
            said = condition.message or condition.reason or "a GPU cannot be used"
            return printable(said, limit=_LONGEST) if condition.status == "False" else ""
    return ""

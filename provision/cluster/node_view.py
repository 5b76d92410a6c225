"""Says what the rollout is told of a Node: its record, its state, what people and other tools say of it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.cluster.ailments import ailment_of
from provision.cluster.errors import RecordError
from provision.cluster.marks import UPGRADE
from provision.cluster.others import (
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
from provision.cluster.pods import NO_PODS, NodePods
from provision.cluster.record import decode_record
from provision.rollout.cluster import NodeProblem
from provision.rollout.model import NodeView

if TYPE_CHECKING:
    from provision.cluster.objects import Node


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
    )

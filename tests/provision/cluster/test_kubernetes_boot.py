"""Which boot a Node was last heard of from."""

from __future__ import annotations

import json

import msgspec

from provision.cluster.kubernetes.nodes.node_view import view_of
from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.kubernetes.watch.mirror import essence
from provision.rollout.model import NodeView

BOOT = "6c5a2a0e-9b63-4c1c-a6c1-0d8b4f0a9d0e"
NODE = json.dumps({"metadata": {"name": "n1"}, "status": {"nodeInfo": {"machineID": "m", "bootID": BOOT}}})


def test_the_boot_is_what_the_kubelet_reports() -> None:
    node = msgspec.json.decode(NODE, type=Node)

    for each in (node, essence(node)):  # what is kept of it, too
        view = view_of("n1", each, "cluster test")
        assert isinstance(view, NodeView)
        assert view.boot == BOOT

"""Nodes as the controller sees them."""

from __future__ import annotations

from msgspec import convert

from provision.cluster.kubernetes.objects.nodes import Node
from provision.controller.nodes import SeenNode
from provision.rollout.model import Phase, Record
from tests.provision.rollout.fakes import NEW, NOON, OLD

FINGERPRINT = "declared.deployed"


def seen(name: str = "n1", **more: object) -> SeenNode:
    given = {"uid": f"uid-{name}", "version": 1, "boot": "b", "kernel": "6.12", "is_ready": True, **more}
    return SeenNode(name=name, **given)  # type: ignore[arg-type]  # fields by name


def record(phase: Phase, **more: object) -> Record:
    given = {"phase": phase, "target": NEW, "origin": OLD, "began": NOON, "since": NOON, "reason": "it broke", **more}
    return Record(**given)  # type: ignore[arg-type]  # fields by name


def node(name: str = "n1", version: int = 1, **annotations: str) -> Node:
    return convert(
        {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "resourceVersion": str(version),
                "annotations": {f"grapnel.dev/{key.replace('_', '-')}": value for key, value in annotations.items()},
            },
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"bootID": "b"}},
        },
        Node,
    )

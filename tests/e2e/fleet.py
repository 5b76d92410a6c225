"""The state of an upgrade, as it is on the nodes and as the API shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.e2e.operator import NEW, OLD
from tests.e2e.waiting import for_each

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.e2e.stage import LabNode, Stage

UPGRADE = "grapnel.dev/upgrade"  # docs/contracts/node-state
PACKAGE = ["dpkg-query", "-W", "-f", "${Version}", "libcuda1"]


@dataclass(frozen=True)
class NodeState:
    """One node: its running software, and the record of its upgrade."""

    module: str
    package: str
    boot: str
    phase: str
    record: str
    is_cordoned: bool


def look(stage: Stage, node: LabNode) -> NodeState:
    """Return how a node is now."""
    seen = stage.api.node(node.name)
    return NodeState(
        module=node.module_version(),
        package=node.node.run(PACKAGE).stdout.partition("-")[0],
        boot=node.boot_id(),
        phase=(seen.metadata.labels or {}).get(UPGRADE, ""),
        record=(seen.metadata.annotations or {}).get(UPGRADE, ""),
        is_cordoned=bool(seen.spec.unschedulable),
    )


def look_at_all(stage: Stage, nodes: Sequence[LabNode]) -> dict[str, NodeState]:
    """Return how every node is now, by name."""
    return {node.name: state for node, state in for_each(nodes, lambda node: look(stage, node)).items()}


def other_version(stage: Stage, nodes: Sequence[LabNode]) -> str:
    """Return the version that the fleet has not; all its nodes have the same."""
    (version,) = {state.module for state in look_at_all(stage, nodes).values()}
    return NEW if version == OLD else OLD


def declare(stage: Stage, nodes: Sequence[LabNode], version: str) -> None:
    """Declare a version, and put its module on the nodes' disks, which is not grapnel's task."""
    assert stage.operator is not None
    for_each(nodes, lambda node: node.node.install_module(version))
    stage.operator.declare(version)

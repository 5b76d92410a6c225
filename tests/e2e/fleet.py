"""The state of an upgrade, as it is on the nodes and as the API shows it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.e2e.operator import NEW, OLD, ONE_AT_A_TIME
from tests.e2e.waiting import for_each

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.e2e.stage import LabNode, Stage

UPGRADE = "grapnel.dev/upgrade"  # docs/contracts/node-state
DRIVER = "var/lib/grapnel/driver"  # docs/contracts/driver-run
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


def declare(stage: Stage, nodes: Sequence[LabNode], version: str, rollout: str = ONE_AT_A_TIME) -> None:
    """Declare a version, and put its module on the nodes' disks, which is not grapnel's task.

    ``rollout`` are the keys of that section.
    """
    assert stage.operator is not None
    for_each(nodes, lambda node: node.node.install_module(version))
    stage.operator.declare(version, rollout)


def driver_step(node: LabNode) -> str:
    """Return the step that the node's swap is at, as the last line of its journal says; "" where there was none."""
    journals = sorted(node.node.root.joinpath(DRIVER, "journal").glob("*.jsonl"))
    lines = journals[-1].read_text().splitlines(keepends=True) if journals else []
    whole = [json.loads(line) for line in lines if line.endswith("\n")]
    return str(whole[-1]["step"]) if whole else ""


def driver_state(node: LabNode) -> str:
    """Return what became of the node's last swap."""
    return str(json.loads(node.node.root.joinpath(DRIVER, "run.json").read_text())["state"])


def staged_at(node: LabNode) -> datetime:
    """Return when the driver that the node runs had been staged."""
    sealed = node.node.root.joinpath(DRIVER, "staged", current_change(node), "complete")
    return datetime.fromtimestamp(sealed.stat().st_mtime, UTC)


def current_change(node: LabNode) -> str:
    """Return the name of the change that the node runs."""
    return node.node.root.joinpath(DRIVER, "current").readlink().name

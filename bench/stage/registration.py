"""Measures how soon the API shows a node's GPUs after the daemon's start, compared with a minimal plugin.

Both wait for the kubelet's next node status update. Their starts are spread over its period: right after the event
with "0" they would all wait for a whole period.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.stage.bare_plugin import RESOURCE as BARE_RESOURCE
from bench.stage.bare_plugin import BarePlugin
from bench.stage.figures import Spread
from lab.cluster import ClusterError, Engine
from lab.cluster.node_files import kubelet_configuration
from lab.cluster.status import RESOURCE

if TYPE_CHECKING:
    from bench.stage.api import Watch
    from lab.nodes import Node

DAEMON = "grapnel-node"
REGISTERED = "msg=registered"
US = 1_000_000


@dataclass(frozen=True)
class Restart:
    """Durations of one start on one node, in seconds."""

    start_to_register: float
    register_to_api: float
    bare_register_to_api: float


def measure(nodes: list[Node], watch: Watch, rounds: int) -> dict[str, list[Restart]]:
    """Return the starts by node; daemon and bare plugin alternate, and so do the nodes."""
    taken: dict[str, list[Restart]] = {node.name: [] for node in nodes}
    for number in range(rounds):
        phase_s = number / rounds * period_s()
        for node in nodes:
            if number % 2:
                bare, daemon = _bare(node, watch, phase_s), _daemon(node, watch, phase_s)
            else:
                daemon, bare = _daemon(node, watch, phase_s), _bare(node, watch, phase_s)
            taken[node.name].append(Restart(*daemon, bare))
    return taken


def period_s() -> float:
    """Return the node status update period of the cluster's kubelets, in seconds."""
    return float(str(kubelet_configuration(Engine.PACKAGED)["nodeStatusUpdateFrequency"]).removesuffix("s"))


def _daemon(node: Node, watch: Watch, phase_s: float) -> tuple[float, float]:
    mark = watch.mark()
    node.run(["systemctl", "stop", DAEMON])
    _wait_for(watch, node.name, RESOURCE, 0, mark)
    time.sleep(phase_s)
    mark = watch.mark()
    node.run(["systemctl", "start", DAEMON])
    offered = _wait_for(watch, node.name, RESOURCE, len(node.gpus), mark)
    shown = node.run(["systemctl", "show", "--value", "--property=ExecMainStartTimestampMonotonic", DAEMON])
    began = int(shown.stdout) / US
    registered = _registered(node, began)
    return registered - began, offered - registered


def _bare(node: Node, watch: Watch, phase_s: float) -> float:
    time.sleep(phase_s)
    plugin, mark = BarePlugin(node.root, len(node.gpus)), watch.mark()
    registered = plugin.start()
    try:
        offered = _wait_for(watch, node.name, BARE_RESOURCE, len(node.gpus), mark)
    finally:
        mark = watch.mark()
        plugin.stop()
    _wait_for(watch, node.name, BARE_RESOURCE, 0, mark)
    return offered - registered


def _wait_for(watch: Watch, node: str, resource: str, count: int, mark: int) -> float:
    """Return when the API first showed that many allocatable devices on a node."""
    return watch.wait(
        f"{node} offers {count} {resource}",
        lambda seen: seen.name == node and seen.body["status"]["allocatable"].get(resource) == str(count),
        mark,
    ).moment


def _registered(node: Node, began: float) -> float:
    """Return when, after ``began``, the daemon logged that the kubelet had accepted it."""
    argv = ["journalctl", "--unit", DAEMON, "--lines", "50", "--output", "json", "--no-pager"]
    for entry in map(json.loads, node.run(argv).stdout.splitlines()):
        moment = int(entry["__MONOTONIC_TIMESTAMP"]) / US
        if moment >= began and REGISTERED in str(entry["MESSAGE"]):
            return moment
    raise ClusterError(f"the journal of {DAEMON} on {node.name} has no line with {REGISTERED!r}")


def show(taken: dict[str, list[Restart]]) -> None:
    """Print the table."""
    rounds = len(next(iter(taken.values())))
    print(f"\nnode daemon started -> its GPUs allocatable in the API: ms, min/med/max of {rounds} starts each")
    print(f"the kubelet updates its node every {period_s():g} s, so half of that is the expected median of the floor")
    print(f"{'':46}" + "".join(f"{name:>21}" for name in taken))
    columns = {
        "unit started -> accepted by the kubelet": "start_to_register",
        "accepted -> allocatable": "register_to_api",
        "floor: a bare plugin accepted -> allocatable": "bare_register_to_api",
    }
    for title, field in columns.items():
        spreads = [Spread.of(getattr(each, field) * 1000 for each in starts) for starts in taken.values()]
        print(f"{title:46}" + "".join(f"{spread.show():>21}" for spread in spreads))

"""Where the tests run: nodes that offer GPUs in a cluster, which is the lab's or a person's own.

In a person's cluster there is only the API: what needs to look into a node, or to break one, is skipped there.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from lab import podresources
from lab.nvml import state as nvml_state
from tests.e2e.api import asks_for_gpus
from tests.e2e.evidence import nodes_in_words, pods_in_words
from tests.e2e.manifests import RESOURCE
from tests.e2e.waiting import TIMEOUT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lab.nodes import Node
    from lab.nvml.machine import Machine
    from lab.podresources import ContainerDevices
    from tests.e2e.api import Api
    from tests.e2e.operator import Operator

DAEMON, KUBELET = "grapnel-node", "kubelet"
ENGINE = "engine"  # whichever it is on a node
# By the engine's unit: where the configuration of a container that runs is.
CONFIGS = {
    "containerd": "run/containerd/io.containerd.runtime.v2.task/k8s.io/{}/config.json",
    "crio": "run/containers/storage/overlay-containers/{}/userdata/config.json",
}


class LabNode:
    """A lab node from the inside: units, files, the kubelet's own allocations, the simulated GPUs."""

    def __init__(self, node: Node, engine: str = "containerd") -> None:
        self.node = node
        self.engine = engine
        self.name = node.name
        self.uuids = tuple(gpu.uuid for gpu in node.gpus)

    def unit(self, verb: str, *units: str) -> None:
        """Start, stop or restart units."""
        self.node.run(["systemctl", verb, *map(self._named, units)])

    def _named(self, unit: str) -> str:
        return self.engine if unit == ENGINE else unit

    def state(self, unit: str) -> str:
        """Return what systemd says of a unit: active, inactive, failed and so on."""
        return self.node.run(["systemctl", "is-active", self._named(unit)], check=False).stdout.strip()

    def started(self, unit: str) -> str:
        """Return when a unit was started last, in microseconds since the boot."""
        argv = ["systemctl", "show", "--property", "ExecMainStartTimestampMonotonic", "--value", self._named(unit)]
        return self.node.run(argv).stdout.strip()

    def module_version(self) -> str:
        """Return the version of the driver's module that is loaded."""
        return self.node.root.joinpath("sys/module/nvidia/version").read_text().strip()

    def boot_id(self) -> str:
        """Return which boot of the node this is."""
        return self.node.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.strip()

    def allocations(self) -> tuple[ContainerDevices, ...]:
        """Return who has which GPUs, as the kubelet says."""
        return podresources.allocated(self.node.root, RESOURCE)

    def given_to(self, namespace: str, pod: str) -> dict[str, frozenset[str]]:
        """Return the GPUs of a pod by container."""
        found = (each for each in self.allocations() if (each.namespace, each.pod) == (namespace, pod))
        return {each.container: each.devices for each in found}

    def known(self) -> frozenset[str] | None:
        """Return the GPUs that the kubelet knows as healthy, None where it does not answer."""
        try:
            return podresources.allocatable(self.node.root, RESOURCE, timeout_s=1)
        except (grpc.RpcError, OSError):
            return None

    def knows_its_devices(self, count: int) -> bool:
        """Whether the kubelet runs and knows this many healthy GPUs: for a while after its start it knows none."""
        known = self.known()
        return known is not None and len(known) == count

    def registrations(self) -> int:
        """Return how often a kubelet has taken the daemon's registration since the boot."""
        argv = ["journalctl", "--unit", DAEMON, "--boot", "--no-pager", "--output", "cat"]
        return self.node.run(argv).stdout.count("msg=registered resource=")

    def claim_registrations(self) -> int:
        """Return how often a kubelet has taken the daemon as a driver of claims since the boot."""
        argv = ["journalctl", "--unit", DAEMON, "--boot", "--no-pager", "--output", "cat"]
        return self.node.run(argv).stdout.count("msg=registered driver=")

    def pid(self, unit: str) -> int:
        """Return the main process of a unit as this machine numbers it."""
        argv = ["systemctl", "show", "--property", "MainPID", "--value", self._named(unit)]
        inside = self.node.run(argv).stdout.strip()
        return next(pid for pid in self.node.machine.group.pids() if _number_inside(pid) == inside)

    def container_config(self, container_id: str) -> dict[str, Any]:
        """Return what the engine gave runc for a container that runs."""
        text = self.node.root.joinpath(CONFIGS[self.engine].format(container_id)).read_text()
        found: dict[str, Any] = json.loads(text)
        return found

    def gpu_paths(self) -> dict[str, str]:
        """Return the device nodes of the node's GPUs by UUID."""
        return {gpu.uuid: f"/dev/nvidia{gpu.minor_number}" for gpu in self.node.gpus}

    def device_numbers(self) -> dict[str, tuple[int, int]]:
        """Return major and minor number of every node of the driver by path."""
        found = ((path.name, path.stat().st_rdev) for path in self.node.root.joinpath("dev").glob("nvidia*"))
        return {f"/dev/{name}": (os.major(device), os.minor(device)) for name, device in found}

    def hook_lines(self) -> dict[str, dict[str, str]]:
        """Return what the hook said of each container, as the fields of its last line, by container id."""
        argv = ["journalctl", "--identifier", "grapnel-hook", "--output", "json", "--no-pager"]
        lines = (json.loads(line) for line in self.node.run(argv).stdout.splitlines())
        return {line["GRAPNEL_CONTAINER"]: line for line in lines if "GRAPNEL_CONTAINER" in line}

    def change_gpus(self, change: Callable[[Machine], Machine]) -> None:
        """Change the simulated machine while processes use it."""
        nvml_state.update(self.node.nvml_library, change)

    def grapnel_node(self, *arguments: str) -> str:
        """Run the daemon's command line; return its output."""
        return self.node.run(["/usr/lib/grapnel/node/grapnel-node", *arguments]).stdout

    @contextmanager
    def configured(self, **keys: object) -> Iterator[None]:
        """Give the daemon other settings for a while."""
        path = self.node.root / "etc/grapnel/node.json"
        before = path.read_text()
        path.write_text(json.dumps({**json.loads(before), **keys}))
        self.unit("reload", DAEMON)
        try:
            yield
        finally:
            path.write_text(before)
            self.unit("reload", DAEMON)

    def judge(self, *verdict: str) -> str:
        """Say what a person thinks of a GPU: `grapnel-node health ...`."""
        return self.grapnel_node("health", *verdict)

    def journal(self, unit: str, lines: int) -> str:
        """Return the end of a unit's journal."""
        argv = ["journalctl", "--unit", unit, "--lines", str(lines), "--no-pager", "--output", "short-monotonic"]
        return self.node.run(argv, check=False).stdout


def _number_inside(pid: int) -> str:
    """Return a process's number on its node: the second one from this machine inwards, "" where it has gone."""
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(" ".join(line.split()[2:3]) for line in lines if line.startswith("NSpid:"))
    return ""


@dataclass(frozen=True)
class GpuNode:
    """A node that offers GPUs; ``engine`` as the kubelet names it, ``lab`` where it may be looked into."""

    name: str
    engine: str
    lab: LabNode | None = None


@dataclass(frozen=True)
class Stage:
    """The cluster of this session; ``operator`` is who may change the lab's nodes."""

    api: Api
    nodes: tuple[GpuNode, ...]
    operator: Operator | None = None

    @property
    def lab_nodes(self) -> tuple[LabNode, ...]:
        """The nodes that may be looked into and broken."""
        return tuple(node.lab for node in self.nodes if node.lab is not None)

    def wait_for_gpus(self, node: str, count: int, *, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until a node offers exactly this many GPUs."""
        wait_for(
            f"{node} offers {count} GPUs",
            lambda: self.api.allocatable(node) == count,
            timeout_s=timeout_s,
            evidence=lambda: self.evidence(node),
        )

    def wait_until_settled(self, node: LabNode) -> None:
        """Wait until the kubelet has its GPUs and its pods together again, after something was restarted.

        A kubelet that has just started offers the devices of the plugin before it has heard of its pods. Whoever comes
        in that moment is refused: it still counts the devices of pods that have gone meanwhile.
        """
        wait_for(
            f"the kubelet of {node.name} knows its GPUs",
            lambda: node.knows_its_devices(len(node.uuids)),
            evidence=lambda: self.evidence(node.name),
        )
        wait_for(
            f"the kubelet of {node.name} knows who has GPUs",
            lambda: self.holders(node.name) <= {(each.namespace, each.pod) for each in node.allocations()},
            evidence=lambda: self.evidence(node.name),
        )
        self.wait_for_gpus(node.name, len(node.uuids))

    def wait_until_booted(self, node: LabNode) -> None:
        """Wait until the API says that the node is ready since its last boot."""

        def is_ready() -> bool:
            status = self.api.node(node.name).status
            ready = any(each.type == "Ready" and each.status == "True" for each in status.conditions)
            return ready and bool(status.node_info.boot_id == node.boot_id())

        wait_for(f"{node.name} is ready again", is_ready, evidence=lambda: self.evidence(node.name))

    def holders(self, node: str) -> set[tuple[str, str]]:
        """Return the pods with GPUs that run on a node as the API knows them, as (namespace, name)."""
        return {(pod.metadata.namespace, pod.metadata.name) for pod in self.api.running_on(node) if asks_for_gpus(pod)}

    def evidence(self, *nodes: str, namespace: str = "") -> str:
        """Return what helps to see why something did not happen."""
        chosen = [node for node in self.nodes if not nodes or node.name in nodes]
        return "\n".join([*pods_in_words(self.api, namespace), *nodes_in_words(self.api, chosen)])


def find_gpu_nodes(api: Api, inside: Mapping[str, LabNode], at_most: int) -> tuple[GpuNode, ...]:
    """Return nodes that are ready for GPU pods, by name."""
    found = []
    for node in api.nodes():
        name, offers = node.metadata.name, int((node.status.allocatable or {}).get(RESOURCE, 0))
        if offers and not node.spec.unschedulable:
            found.append(GpuNode(name, node.status.node_info.container_runtime_version, inside.get(name)))
    return tuple(sorted(found, key=lambda each: each.name)[:at_most])

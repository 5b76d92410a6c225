"""Defines the parts of Nodes that are read, as values."""

from __future__ import annotations

from provision.cluster.kubernetes.objects.core import ApiObject, Condition, Metadata


class Taint(ApiObject, frozen=True, kw_only=True, omit_defaults=True):
    """What keeps pods off a node; all of it is written back for the taints of others."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class NodeSpec(ApiObject, frozen=True, kw_only=True):
    """``unschedulable`` is what `kubectl cordon` sets."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeAddress(ApiObject, frozen=True, kw_only=True):
    """``type`` is "InternalIP", "ExternalIP", "Hostname" or a DNS name's."""

    type: str
    address: str


class NodeInfo(
    ApiObject,
    frozen=True,
    kw_only=True,
    rename={
        "machine_id": "machineID",
        "boot_id": "bootID",
        "kernel_version": "kernelVersion",
        "kubelet_version": "kubeletVersion",
        "container_runtime_version": "containerRuntimeVersion",
    },
):
    """``machine_id`` is what the kubelet read from ``/etc/machine-id``, ``boot_id`` the boot in which it began.

    ``container_runtime_version`` is such as "containerd://1.7.27".
    """

    machine_id: str = ""
    boot_id: str = ""
    kernel_version: str = ""
    kubelet_version: str = ""
    container_runtime_version: str = ""


class NodeStatus(ApiObject, frozen=True, kw_only=True):
    """What the kubelet says of its node; it is not compared with anything.

    ``capacity`` is what there is of each resource, ``allocatable`` what pods can be given of it.
    """

    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    node_info: NodeInfo = NodeInfo()


class Node(ApiObject, frozen=True, kw_only=True):
    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        """Whether its kubelet says so, and has been heard of lately."""
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)

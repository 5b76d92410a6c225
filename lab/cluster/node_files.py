"""Adds what a Kubernetes distribution brings to a node: engine, pod network, kubelet and their configuration.

Only that: the runtime handler, the hook, the node daemon and the driver packages come from grapnel.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import golang, images
from lab.cluster.certificates import SERVICE_ADDRESS
from lab.cluster.spec import Engine
from lab.kmod import KmodFiles
from lab.nodes import NodeSpec
from lab.nodes.network import FIRST_NODE
from lab.trees import find_suite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lab.cluster.control_plane import ControlPlane
    from lab.cluster.spec import ClusterNode
    from lab.nodes.layer import Layer

FILES = Path(__file__).with_name("files")
CONTAINERD_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr")
BUILD_PACKAGES = ("dkms", "gcc", "make")  # for the kernel module of a driver that is declared later
POD_PACKAGES = ("containernetworking-plugins",)
RUNTIME_PACKAGES: tuple[str, ...] = ("runc", *POD_PACKAGES)
CONTAINERD_PACKAGES = ("containerd", *RUNTIME_PACKAGES)
CRIO_PROGRAMS = ("crio", "pinns")
CRIO_PACKAGES = ("conmon", "skopeo", *RUNTIME_PACKAGES)
POD_NETWORK = "10.178"
KUBELET_UNITS = ("kubelet.service", "lab-images.service", "lab-service.service")
WANTS = "/etc/systemd/system/multi-user.target.wants"
CONTAINERD_SOCKET = "unix:///run/containerd/containerd.sock"
CRIO_SOCKET = "unix:///var/run/crio/crio.sock"
# Engines with their own files: their folder below `FILES`, and the unit to start.
ADDED = {Engine.CONTAINERD_2: ("containerd-2", "containerd.service"), Engine.CRIO: ("crio", "crio.service")}


def plan_node(node: ClusterNode, say: Callable[[str], None]) -> NodeSpec:
    """Return the lab node: engine packages installed, programs and images bind-mounted.

    A ``system`` has neither: what an engine needs of elsewhere, and for CRI-O, which loads no archive, what does.
    Programs that are not in the cache are built, with progress reported to ``say``.
    """
    programs = [golang.kubernetes(say=say) / "kubelet"]
    packages: tuple[str, ...] = CONTAINERD_PACKAGES
    if node.engine is Engine.CONTAINERD_2:
        built = golang.containerd(say=say)
        programs += [built / name for name in CONTAINERD_PROGRAMS]
        packages = RUNTIME_PACKAGES
    elif node.engine is Engine.CRIO:
        programs += crio_programs(say)
        packages = CRIO_PACKAGES
    if node.system:
        packages = CRIO_PACKAGES if node.engine is Engine.CRIO else POD_PACKAGES
        programs = programs[:1]
    archives = [(str(images.archive(name)), f"/srv/images/{name}.tar") for name in images.NAMES]
    return NodeSpec(
        node.name,
        suite=node.suite,
        gpus=node.gpus,
        driver_module="" if node.system else node.driver_module,
        packages=packages if node.system else (*packages, *BUILD_PACKAGES),
        system=node.system,
        binds=(*((str(path.resolve()), f"/usr/local/bin/{path.name}") for path in programs), *archives),
    )


def crio_programs(say: Callable[[str], None]) -> list[Path]:
    """Return CRI-O's programs on this machine, built now if the cache has none."""
    built = golang.crio(say=say)
    return [built / name for name in CRIO_PROGRAMS]


def plan_crio(name: str, *, gpus: int, driver_module: str) -> NodeSpec:
    """Return a lab node that has CRI-O and no kubelet. Raises ``GolangError``."""
    return NodeSpec(
        name,
        gpus=gpus,
        driver_module=driver_module,
        packages=CRIO_PACKAGES,
        binds=tuple((str(path.resolve()), f"/usr/local/bin/{path.name}") for path in crio_programs(lambda _: None)),
    )


def furnish_crio(layer: Layer, address: str) -> None:
    """Write the files of a new node with CRI-O and no kubelet."""
    _furnish_engine(layer, Engine.CRIO, address)


def furnish(control_plane: ControlPlane, node_count: int, node: ClusterNode, layer: Layer, address: str) -> None:
    """Write the files of a new node."""
    layer.copy_tree("/", FILES / "node")
    if node.system:
        _furnish_site(layer, node.engine, address)
    else:
        KmodFiles(layer, find_suite(node.suite).kernel_release).install_headers()
        for unit in KUBELET_UNITS:
            layer.link(f"{WANTS}/{unit}", f"../{unit}")
        _furnish_engine(layer, node.engine, address)
    certificates = control_plane.certificates
    client = certificates.prepare_node(node.name)
    layer.write("/etc/kubernetes/kubelet.kubeconfig", control_plane.render_kubeconfig(client), 0o600)
    layer.copy("/etc/kubernetes/ca.crt", certificates.certificate("ca"))
    layer.write("/etc/kubernetes/kubelet.yaml", json.dumps(kubelet_configuration(node.engine), indent=2) + "\n")
    flags = f"--hostname-override={node.name} --node-ip={address}"
    layer.write("/etc/kubernetes/kubelet.env", f'KUBELET_FLAGS="{flags}"\n')
    service = f"SERVICE_ADDRESS={SERVICE_ADDRESS}\nAPI_SERVER={control_plane.address}:{control_plane.port}\n"
    layer.write("/etc/kubernetes/api-server.env", service)
    others = range(FIRST_NODE, FIRST_NODE + node_count)
    layer.write("/etc/systemd/network/10-host0.network.d/pods.conf", render_routes(address, others))


def _furnish_engine(layer: Layer, engine: Engine, address: str) -> None:
    """Write what an engine needs beside its packages: its own files if it is no package, and the pod network."""
    if engine in ADDED:
        folder, unit = ADDED[engine]
        layer.copy_tree("/", FILES / folder)
        layer.link(f"{WANTS}/{unit}", f"/usr/local/lib/systemd/system/{unit}")
    _write_pod_network(layer, address)


def _furnish_site(layer: Layer, engine: Engine, address: str) -> None:
    """Write what the site's administrator has for an engine that is not there yet: no main file, and no policy."""
    if engine is Engine.CRIO:
        layer.copy_tree("/", FILES / "crio", without=("usr/local", "etc/crio/policy.json"))
    else:
        layer.copy("/etc/containerd/conf.d/10-site.toml", FILES / "containerd-2/etc/containerd/config.toml")
    _write_pod_network(layer, address)


def _write_pod_network(layer: Layer, address: str) -> None:
    layer.write("/etc/cni/net.d/10-lab.conflist", json.dumps(pod_network(address), indent=2) + "\n")


def kubelet_configuration(engine: Engine) -> dict[str, Any]:
    """Return the kubelet's configuration: quick to report, and ignoring disk pressure of this machine."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": CRIO_SOCKET if engine is Engine.CRIO else CONTAINERD_SOCKET,
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": "/etc/kubernetes/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        # There is no such server; without an address every pod gets a warning event.
        "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local",
        "nodeStatusUpdateFrequency": "1s",
        # It checks every second but writes only changes; the lease shows that the node is alive.
        "nodeStatusReportFrequency": "5m",
        "nodeLeaseDurationSeconds": 20,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        },
        "enforceNodeAllocatable": ["pods"],
    }


def pod_subnet(address: str) -> str:
    """Return a node's pod network: its third octet is the node's last one."""
    return f"{POD_NETWORK}.{address.rpartition('.')[2]}.0/24"


def pod_network(address: str) -> dict[str, Any]:
    """Return the CNI configuration: a bridge on the node, with masquerading beyond it."""
    addresses = {"type": "host-local", "ranges": [[{"subnet": pod_subnet(address)}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "ipam": addresses}
    return {
        "cniVersion": "0.4.0",
        "name": "lab",
        "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}],
    }


def render_routes(address: str, octets: Sequence[int]) -> str:
    """Return networkd's routes to the pods of the other nodes, whichever of ``octets`` they get."""
    network = address.rpartition(".")[0]
    others = [f"{network}.{octet}" for octet in octets if f"{network}.{octet}" != address]
    return "".join(f"[Route]\nDestination={pod_subnet(other)}\nGateway={other}\n" for other in others)

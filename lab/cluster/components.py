"""Builds the command lines of the control plane; pure.

etcd and its peer side listen on sockets in the control plane's own folder, controller manager and scheduler serve
nothing: the API server's port is the only one, so several clusters cannot interfere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.cluster import certificates as names
from lab.cluster.errors import ClusterError
from lab.golang.programs import KUBERNETES_VERSION

if TYPE_CHECKING:
    from pathlib import Path

    from lab.cluster.certificates import Certificates

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
SERVICE_NETWORK = "10.96.0.0/16"
# Relative to the working folder, because socket paths must be short; etcd insists on the form host:port.
ETCD_CLIENTS = "unix://etcd:1"
ETCD_PEERS = "unix://etcd-peer:1"
# A node that stops answering is NotReady after this time; kubelets renew their leases every quarter of theirs.
NODE_GRACE_S = 20
# What places groups of pods whole or not at all, by the first Kubernetes that has it so, newest first; the last gate
# makes a group of an Indexed Job whose pods all run at once. A gate that is not known keeps a process from starting.
GANGS = {
    (1, 37): ("scheduling.k8s.io/v1beta1", ("GenericWorkload", "WorkloadWithJob")),
    (1, 36): ("scheduling.k8s.io/v1alpha2", ("GenericWorkload", "GangScheduling", "WorkloadWithJob")),
}


@dataclass(frozen=True)
class Component:
    """One process of the control plane; with ``needs_api`` it is started once the API server's port is open."""

    name: str
    argv: tuple[str, ...]
    needs_api: bool = False


@dataclass(frozen=True)
class Layout:
    """Location of a control plane: its folder, its programs, the address and port of its API server.

    A node of which nothing is heard for ``node_grace_s`` is NotReady. ``scheduler_config`` is a file for the scheduler.
    ``has_gangs``: PodGroups are served and scheduled, as by the release ``kubernetes``.
    """

    folder: Path
    programs: Path
    address: str
    port: int
    certificates: Certificates
    node_grace_s: int = NODE_GRACE_S
    scheduler_config: Path | None = None
    has_gangs: bool = False
    kubernetes: str = KUBERNETES_VERSION

    @property
    def server(self) -> str:
        """The API server's address as clients write it."""
        return f"https://{self.address}:{self.port}"

    def kubeconfig(self, client: str) -> Path:
        """Return the path of a client's kubeconfig."""
        return self.folder / f"{client}.kubeconfig"


def gangs_of(kubernetes: str) -> tuple[str, tuple[str, ...]]:
    """Return the version of the API that a release has for groups of pods, and the gates that it takes."""
    release = tuple(map(int, kubernetes.split(".")[:2]))
    found = next((gangs for first, gangs in GANGS.items() if release >= first), None)
    if found is None:
        raise ClusterError(f"Kubernetes {kubernetes} has no groups of pods", hint="PodGroups came with 1.36")
    return found


def plan_components(layout: Layout) -> tuple[Component, ...]:
    """Return the processes in the order in which they are started."""
    return (
        Component(ETCD, _argv(layout, ETCD, _etcd(layout))),
        Component(API_SERVER, _argv(layout, API_SERVER, _api_server(layout))),
        Component(CONTROLLER_MANAGER, _argv(layout, CONTROLLER_MANAGER, _controller_manager(layout)), needs_api=True),
        Component(SCHEDULER, _argv(layout, SCHEDULER, _scheduler(layout)), needs_api=True),
    )


def _argv(layout: Layout, program: str, flags: dict[str, object]) -> tuple[str, ...]:
    if layout.has_gangs and program != ETCD:
        flags = {**flags, "feature-gates": ",".join(f"{gate}=true" for gate in gangs_of(layout.kubernetes)[1])}
    return (str(layout.programs / program), *(f"--{flag}={value}" for flag, value in flags.items()))


def _etcd(layout: Layout) -> dict[str, object]:
    return {
        "name": "lab",
        "data-dir": layout.folder / "etcd",
        "listen-client-urls": ETCD_CLIENTS,
        "advertise-client-urls": ETCD_CLIENTS,
        "listen-peer-urls": ETCD_PEERS,
        "initial-advertise-peer-urls": ETCD_PEERS,
        "initial-cluster": f"lab={ETCD_PEERS}",
        # Written data survives the process; only a power cut of this machine could lose it.
        "unsafe-no-fsync": "true",
        "log-level": "warn",
    }


def _api_server(layout: Layout) -> dict[str, object]:
    made = layout.certificates
    return {
        "etcd-servers": ETCD_CLIENTS,
        "bind-address": layout.address,
        "advertise-address": layout.address,
        # Nothing routes the service network here, and a loopback address may not be an endpoint.
        "endpoint-reconciler-type": "none",
        "secure-port": layout.port,
        "client-ca-file": made.certificate("ca"),
        "tls-cert-file": made.certificate(names.API_SERVER),
        "tls-private-key-file": made.key(names.API_SERVER),
        "kubelet-client-certificate": made.certificate(names.API_SERVER_TO_KUBELET),
        "kubelet-client-key": made.key(names.API_SERVER_TO_KUBELET),
        "kubelet-preferred-address-types": "InternalIP",  # node names are not in any DNS
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": made.service_accounts,
        "service-account-signing-key-file": made.key("service-accounts"),
        "service-cluster-ip-range": SERVICE_NETWORK,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": "true",
        **({"runtime-config": f"{gangs_of(layout.kubernetes)[0]}=true"} if layout.has_gangs else {}),
    }


def _controller_manager(layout: Layout) -> dict[str, object]:
    made = layout.certificates
    return {
        **_client(layout, names.CONTROLLER_MANAGER),
        "service-account-private-key-file": made.key("service-accounts"),
        "root-ca-file": made.certificate("ca"),
        "cluster-signing-cert-file": made.certificate("ca"),
        "cluster-signing-key-file": made.key("ca"),
        "use-service-account-credentials": "true",
        # With the default of 20 requests a second the controllers take four seconds longer to start.
        "kube-api-qps": 500,
        "kube-api-burst": 1000,
        "node-monitor-grace-period": f"{layout.node_grace_s}s",
    }


def _scheduler(layout: Layout) -> dict[str, object]:
    flags = _client(layout, names.SCHEDULER)
    if layout.scheduler_config is None:
        return flags
    # With a file, kube-scheduler takes these two from there.
    rest = {flag: value for flag, value in flags.items() if flag not in {"kubeconfig", "leader-elect"}}
    return {"config": layout.scheduler_config} | rest


def _client(layout: Layout, client: str) -> dict[str, object]:
    config = layout.kubeconfig(client)
    return {
        "kubeconfig": config,
        "authentication-kubeconfig": config,
        "authorization-kubeconfig": config,
        "leader-elect": "false",
        "secure-port": 0,
    }

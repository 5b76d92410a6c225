"""Lists the container engines. A new one has a row here, in the declaration's `Engine`, and on the node's side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Engine
from provision.planning.engines import crio, docker, podman
from provision.planning.engines.containerd import engine as containerd
from provision.planning.engines.kubernetes import k0s, microk8s, rancher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.engines.model import KnownEngine, NodeEngine

ENGINES: Final[Mapping[Engine, KnownEngine]] = {
    Engine.CONTAINERD: containerd.CONTAINERD,
    Engine.CRIO: crio.CRIO,
    Engine.DOCKER: docker.DOCKER,
    Engine.PODMAN: podman.PODMAN,
    Engine.K3S: rancher.K3S,
    Engine.RKE2: rancher.RKE2,
    Engine.K0S: k0s.K0S,
    Engine.MICROK8S: microk8s.MICROK8S,
}
FOLDERS: Final = tuple(each.folder for each in ENGINES.values() if each.folder)


def find_engine(facts: NodeFacts, engine: Engine) -> NodeEngine:
    """Return how an engine is configured on a node."""
    return ENGINES[engine].on_node(facts)

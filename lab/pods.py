"""Creates pods on a lab node through the engine's CRI socket, as a kubelet does."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab import images
from lab.cri import ContainerSpec, Cri, container_config, container_config_from_allocation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lab.cri import Finished
    from lab.kubelet import Assignment
    from lab.nodes import Node

CONTAINERD, CRIO = "containerd", "crio"
SOCKETS = {CONTAINERD: Path("run/containerd/containerd.sock"), CRIO: Path("run/crio/crio.sock")}
LOG_DIR = Path("/var/log/pods")
TRANSFER = "/var/lib/containerd/import.tar"  # on disk: overlayfs on overlayfs is refused elsewhere
IMPORTS = {
    CONTAINERD: ["ctr", "--namespace", "k8s.io", "images", "import", TRANSFER],
    CRIO: ["skopeo", "--policy", "/etc/crio/policy.json", "copy", "--quiet", f"oci-archive:{TRANSFER}"],
}


@dataclass(frozen=True)
class Pods:
    """Runs pods on one node; ``images`` must have been loaded once (``load_images``)."""

    node: Node
    cri: Cri
    engine: str = CONTAINERD

    def load_images(self, names: Sequence[str] = images.NAMES) -> None:
        """Import the lab's images into the node's engine. CRI-O cannot load an archive: its storage is written to."""
        for name in names:
            transfer = self.node.root / TRANSFER.lstrip("/")
            shutil.copyfile(images.archive(name), transfer)
            target = [f"containers-storage:{images.reference(name)}"] if self.engine == CRIO else []
            self.node.run([*IMPORTS[self.engine], *target])
            transfer.unlink()

    def run(self, spec: ContainerSpec, *, handler: str = "nvidia", assignment: Assignment | None = None) -> Finished:
        """Run one container in its own pod to its end, with its allocation added as by the kubelet."""
        pod = self.cri.run_pod(f"{spec.name}-pod", handler=handler, privileged=spec.privileged)
        try:
            config = (
                container_config_from_allocation(assignment.response, spec) if assignment else container_config(spec)
            )
            return self.cri.run_config(pod, config)
        finally:
            self.cri.remove_pod(pod)

    @contextmanager
    def staying(self, spec: ContainerSpec, *, assignment: Assignment) -> Iterator[str]:
        """Start a container with an allocation in its own pod, and remove it afterwards; yields its name."""
        pod = self.cri.run_pod(f"{spec.name}-pod", handler="nvidia", privileged=spec.privileged)
        try:
            yield self.cri.start(pod, container_config_from_allocation(assignment.response, spec))
        finally:
            self.cri.remove_pod(pod)


@contextmanager
def pods_on(node: Node, engine: str = CONTAINERD) -> Iterator[Pods]:
    """Return a client of a running node's engine."""
    with Cri(node.root / SOCKETS[engine], log_dir=LOG_DIR, engine_root=node.root) as cri:
        yield Pods(node, cri, engine)

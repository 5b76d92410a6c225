"""Installs grapnel's controller in a cluster: the image onto its nodes, the chart, and a GpuStack of them.

The commands are those of docs/getting-started.md. What brings an image to nodes here is what tests have, too.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from lab import golang
from lab.cluster.errors import ClusterError
from lab.cluster.spec import Engine
from lab.machine.command import run

if TYPE_CHECKING:
    from lab.cluster.cluster import Cluster
    from lab.nodes import Node

CHECKOUT = Path(__file__).parents[2]
CHART = CHECKOUT / "deploy" / "chart" / "grapnel"
IMAGE = CHECKOUT / "dist" / "image" / "grapnel.tar"  # as `make image` leaves it
NAMESPACE = "grapnel-system"
POOL = "node.example.com/pool"
INSTALL_S, APPLY_S, MARGIN_S = 300, 1200, 60
SKOPEO = ("skopeo", "--policy", "/etc/crio/policy.json")  # CRI-O cannot load an archive: its storage is written to


def reference_of(archive: Path) -> str:
    """Return the full name of the image in an OCI archive, such as ``docker.io/local/grapnel:0.1.0``."""
    with tarfile.open(archive) as packed:
        file = packed.extractfile("index.json")
        index = json.loads(file.read()) if file is not None else {}
    return str(index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"])


def load_image(node: Node, archive: Path, reference: str, *, is_crio: bool) -> None:
    """Import an image into the engine of a node that runs."""
    place = node.root / "srv" / "grapnel.tar"
    shutil.copy(archive, place)
    target = f"containers-storage:{reference}"
    import_crio = [*SKOPEO, "copy", "--quiet", "oci-archive:/srv/grapnel.tar", target]
    try:
        node.run(import_crio if is_crio else ["ctr", "-n", "k8s.io", "images", "import", "/srv/grapnel.tar"])
    finally:
        place.unlink()


def pool(cluster: Cluster) -> tuple[str, ...]:
    """Return the nodes that a stack can have: those with the engine that a declaration has by default."""
    return tuple(node.name for node in cluster.spec.nodes if node.engine is not Engine.CRIO)


def install(cluster: Cluster, archive: Path, nodes: tuple[str, ...]) -> None:
    """Install the chart with an image, and give nodes the label of the pool. Raises ``LabError``."""
    if not archive.is_file():
        raise ClusterError(f"there is no image {archive}", hint="make image")
    reference = reference_of(archive)
    on_crio = {node.name for node in cluster.spec.nodes if node.engine is Engine.CRIO}
    with ThreadPoolExecutor() as workers:
        for done in [
            workers.submit(load_image, node, archive, reference, is_crio=node.name in on_crio)
            for node in cluster.site.nodes()
        ]:
            done.result()
    repository, _, tag = reference.rpartition(":")
    values = f"image.repository={repository},image.tag={tag}"
    _helm(cluster, "upgrade", "--install", "grapnel", str(CHART), "--create-namespace", "--set", values)
    cluster.kubectl(["wait", "--for=condition=Established", "--timeout=60s", "crd/gpustacks.grapnel.dev"])
    cluster.kubectl(["label", "nodes", *nodes, f"{POOL}=gpu", "--overwrite"])


def uninstall(cluster: Cluster) -> None:
    """Take the chart away, where it is installed, with its namespace. Raises ``LabError``."""
    _helm(cluster, "uninstall", "grapnel", "--ignore-not-found")
    cluster.kubectl(["delete", "namespace", NAMESPACE, "--ignore-not-found"])


def apply_stack(cluster: Cluster, file: Path) -> None:
    """Apply a GpuStack, and wait until its nodes are as declared. Raises ``LabError`` with how it stands otherwise."""
    stack = cluster.kubectl(["apply", "-f", str(file), "-o", "name"]).strip()
    kubectl = [str(cluster.control_plane.programs / "kubectl"), f"--kubeconfig={cluster.kubeconfig}"]
    wait = [*kubectl, "wait", "--for=condition=AsDeclared", stack, f"--timeout={APPLY_S}s"]
    if run(wait, timeout_s=APPLY_S + MARGIN_S, check=False).returncode:
        status = cluster.kubectl(["get", stack, "-o", "jsonpath={.status}"])
        raise ClusterError(f"{stack} is not as declared after {APPLY_S} s", hint=status)


def _helm(cluster: Cluster, *arguments: str) -> None:
    command = [str(golang.helm() / "helm"), *arguments, "--namespace", NAMESPACE, "--wait"]
    run(command, timeout_s=INSTALL_S, env={"KUBECONFIG": str(cluster.kubeconfig)})

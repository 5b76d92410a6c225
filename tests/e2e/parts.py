"""Parts of GPUs: a node's daemon is told to offer some for a while, and pods ask for them."""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import grpc
from kubernetes.utils.quantity import parse_quantity

from lab import podresources
from tests.e2e.manifests import RESOURCE, SHELL, STAY, Manifest, container, pod
from tests.e2e.stage import DAEMON
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.e2e.stage import LabNode, Stage

WHOLE, SHARED, MEMORY = RESOURCE, "nvidia.com/gpu.shared", "aliyun.com/gpu-mem"


def sharing(way: str, replicas: int, *devices: str) -> dict[str, Any]:
    """Return NVIDIA's file that shares GPUs, by index or UUID, under a name of their own."""
    shares = {
        "renameByDefault": True,
        "resources": [{"name": "gpu", "devices": list(devices), "replicas": replicas}],
    }
    return {"version": "v1", "sharing": {way: shares}}


def asks(
    name: str, node: LabNode | None, resource: str, count: int = 1, *, script: str = STAY, image: str = SHELL
) -> Manifest:
    """Return a pod that asks for some of a resource; without a node the scheduler chooses."""
    one = container("main", script, image=image)
    one["resources"] = {"limits": {resource: str(count)}}
    return pod(name, one, node=node.name if node is not None else "")


@contextmanager
def settings(
    node: LabNode, file: Mapping[str, Any] | None = None, *, classes: Mapping[str, str] | None = None, **keys: object
) -> Iterator[None]:
    """Have a node's daemon run with NVIDIA's file, device classes by name, and further keys of node.json.

    All is as before afterwards.
    """
    folder = node.node.root / "etc/grapnel"
    own = folder / "node.json"
    before = own.read_text()
    added = {folder / f"devices.d/{name}.json": text for name, text in (classes or {}).items()}
    if file is not None:
        added[folder / "nvidia.yaml"] = json.dumps(file)
    for path, text in {**added, own: json.dumps({**json.loads(before), **keys})}.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    node.unit("reload", DAEMON)
    try:
        yield
    finally:
        for path in added:
            path.unlink()
        own.write_text(before)
        node.unit("reload", DAEMON)


def wait_offered(stage: Stage, node: LabNode, **counts: int) -> None:
    """Wait until a node offers so many: `whole`, `shared`, `memory`."""
    wait_allocatable(
        stage,
        node,
        {{"whole": WHOLE, "shared": SHARED, "memory": MEMORY}[kind]: count for kind, count in counts.items()},
    )


def wait_allocatable(stage: Stage, node: LabNode, counts: Mapping[str, int]) -> None:
    """Wait until a node offers so many of each resource, by the API and by its kubelet.

    The API lags behind: a pod that comes while the kubelet knows of no healthy device is refused for good.
    """

    def is_offered() -> bool:
        found = stage.api.node(node.name).status.allocatable
        return all(parse_quantity(found.get(resource, 0)) == count for resource, count in counts.items()) and is_known()

    def is_known() -> bool:
        with suppress(grpc.RpcError, OSError):
            known = {resource: podresources.allocatable(node.node.root, resource, timeout_s=1) for resource in counts}
            return all(len(known[resource]) == count for resource, count in counts.items())
        return False

    wait_for(f"{node.name} offers {counts}", is_offered, evidence=lambda: stage.evidence(node.name))

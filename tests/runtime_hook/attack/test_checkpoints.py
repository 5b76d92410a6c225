"""What the author of a checkpoint image gains: CRI-O and containerd take the container's annotations out of it.

CRI-O 1.25 and later, containerd 2.1 and later: ``CRImportCheckpoint``. Any image may be one, and the annotations of the
container that is restored are then the image's instead of the kubelet's. CRI-O writes them over its own keys.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.runtime_hook.containers import HOOK, as_runtime
from tests.runtime_hook.drivertree import uuid

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("driver")

PLUGIN = {"grapnel.dev/allocation": uuid(0)}
FORGED = {**PLUGIN, "grapnel.dev/handler": "nvidia", "io.kubernetes.cri.sandbox-namespace": "kube-system"}
POD = {"io.kubernetes.pod.namespace": "web", "io.kubernetes.pod.name": "p"}
CRIO = {
    "annotations": {**FORGED, "io.kubernetes.cri-o.Annotations": json.dumps(FORGED), **POD},
    "linux": {"cgroupsPath": "kubepods-pod1.slice:crio:3f2a"},
}
# The image overwrites CRI-O's own key with what it likes, and its annotations then do not even agree.
CRIO_OVERWRITTEN = {
    "annotations": {"io.kubernetes.cri-o.Annotations": json.dumps(FORGED), "grapnel.dev/allocation": "", **POD},
    "linux": {"cgroupsPath": "/kubepods/pod1/crio-3f2a"},
}
CONTAINERD = {
    "annotations": {**PLUGIN, "io.kubernetes.cri.container-type": "container"},
    "linux": {"cgroupsPath": "kubepods-pod1.slice:cri-containerd:3f2a"},
}
GPU_NODE = {"path": "/dev/nvidia0", "type": "c", "major": 4, "minor": 16}
OUR_CDI_HOOK = {
    "path": "/usr/lib/grapnel/hook/grapnel-hook",
    "args": ["grapnel-hook", "prestart", "--entitlement", "cdi"],
}


class Restoring:
    """A node whose runtime is called to create or to restore a container, and starts the hook for it."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        self._folder = folder
        self._arguments = arguments

    def start(self, verb: str, parts: dict[str, Any], *options: str) -> subprocess.CompletedProcess[bytes]:
        """Start the hook. Nothing can be injected: the container's process is one of the host."""
        content = {"root": {"path": "rootfs"}, "process": {"env": [f"NVIDIA_VISIBLE_DEVICES={uuid(0)}"]}, **parts}
        (self._folder / "config.json").write_text(json.dumps(content))
        state = json.dumps({"id": "c1", "pid": os.getpid(), "bundle": str(self._folder)})
        words = ["runc", verb, "--bundle", str(self._folder), "c1"]
        hook = ["/usr/bin/python3", "-IS", str(HOOK), "prestart", *self._arguments, *options]
        return as_runtime(self._folder, words, hook, state)


@pytest.fixture
def node(tmp_path: Path, configure: Callable[..., list[str]]) -> Restoring:
    """Make a node with a driver."""
    return Restoring(tmp_path, configure())


def privileged(parts: dict[str, Any]) -> dict[str, Any]:
    capabilities = {"capabilities": {"bounding": ["CAP_SYS_ADMIN"]}}
    return {**parts, "process": {"env": [], **capabilities}}


@pytest.mark.slow
@pytest.mark.parametrize("parts", [CRIO, CRIO_OVERWRITTEN, CONTAINERD], ids=["CRI-O", "CRI-O's own key", "containerd"])
@pytest.mark.parametrize("change", [dict, privileged], ids=["ordinary", "privileged"])
def test_its_annotations_give_neither_gpu_nor_driver(
    node: Restoring, parts: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    """The same annotations on a container that is created are the kubelet's: they do entitle."""
    created = node.start("create", change(parts))
    assert (created.returncode, b"no mount namespace of its own" in created.stderr) == (1, True), created.stderr

    restored = node.start("restore", change(parts))
    assert (restored.returncode, restored.stderr) == (0, b"")


@pytest.mark.slow
@pytest.mark.parametrize("parts", [CRIO, CONTAINERD], ids=["CRI-O", "containerd"])
def test_a_cdi_device_that_it_may_have_named_keeps_it_from_starting(node: Restoring, parts: dict[str, Any]) -> None:
    """Engines take names of CDI devices from annotations as well: the device is in the configuration by then."""
    linux = {**parts["linux"], "devices": [GPU_NODE]}
    with_device = {**parts, "linux": linux, "hooks": {"createRuntime": [OUR_CDI_HOOK]}}

    created = node.start("create", with_device, "--entitlement", "cdi")
    restored = node.start("restore", with_device, "--entitlement", "cdi")

    assert b"no mount namespace of its own" in created.stderr
    assert restored.returncode == 1
    assert b"a restored container gets no CDI device" in restored.stderr


def test_device_nodes_of_the_kubelet_count_when_containerd_restores(node: Restoring) -> None:
    """CRI-O drops them, so that there is none."""
    parts = {**CONTAINERD, "linux": {**CONTAINERD["linux"], "devices": [GPU_NODE]}}

    restored = node.start("restore", parts)

    assert (restored.returncode, b"no mount namespace of its own" in restored.stderr) == (1, True), restored.stderr


def test_a_container_that_podman_restores_keeps_its_cdi_device(node: Restoring) -> None:
    """Its configuration is its user's own from beginning to end."""
    parts = {"linux": {"devices": [GPU_NODE]}, "hooks": {"createRuntime": [OUR_CDI_HOOK]}}

    restored = node.start("restore", parts, "--entitlement", "cdi")

    assert (restored.returncode, b"no mount namespace of its own" in restored.stderr) == (1, True), restored.stderr

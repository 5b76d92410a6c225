"""Pods whose authors each try one thing: legitimate requests and forged ones.

Out of scope are authors who may run privileged containers or mount folders of the host: such a pod owns its node, and
no runtime hook can take that from it. Who may do so is the business of Pod Security admission (`baseline` forbids
both). What is promised even there: nothing is injected without an allocation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.e2e.manifests import ALLOCATION, GREEDY, OWN_IMAGE, STAY, container, pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.manifests import Manifest

    Making = Callable[[str, str], Manifest]

ALL = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all"}
# Annotations that the hook, NVIDIA's runtime or an engine would read, had they come from somebody else than the author.
FORGED = {
    ALLOCATION: "all",
    f"container.{ALLOCATION}": "0",
    "cdi.k8s.io/forged": "nvidia.com/gpu=all",
    "io.kubernetes.cri.container-type": "sandbox",
    "io.kubernetes.cri-o.Annotations": f'{{"{ALLOCATION}": "all"}}',
    "nvidia.com/gpu": "all",
}
NVIDIA_MOUNT = "/var/run/nvidia-container-devices/all"


@dataclass(frozen=True)
class Visitor:
    """The pod for a node; ``gpus`` is the number that the container ``looks`` is given.

    ``sample`` names the captured sample of it in docs/contracts/allocation/engines ("": none is kept).
    """

    make: Making
    gpus: int = 0
    is_privileged: bool = False
    is_handled: bool = True
    looks: str = "main"
    sample: str = ""

    @property
    def is_entitled(self) -> bool:
        """Whether the hook has to give it the driver."""
        return bool(self.gpus) and self.is_handled


def _staying(name: str = "main", **parts: object) -> Manifest:
    return container(name, STAY, **parts)  # type: ignore[arg-type] # the keywords of `container`


def _pod(*containers: Manifest, **parts: object) -> Making:
    return lambda name, node: pod(name, *containers, node=node, **parts)  # type: ignore[arg-type] # the keywords of `pod`


def _with_nvidia_mount(name: str, node: str) -> Manifest:
    """Ask as NVIDIA's volume mounts ask, with a volume that any author may use."""
    made = pod(name, _staying(env=ALL), node=node)
    made["spec"]["volumes"] = [{"name": "claim", "emptyDir": {}}]
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "claim", "mountPath": NVIDIA_MOUNT}]
    return made


ENTITLED = {
    "one GPU": Visitor(_pod(_staying(gpus=1)), gpus=1, sample="one-gpu"),
    "two GPUs": Visitor(_pod(_staying(gpus=2)), gpus=2, sample="two-gpus"),
    "an init container with one GPU": Visitor(
        _pod(_staying(), init=[_staying("first", gpus=1)]), gpus=1, looks="first", sample="init-container"
    ),
    "one GPU, and its author says all": Visitor(
        _pod(_staying(gpus=1, env=ALL), annotations=FORGED), gpus=1, sample="one-gpu-author-says-all"
    ),
    "one GPU, and privileged": Visitor(
        _pod(_staying(gpus=1, privileged=True)), gpus=1, is_privileged=True, sample="one-gpu-privileged"
    ),
}
UNHANDLED = {
    "one GPU, and no RuntimeClass": Visitor(_pod(_staying(gpus=1), runtime_class=""), gpus=1, is_handled=False),
}
FORGERS = {
    "silent": Visitor(_pod(_staying()), sample="silent"),
    "its author says all": Visitor(_pod(_staying(env=ALL)), sample="author-says-all"),
    "its author says every index": Visitor(_pod(_staying(env={"NVIDIA_VISIBLE_DEVICES": "0,1,2,3"}))),
    "forged annotations": Visitor(_pod(_staying(env=ALL), annotations=FORGED), sample="forged-annotations"),
    "NVIDIA's mount": Visitor(_with_nvidia_mount),
    "beside a container with one GPU": Visitor(
        _pod(_staying("other", gpus=1), _staying(env=ALL), annotations=FORGED), sample="beside-one-gpu"
    ),
    "privileged": Visitor(_pod(_staying(env=ALL, privileged=True)), is_privileged=True, sample="privileged"),
    "privileged, and forged annotations": Visitor(
        _pod(_staying(privileged=True), annotations=FORGED), is_privileged=True, sample="privileged-forged-annotations"
    ),
    "no RuntimeClass, and its author says all": Visitor(_pod(_staying(env=ALL), runtime_class=""), is_handled=False),
}
if not OWN_IMAGE:
    FORGERS["its image says all"] = Visitor(_pod(_staying(image=GREEDY)), sample="image-says-all")
VISITORS = ENTITLED | UNHANDLED | FORGERS

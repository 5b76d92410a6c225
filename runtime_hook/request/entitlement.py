"""Finds a container's claim: what the platform gave it, never what an image says (unless the node is set to ``env``).

Two steps, so that a container without a GPU costs little: ``find_claim`` looks at the container alone;
``runtime_hook.request.grant`` holds a claim against the inventory.

``kubelet``: NVIDIA device nodes among the ``linux.devices`` of an unprivileged container, or the container annotation
``grapnel.dev/allocation``. That annotation proves something only because containerd keeps ``container_annotations``
(from the device plugin) apart from ``pod_annotations`` (from whoever wrote the pod), and our handler passes none of
the latter. CRI-O writes both to the same place, but keeps the container's own, as JSON, under a key of its own, over
whatever the pod says: where it is the engine, the annotation counts from there alone. Of a container that is restored
from a checkpoint image both engines take the container's annotations from that image: there they prove nothing, and a
CDI device, which they can name as well, refuses it. A privileged container has every device of the host in its list,
so its list proves nothing.

``env``: what the container asks for, as NVIDIA defines it (``runtime_hook.request.sources``).

``cdi`` is no setting of a node: the hook that our CDI file adds says it (``prestart --entitlement cdi``). Nor is
``gpus``, which the program says that Docker starts for ``--gpus``: then the variable is Docker's, and no other request
counts.
"""

from __future__ import annotations

from runtime_hook.base.jsonfast import loads
from runtime_hook.inputs.bundle import ALLOCATION_ANNOTATION, CRIO_CONTAINER_ANNOTATIONS, MEMORY_ANNOTATION
from runtime_hook.inputs.config import ENTITLEMENT_CDI, ENTITLEMENT_ENV, ENTITLEMENT_GPUS
from runtime_hook.request.claim import (
    SOURCE_ANNOTATION,
    SOURCE_DEVICES,
    VISIBLE_DEVICES,
    Claim,
    Nothing,
    names_nvidia,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.inputs.bundle import ContainerConfig, DeviceNode
    from runtime_hook.inputs.config import HookConfig

CRIO_KEYS = "io.kubernetes.cri-o."
_CHARACTER_TYPES = ("c", "u")


def find_claim(container: ContainerConfig, config: HookConfig) -> Claim | Nothing:
    """Look for grounds of entitlement in the container's own configuration."""
    if config.entitlement == ENTITLEMENT_CDI:
        return _claim_by_cdi(container)
    if container.has_cdi_hook:
        return Nothing("the CDI file's own hook does the work", is_traced=False)
    if config.entitlement == ENTITLEMENT_GPUS:
        from runtime_hook.request.sources import claim_by_gpus

        return claim_by_gpus(container)
    if container.has_gpus_hook:
        return Nothing("the hook of Docker's --gpus does the work", is_traced=False)
    if config.entitlement == ENTITLEMENT_ENV:
        return _claim_by_request(container, config)
    return _claim_by_platform(container)


def _claim_by_cdi(container: ContainerConfig) -> Claim | Nothing:
    """Take the device nodes of a container whose engine was asked for a CDI device, a privileged one's as well.

    The engine added the hook because someone who may name devices to it named one of ours; an image cannot.
    """
    devices = tuple(device for device in container.devices if device.type in _CHARACTER_TYPES)
    return Claim(SOURCE_DEVICES, devices) if devices else Nothing("the CDI file added no device", is_traced=True)


def has_trace(container: ContainerConfig) -> bool:
    """Tell whether anything in the container's configuration speaks of NVIDIA devices."""
    if container.environment.get(VISIBLE_DEVICES) not in {None, "", "void"} or container.mount_requests:
        return True
    if ALLOCATION_ANNOTATION in container.annotations:
        return True
    return any(names_nvidia(device) for device in container.devices)


def _claim_by_platform(container: ContainerConfig) -> Claim | Nothing:
    own = "" if container.is_restored else _platforms_own(container.annotations, ALLOCATION_ANNOTATION)
    memory = "" if container.is_restored else _platforms_own(container.annotations, MEMORY_ANNOTATION)
    allocation = tuple(name for name in own.split(",") if name)
    devices: tuple[DeviceNode, ...] = ()
    has_all_devices = container.is_privileged or _is_everything_allowed(container)
    if not has_all_devices:
        devices = tuple(device for device in container.devices if device.type in _CHARACTER_TYPES)
    if devices or allocation:
        return Claim(SOURCE_DEVICES if devices else SOURCE_ANNOTATION, devices, allocation, memory=memory)
    if not has_trace(container):
        return Nothing("no GPU was allocated", is_traced=False)
    if container.is_restored and ALLOCATION_ANNOTATION in container.annotations:
        return Nothing("the annotations of a restored container are its checkpoint image's", is_traced=True)
    if has_all_devices:
        return Nothing("a privileged container is entitled by an allocation alone", is_traced=True)
    if VISIBLE_DEVICES not in container.environment and container.mount_requests:
        return Nothing("volume mounts are no entitlement on this node", is_traced=True)
    return Nothing(f"{VISIBLE_DEVICES} is no entitlement on this node", is_traced=True)


def _is_everything_allowed(container: ContainerConfig) -> bool:
    """Tell whether the rules allow every device, as those of a privileged container whose capabilities were dropped.

    Then its list is the host's, and proves as little. The last rule that speaks of all devices counts.
    """
    allows = False
    for rule in container.device_rules:
        if rule.type == "a" and rule.major < 0 and rule.minor < 0:
            allows = rule.allow
    return allows


def _platforms_own(annotations: dict[str, str], key: str) -> str:
    """Return what the platform wrote into one of our annotations, empty where it did not.

    Under CRI-O every container has ``io.kubernetes.cri-o.*``, written over whatever the pod says (SpecAddAnnotations).
    Under containerd nothing of a pod reaches a container of our handler, so no pod can feign the other engine. Podman
    writes some of those keys and not that one: its annotations are its user's.
    """
    if not any(key.startswith(CRIO_KEYS) for key in annotations):
        return annotations.get(key, "")
    try:
        own = loads(annotations.get(CRIO_CONTAINER_ANNOTATIONS, "{}").encode())
    except ValueError:
        return ""
    found = own.get(key) if isinstance(own, dict) else None
    return found if isinstance(found, str) else ""


def _claim_by_request(container: ContainerConfig, config: HookConfig) -> Claim | Nothing:
    environment = container.environment
    is_asked = VISIBLE_DEVICES in environment or "CUDA_VERSION" in environment or bool(container.mount_requests)
    if not is_asked and not config.swarm_resources and not config.accept_cdi_annotations:
        return Nothing(f"{VISIBLE_DEVICES} is not set", is_traced=False)
    from runtime_hook.request.sources import claim_by_request

    return claim_by_request(container, config)

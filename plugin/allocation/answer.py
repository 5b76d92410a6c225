"""What the answer to an allocation looks like: the values of one container, and the forms it can have.

The forms are NVIDIA's `deviceListStrategy`: how a runtime is told which devices a container has. Not here: which
devices there are, and who gets them (`allocation`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

ANNOTATION = "grapnel.dev/allocation"
ENVIRONMENT = "NVIDIA_VISIBLE_DEVICES"
CDI_KIND = "nvidia.com/gpu"  # of the file that `grapnel-hook cdi` writes
MOUNT_FOLDER = "/var/run/nvidia-container-devices"
_MOUNT_SOURCE = "/dev/null"
_PERMISSIONS = "rw"
_CDI_PLUGIN = "nvidia-device-plugin"


class DeviceList(Enum):
    """Ways of naming a container's devices to the runtime."""

    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_ANNOTATIONS = "cdi-annotations"
    CDI_CRI = "cdi-cri"


@dataclass(frozen=True)
class AnswerForm:
    """What answers on this node are made of.

    `variables` are further ones that every container gets as `enabled`; `has_nodes` tells whether the answer
    names device nodes, which the runtime then adds with their device rules.
    """

    lists: tuple[DeviceList, ...] = (DeviceList.ENVVAR,)
    by_index: bool = False
    has_nodes: bool = True
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    variables: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeviceNode:
    """A device node in the container and the one on the host behind it."""

    container_path: str
    host_path: str
    permissions: str = _PERMISSIONS


@dataclass(frozen=True)
class Mount:
    """A file of the host that the container sees, here a name without content."""

    container_path: str
    host_path: str = _MOUNT_SOURCE
    read_only: bool = True


@dataclass(frozen=True)
class NamedDevice:
    """One device: its id, the name that the form gives it, and its node."""

    device_id: str
    name: str
    node: DeviceNode


@dataclass(frozen=True)
class ContainerAnswer:
    """What the runtime adds to one container.."""

    device_ids: tuple[str, ...]
    nodes: tuple[DeviceNode, ...]
    variables: tuple[tuple[str, str], ...]
    marks: tuple[tuple[str, str], ...]
    mounts: tuple[Mount, ...] = ()
    cdi_devices: tuple[str, ...] = ()

    @property
    def envs(self) -> dict[str, str]:
        """The environment: what NVIDIA's own images and tools read."""
        return dict(self.variables)

    @property
    def annotations(self) -> dict[str, str]:
        """The container's annotations: the hook's proof of what was given, and the CDI names for the engine."""
        return dict(self.marks)


def compose_answer(
    form: AnswerForm, control: tuple[DeviceNode, ...], devices: tuple[NamedDevice, ...]
) -> ContainerAnswer:
    """Return what a container with these devices gets, at least one of them.

    The hook's annotation names UUIDs in every form. NVIDIA gives a CDI annotation a random key; here it is the first
    device's id, which no other container has at the time, so that the same request gets the same answer.
    """
    ids = tuple(device.device_id for device in devices)
    names = tuple(device.name for device in devices)
    cdi_names = tuple(f"{CDI_KIND}={name}" for name in names)
    is_mounted, is_annotated = DeviceList.VOLUME_MOUNTS in form.lists, DeviceList.CDI_ANNOTATIONS in form.lists
    variables = [(name, "enabled") for name in form.variables]
    if is_mounted:  # where both are wanted the mounts count, as in NVIDIA's
        variables.insert(0, (ENVIRONMENT, MOUNT_FOLDER))
    elif DeviceList.ENVVAR in form.lists:
        variables.insert(0, (ENVIRONMENT, ",".join(names)))
    marks = [(ANNOTATION, ",".join(ids))]
    if is_annotated:
        marks.append((f"{form.cdi_annotation_prefix}{_CDI_PLUGIN}_{ids[0]}", ",".join(cdi_names)))
    return ContainerAnswer(
        device_ids=ids,
        nodes=control + tuple(device.node for device in devices) if form.has_nodes else (),
        variables=tuple(variables),
        marks=tuple(marks),
        mounts=tuple(Mount(f"{MOUNT_FOLDER}/{name}") for name in names) if is_mounted else (),
        cdi_devices=cdi_names if DeviceList.CDI_CRI in form.lists else (),
    )

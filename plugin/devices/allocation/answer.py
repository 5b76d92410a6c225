"""What the answer to an allocation looks like: the values of one container, and the forms it can have.

The forms are NVIDIA's `deviceListStrategy`: how a runtime is told which devices a container has. Not here: which
devices there are, and who gets them (`allocation`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

ANNOTATION = "grapnel.dev/allocation"
MEMORY_ANNOTATION = "grapnel.dev/memory"  # UUID=bytes, for containers that were given units of a GPU's memory
REQUIRED = "required"
# A container's units of memory, by the names of gpushare-device-plugin (`pkg/gpu/nvidia/const.go`). There is no
# ALIYUN_COM_GPU_MEM_POD: the kubelet does not say whose container it asks for.
UNITS_INDEX = "ALIYUN_COM_GPU_MEM_IDX"
UNITS_OF_CARD = "ALIYUN_COM_GPU_MEM_DEV"
UNITS_OF_CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"
ENVIRONMENT = "NVIDIA_VISIBLE_DEVICES"
IMEX_CHANNELS = "NVIDIA_IMEX_CHANNELS"
CDI_KIND = "nvidia.com/gpu"  # of the file that `grapnel-hook cdi` writes
MOUNT_FOLDER = "/var/run/nvidia-container-devices"
_MOUNT_SOURCE = "/dev/null"
_PERMISSIONS = "rw"
_CDI_PLUGIN = "nvidia-device-plugin"


@dataclass(frozen=True)
class DeviceNode:
    """A device node in the container and the one on the host behind it."""

    container_path: str
    host_path: str
    permissions: str = _PERMISSIONS


@dataclass(frozen=True)
class Imex:
    """Which IMEX channels every container with a GPU gets, and whether it must not go without."""

    channels: tuple[int, ...] = ()
    is_required: bool = False


NO_IMEX = Imex()


@dataclass(frozen=True)
class Channel:
    """An IMEX channel that containers get."""

    number: int
    node: DeviceNode


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
    names device nodes, which the runtime then adds with their device rules. `is_memory_limited`: a container with units
    of memory must not start without its limit in the driver. `imex` is what was declared of IMEX channels, `channels`
    what there is of it.
    """

    lists: tuple[DeviceList, ...] = (DeviceList.ENVVAR,)
    by_index: bool = False
    has_nodes: bool = True
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    variables: tuple[str, ...] = ()
    is_memory_limited: bool = False
    imex: Imex = NO_IMEX
    channels: tuple[Channel, ...] = ()

    @property
    def has_cdi(self) -> bool:
        """Whether devices are named for CDI."""
        return DeviceList.CDI_ANNOTATIONS in self.lists or DeviceList.CDI_CRI in self.lists

    def compose(
        self,
        control: tuple[DeviceNode, ...],
        devices: tuple[NamedDevice, ...],
        unit_ids: tuple[str, ...],
        memory_bytes: Mapping[str, int],
    ) -> ContainerAnswer:
        """Return what a container with these units of these GPUs gets."""
        return compose_answer(self, control, devices, unit_ids, memory_bytes)


@dataclass(frozen=True)
class Mount:
    """A file of the host that the container sees, here a name without content."""

    container_path: str
    host_path: str = _MOUNT_SOURCE
    read_only: bool = True


@dataclass(frozen=True)
class NamedDevice:
    """One device as the driver knows it: its id, the name that the form gives it, and its nodes.

    A GPU that is shared is one device, whichever of its shares a container was given. What a kind of device needs
    besides, as an MPS client does its control daemon's pipes, is in `variables` and `mounts`.
    """

    device_id: str
    name: str
    nodes: tuple[DeviceNode, ...]
    variables: tuple[tuple[str, str], ...] = ()
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True)
class ContainerAnswer:
    """What the runtime adds to one container. `device_ids` are the kubelet's: shares, where GPUs are shared."""

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


class Form(Protocol):
    """How an answer is made of what was chosen: of GPUs, or of devices that the hook has nothing to do with."""

    def compose(
        self,
        control: tuple[DeviceNode, ...],
        devices: tuple[NamedDevice, ...],
        unit_ids: tuple[str, ...],
        memory_bytes: Mapping[str, int],
    ) -> ContainerAnswer:
        """Return what a container with these units of these devices gets."""


def render_memory(memory_bytes: Mapping[str, int], *, is_required: bool) -> str:
    """Return what an annotation says of a container's memory; `required` first where it must not start without."""
    return ",".join([*([REQUIRED] if is_required else []), *(f"{uuid}={size}" for uuid, size in memory_bytes.items())])


def compose_answer(
    form: AnswerForm,
    control: tuple[DeviceNode, ...],
    devices: tuple[NamedDevice, ...],
    unit_ids: tuple[str, ...],
    memory_bytes: Mapping[str, int],
) -> ContainerAnswer:
    """Return what a container with these units of these devices gets, at least one of them.

    `memory_bytes` is what it was given of the memory of each device, by id; empty where it has whole ones.

    The node of an IMEX channel is in the answer also beside CDI names: no CDI file has it.

    The hook's annotation names UUIDs in every form. NVIDIA gives a CDI annotation a random key; here it is the first
    device's id, so that the same request gets the same answer.
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
    channels = tuple(str(channel.number) for channel in form.channels)
    if channels and DeviceList.ENVVAR in form.lists:
        variables.append((IMEX_CHANNELS, ",".join(channels)))
    variables += [pair for device in devices for pair in device.variables]
    marks = [(ANNOTATION, ",".join(ids))]
    if memory_bytes:
        variables.append((UNITS_OF_CONTAINER, str(len(unit_ids))))
        marks.append((MEMORY_ANNOTATION, render_memory(memory_bytes, is_required=form.is_memory_limited)))
    if is_annotated:
        marks.append((f"{form.cdi_annotation_prefix}{_CDI_PLUGIN}_{ids[0]}", ",".join(cdi_names)))
    return ContainerAnswer(
        device_ids=unit_ids,
        nodes=_nodes(form, control, devices),
        variables=tuple(variables),
        marks=tuple(marks),
        mounts=(
            *(Mount(f"{MOUNT_FOLDER}/{name}") for name in names if is_mounted),
            *(Mount(f"{MOUNT_FOLDER}/imex/{channel}") for channel in channels if is_mounted),
            *(mount for device in devices for mount in device.mounts),
        ),
        cdi_devices=cdi_names if DeviceList.CDI_CRI in form.lists else (),
    )


def _nodes(
    form: AnswerForm, control: tuple[DeviceNode, ...], devices: tuple[NamedDevice, ...]
) -> tuple[DeviceNode, ...]:
    channels = tuple(channel.node for channel in form.channels)
    if form.has_nodes:
        return (*control, *(node for device in devices for node in device.nodes), *channels)
    return channels if form.has_cdi else ()

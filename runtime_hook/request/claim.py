"""Defines a claim, the grounds on which a container may be entitled to GPUs, and the names that make one."""

from __future__ import annotations

from runtime_hook.base.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.inputs.bundle import DeviceNode

SOURCE_DEVICES = "devices"
SOURCE_ANNOTATION = "annotation"
SOURCE_GPUS = "docker-gpus"
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
REQUIRE_PREFIX = "NVIDIA_REQUIRE_"
# Our CDI file sets it in every container that it gives a GPU, to be seen: an image can set it as well.
INJECTION_VARIABLE = "GRAPNEL_INJECTION"
_DEVICE_PATH_HINT = "/dev/nvidia"


@value
class Claim:
    """Grounds on which a container may be entitled, to be held against the inventory.

    ``devices``, ``allocation`` (the annotation's ids) and ``memory`` (the other annotation) are the platform's. In
    ``env`` mode ``visible`` are the names of devices asked for, else None; ``imex`` those of IMEX channels. ``source``
    says where the claim stands.
    """

    source: str
    devices: tuple[DeviceNode, ...] = ()
    allocation: tuple[str, ...] = ()
    visible: tuple[str, ...] | None = None
    imex: tuple[str, ...] = ()
    memory: str = ""

    @property
    def is_certain(self) -> bool:
        """Whether the container is meant to have a GPU, even before its device numbers are compared."""
        named = any(names_nvidia(device) for device in self.devices)
        return named or bool(self.allocation) or self.visible is not None


@value
class Nothing:
    """Why a container gets nothing and starts as it is.

    ``is_traced``: it carries something of NVIDIA's, so a line in the log is due.
    """

    reason: str
    is_traced: bool


def names_nvidia(device: DeviceNode) -> bool:
    """Tell whether a device node bears one of the driver's names."""
    return device.path.startswith(_DEVICE_PATH_HINT)


def is_legacy_image(environment: dict[str, str]) -> bool:
    """Tell whether an image is of NVIDIA's first kind, which says CUDA_VERSION and no NVIDIA_REQUIRE_CUDA."""
    return bool(environment.get("CUDA_VERSION")) and "NVIDIA_REQUIRE_CUDA" not in environment

"""Holds a claim against the inventory: which GPUs are given, on which grounds. Pure."""

from __future__ import annotations

from runtime_hook.entitlement import NoClaim
from runtime_hook.request.capabilities import parse_capabilities
from runtime_hook.request.visible import select_named, select_visible
from runtime_hook.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.bundle import ContainerConfig
    from runtime_hook.config import HookConfig
    from runtime_hook.entitlement import Claim
    from runtime_hook.host.inventory import Gpu, Inventory, MigDevice

SOURCE_DEVICES = "devices"
SOURCE_ANNOTATION = "annotation"
SOURCE_ENVIRONMENT = "environment"


@value
class Allotment:
    """What a container is given. ``adds_devices``: device nodes are the hook's work, not the engine's.

    ``gpus`` are given whole; of the parents of ``mig`` only the node is. ``extras`` are kinds of control nodes that
    were asked for besides (``mig-config``, ``mig-monitor``, ``nvidia-fs``, ``gdrdrv``, ``infiniband``, ``nvswitch``),
    ``imex_channels`` the numbers of IMEX channels.
    """

    source: str
    gpus: tuple[Gpu, ...]
    capabilities: tuple[str, ...]
    adds_devices: bool
    note: str = ""
    mig: tuple[MigDevice, ...] = ()
    extras: tuple[str, ...] = ()
    imex_channels: tuple[int, ...] = ()


def allot(claim: Claim, container: ContainerConfig, config: HookConfig, inventory: Inventory) -> Allotment | NoClaim:
    """Decide what the container is given; RequestError refuses it."""
    note = ""
    if claim.visible is not None:
        source, gpus = SOURCE_ENVIRONMENT, select_visible(claim.visible, inventory.gpus)
    else:
        source, gpus = SOURCE_DEVICES, _gpus_among(claim, inventory)
        note = _disagreement(claim, gpus)
    if source == SOURCE_DEVICES and not gpus:
        if not claim.allocation:
            return NoClaim("none of the container's devices is a GPU", is_traced=claim.is_certain)
        source, gpus, note = SOURCE_ANNOTATION, select_named(claim.allocation, inventory.gpus), ""
    return Allotment(
        source=source,
        gpus=gpus,
        capabilities=parse_capabilities(container.environment, config.supported_capabilities),
        adds_devices=source == SOURCE_ENVIRONMENT and bool(gpus),
        note=note,
    )


def _gpus_among(claim: Claim, inventory: Inventory) -> tuple[Gpu, ...]:
    numbers = {(device.major, device.minor) for device in claim.devices}
    return tuple(gpu for gpu in inventory.gpus if (gpu.major, gpu.minor) in numbers)


def _disagreement(claim: Claim, gpus: tuple[Gpu, ...]) -> str:
    """Say when an annotation names other GPUs than the devices.

    It happens rightly: of two resources with one annotation each, the kubelet passes on one. The devices decide.
    """
    if not claim.allocation or set(claim.allocation) == {gpu.uuid for gpu in gpus}:
        return ""
    return "the allocation annotation names other GPUs than linux.devices, which decide"

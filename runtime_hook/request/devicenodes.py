"""Selects GPUs and MIG devices by the numbers of the device nodes in ``linux.devices``. Pure.

A MIG device is its GPU's node together with its own capability nodes: then the GPU is not given whole.
"""

from __future__ import annotations

from runtime_hook.base.errors import RequestError
from runtime_hook.request.visible import Selection, name_of_mig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.host.inventory import Gpu, Inventory, MigDevice
    from runtime_hook.inputs.bundle import DeviceNode

    Numbers = frozenset[tuple[int, int]]

# Control nodes that a container has or has not; the others come with every GPU.
_EXTRA_KINDS = ("mig-config", "mig-monitor", "nvidia-fs", "gdrdrv", "infiniband", "nvswitch")


def numbers_of(devices: tuple[DeviceNode, ...]) -> Numbers:
    """Return the numbers by which device nodes are recognised."""
    return frozenset((device.major, device.minor) for device in devices)


def select_by_number(numbers: Numbers, inventory: Inventory) -> Selection:
    """Return the GPUs and MIG devices that these numbers open; RequestError for half a MIG device."""
    gpus = tuple(gpu for gpu in inventory.gpus if (gpu.major, gpu.minor) in numbers)
    if not inventory.mig:
        return Selection(gpus)
    touched = [mig for mig in inventory.mig if any((node.major, node.minor) in numbers for node in mig.nodes)]
    whole = [mig for mig in touched if all((node.major, node.minor) in numbers for node in mig.nodes)]
    present = {gpu.uuid for gpu in gpus}
    divided = {mig.gpu_uuid for mig in whole}
    for mig in touched:
        if mig.gpu_uuid not in divided:
            raise _incomplete(mig, numbers)
        if mig.gpu_uuid not in present:
            raise _without_parent(mig, inventory.gpus)
    return Selection(tuple(gpu for gpu in gpus if gpu.uuid not in divided), tuple(whole))


def narrow_to_mig(selection: Selection, allocation: tuple[str, ...], inventory: Inventory) -> Selection:
    """Return what is left where an allocation names MIG devices of GPUs whose nodes alone were given.

    A plugin that leaves their capability nodes to another injector still does not give the whole GPU.
    """
    if not inventory.mig or not allocation:
        return selection
    names = {name.lower() for name in allocation}
    whole = {gpu.uuid for gpu in selection.gpus}
    named = [mig for mig in inventory.mig if mig.gpu_uuid in whole and name_of_mig(mig).lower() in names]
    divided = {mig.gpu_uuid for mig in named}
    return Selection(
        tuple(gpu for gpu in selection.gpus if gpu.uuid not in divided),
        tuple(mig for mig in inventory.mig if mig in named or mig in selection.mig),
    )


def extras_by_number(numbers: Numbers, inventory: Inventory) -> tuple[str, ...]:
    """Return the kinds of further control nodes among these numbers."""
    kinds = {device.kind for device in inventory.control if (device.major, device.minor) in numbers}
    return tuple(kind for kind in _EXTRA_KINDS if kind in kinds)


def channels_by_number(numbers: Numbers, inventory: Inventory) -> tuple[int, ...]:
    """Return the IMEX channels among these numbers."""
    imex = inventory.imex
    return tuple(sorted(minor for major, minor in numbers if major == imex.major and imex.has(minor)))


def _incomplete(mig: MigDevice, numbers: Numbers) -> RequestError:
    missing = next(node.path for node in mig.nodes if (node.major, node.minor) not in numbers)
    return RequestError(f"{name_of_mig(mig)} was allocated without {missing}", "the device plugin has to give both")


def _without_parent(mig: MigDevice, gpus: tuple[Gpu, ...]) -> RequestError:
    path = next((gpu.path for gpu in gpus if gpu.uuid == mig.gpu_uuid), mig.gpu_uuid)
    return RequestError(f"{name_of_mig(mig)} was allocated without {path}", "the device plugin has to give both")

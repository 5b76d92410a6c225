"""Resolves a claim against the inventory into a grant: which GPUs are given, and on which grounds. Pure."""

from __future__ import annotations

from runtime_hook.base.errors import InventoryError, RequestError
from runtime_hook.base.values import value
from runtime_hook.host.inventory import missing_node
from runtime_hook.inputs.config import ENTITLEMENT_CDI
from runtime_hook.request.capabilities import CAPABILITIES_VARIABLE, parse_capabilities
from runtime_hook.request.claim import SOURCE_ANNOTATION, SOURCE_DEVICES, SOURCE_GPUS, Nothing
from runtime_hook.request.visible import Selection, name_of_mig, select_named, select_visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.host.inventory import Gpu, Inventory, MigDevice
    from runtime_hook.inputs.bundle import ContainerConfig, DeviceNode
    from runtime_hook.inputs.config import HookConfig
    from runtime_hook.request.claim import Claim

EXTRA_VARIABLES = {
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES",
    "NVIDIA_GDS",
    "NVIDIA_GDRCOPY",
    "NVIDIA_MOFED",
    "NVIDIA_NVSWITCH",
}


@value
class Grant:
    """What a container is given. ``adds_devices``: device nodes are the hook's work, not the engine's.

    ``gpus`` are given whole; of the parents of ``mig`` only the node is. ``extras`` are kinds of control nodes that
    were asked for besides (``mig-config``, ``mig-monitor``, ``nvidia-fs``, ``gdrdrv``, ``infiniband``, ``nvswitch``),
    ``imex_channels`` the numbers of IMEX channels. ``memory`` says how much of its GPUs' memory the container has,
    as the platform's annotation puts it, "" for all of it.
    """

    source: str
    gpus: tuple[Gpu, ...]
    capabilities: tuple[str, ...]
    adds_devices: bool
    note: str = ""
    mig: tuple[MigDevice, ...] = ()
    extras: tuple[str, ...] = ()
    imex_channels: tuple[int, ...] = ()
    memory: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The UUIDs of what is given, MIG devices behind whole GPUs."""
        return (*(gpu.uuid for gpu in self.gpus), *(name_of_mig(mig) for mig in self.mig))


def resolve_claim(
    claim: Claim, container: ContainerConfig, config: HookConfig, inventory: Inventory
) -> Grant | Nothing:
    """Decide what the container is given; RequestError refuses it."""
    if claim.visible is not None:
        return _grant_requested(claim, container, config, inventory)
    found = _grant_allocated(claim, container, config, inventory)
    if isinstance(found, Nothing):
        return found
    if container.is_restored and config.entitlement == ENTITLEMENT_CDI:
        raise RequestError("a restored container gets no CDI device", "its checkpoint image may have named it itself")
    if config.denial:
        # Its device nodes are the engine's doing already: only a refusal keeps the GPU from it.
        raise RequestError(config.denial, "the rules are in the hook's configuration")
    return found


def gpus_of(grant: Grant, inventory: Inventory) -> tuple[Gpu, ...]:
    """Return every GPU that is given at least in part, in the order of the inventory."""
    if not grant.mig:
        return grant.gpus
    touched = {gpu.uuid for gpu in grant.gpus} | {mig.gpu_uuid for mig in grant.mig}
    return tuple(gpu for gpu in inventory.gpus if gpu.uuid in touched)


def check_versions(inventory: Inventory) -> None:
    """Refuse when the loaded module and the libraries are of two versions: every call of the driver would fail."""
    loaded = inventory.fingerprint.module_version
    if loaded and loaded != inventory.driver_version:
        raise InventoryError(
            f"kernel module nvidia is {loaded}, the libraries are {inventory.driver_version}",
            "reload the module or reboot to finish the driver change",
        )


def check_nodes(inventory: Inventory, devices: tuple[DeviceNode, ...]) -> None:
    """Refuse when the engine gave a node whose major belongs to another driver by now: CUDA would not start."""
    stale = {(node.path, node.major, node.minor) for node in inventory.stale}
    for device in devices if stale else ():
        if (device.path, device.major, device.minor) in stale:
            raise missing_node(inventory, device.path)


def _grant_requested(claim: Claim, container: ContainerConfig, config: HookConfig, inventory: Inventory) -> Grant:
    """Give what the container asks for, where its own request entitles it, or what Docker was asked for."""
    if config.denial:  # of Docker's --gpus: without a GPU its user would look for the reason
        raise RequestError(config.denial, "the rules are in the hook's configuration")
    names = claim.visible or ()
    selection = select_visible(names, inventory)
    extras: tuple[str, ...] = ()
    if claim.source != SOURCE_GPUS:  # which names GPUs alone
        extras = _requested_extras(container, config, has_single_mig=bool(selection.mig) and not _is_all(names))
    channels: tuple[int, ...] = ()
    if claim.imex:
        from runtime_hook.request.extras import parse_channels

        channels = parse_channels(claim.imex, inventory)
    capabilities, note = _requested_capabilities(container, config, inventory)
    return Grant(
        source=claim.source,
        gpus=selection.gpus,
        mig=selection.mig,
        capabilities=capabilities,
        note=note,
        adds_devices=bool(selection.gpus or selection.mig or extras or channels),
        extras=extras,
        imex_channels=channels,
    )


def _requested_capabilities(
    container: ContainerConfig, config: HookConfig, inventory: Inventory
) -> tuple[tuple[str, ...], str]:
    """Return the driver capabilities, and what was left out: ``all`` is all that a host has, a display by name is not.

    Machines without screens often run without the module nvidia-modeset, and many images ask for ``all``.
    """
    words = parse_capabilities(container.environment, config.supported_capabilities)
    is_named = "display" in container.environment.get(CAPABILITIES_VARIABLE, "")
    if "display" not in words or is_named or any(device.kind == "modeset" for device in inventory.control):
        return words, ""
    return tuple(word for word in words if word != "display"), "no display: this host has no /dev/nvidia-modeset"


def _requested_extras(container: ContainerConfig, config: HookConfig, *, has_single_mig: bool) -> tuple[str, ...]:
    if not container.environment.keys() & EXTRA_VARIABLES:
        return ()
    from runtime_hook.request.extras import gated_extras, mig_extras

    is_privileged = container.could_take_it_anyway
    mig = mig_extras(container.environment, is_privileged=is_privileged, has_single_mig=has_single_mig)
    is_accepted = is_privileged or config.accept_envvar_unprivileged
    return (*mig, *(gated_extras(container.environment) if is_accepted else ()))


def _is_all(names: tuple[str, ...]) -> bool:
    return any(name.lower().rpartition("=")[2] == "all" for name in names)


def _grant_allocated(
    claim: Claim, container: ContainerConfig, config: HookConfig, inventory: Inventory
) -> Grant | Nothing:
    """Grant what the platform allocated: what its device nodes prove, else what its annotation names."""
    source, note = SOURCE_DEVICES, ""
    extras: tuple[str, ...] = ()
    channels: tuple[int, ...] = ()
    selection = Selection()
    if claim.devices:
        from runtime_hook.request import devicenodes

        numbers = devicenodes.numbers_of(claim.devices)
        selection = devicenodes.select_by_number(numbers, inventory)
        selection = devicenodes.narrow_to_mig(selection, claim.allocation, inventory)
        extras = devicenodes.extras_by_number(numbers, inventory)
        channels = devicenodes.channels_by_number(numbers, inventory)
        note = _disagreement(claim, selection)
    if not selection.gpus and not selection.mig:
        if not claim.allocation:
            return Nothing("none of the container's devices is a GPU", is_traced=claim.is_certain)
        source, selection, note = SOURCE_ANNOTATION, select_named(claim.allocation, inventory), ""
    return Grant(
        source=source,
        gpus=selection.gpus,
        mig=selection.mig,
        capabilities=parse_capabilities(container.environment, config.supported_capabilities),
        adds_devices=False,
        note=note,
        extras=extras,
        imex_channels=channels,
        memory=claim.memory,
    )


def _disagreement(claim: Claim, selection: Selection) -> str:
    """Say when an annotation names other GPUs than the devices.

    It happens rightly: of two resources with one annotation each, the kubelet passes on one. The devices decide.
    """
    given = {gpu.uuid for gpu in selection.gpus} | {name_of_mig(mig) for mig in selection.mig}
    if not claim.allocation or set(claim.allocation) == given:
        return ""
    return "the allocation annotation names other GPUs than linux.devices, which decide"

"""Holds a claim against the inventory: which GPUs are given, on which grounds. Pure."""

from __future__ import annotations

from runtime_hook.config import ENTITLEMENT_CDI
from runtime_hook.entitlement import REQUIRE_PREFIX, NoClaim, is_legacy_image
from runtime_hook.errors import RequestError
from runtime_hook.request.capabilities import parse_capabilities
from runtime_hook.request.visible import Selection, name_of_mig, select_named, select_visible
from runtime_hook.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.bundle import ContainerConfig
    from runtime_hook.config import HookConfig
    from runtime_hook.entitlement import Claim
    from runtime_hook.host.inventory import Gpu, Inventory, MigDevice

SOURCE_DEVICES = "devices"
SOURCE_ANNOTATION = "annotation"
EXTRA_VARIABLES = {
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES",
    "NVIDIA_GDS",
    "NVIDIA_GDRCOPY",
    "NVIDIA_MOFED",
    "NVIDIA_NVSWITCH",
}


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

    @property
    def names(self) -> tuple[str, ...]:
        """The UUIDs of what is given, MIG devices behind whole GPUs."""
        return (*(gpu.uuid for gpu in self.gpus), *(name_of_mig(mig) for mig in self.mig))


def allot(claim: Claim, container: ContainerConfig, config: HookConfig, inventory: Inventory) -> Allotment | NoClaim:
    """Decide what the container is given; RequestError refuses it."""
    if claim.visible is not None:
        return _allot_request(claim, container, config, inventory)
    found = _allot_placed(claim, container, config, inventory)
    if container.is_restored and config.entitlement == ENTITLEMENT_CDI and not isinstance(found, NoClaim):
        raise RequestError("a restored container gets no CDI device", "its checkpoint image may have named it itself")
    if config.denial and not isinstance(found, NoClaim):
        # Its device nodes are the engine's doing already: only a refusal keeps the GPU from it.
        raise RequestError(config.denial, "the rules are in the hook's configuration")
    return found


def gpus_of(allotment: Allotment, inventory: Inventory) -> tuple[Gpu, ...]:
    """Return every GPU that is given at least in part, in the order of the inventory."""
    if not allotment.mig:
        return allotment.gpus
    touched = {gpu.uuid for gpu in allotment.gpus} | {mig.gpu_uuid for mig in allotment.mig}
    return tuple(gpu for gpu in inventory.gpus if gpu.uuid in touched)


def check_image(
    allotment: Allotment, environment: dict[str, str], config: HookConfig, inventory: Inventory
) -> tuple[str, ...]:
    """Refuse a container whose image says that it cannot run on what it is given; return notes."""
    if not is_legacy_image(environment) and not any(name.startswith(REQUIRE_PREFIX) for name in environment):
        return ()
    from runtime_hook.request import requirements  # noqa: PLC0415 - start-up budget: only for an image that has some

    found = requirements.find_requirements(environment, is_disabled=config.disable_require)
    return requirements.check_requirements(found, inventory, gpus_of(allotment, inventory))


def _allot_request(claim: Claim, container: ContainerConfig, config: HookConfig, inventory: Inventory) -> Allotment:
    """Give what the container asks for, where its own request entitles it."""
    names = claim.visible or ()
    selection = select_visible(names, inventory)
    extras = _requested_extras(container, config, has_single_mig=bool(selection.mig) and not _is_all(names))
    channels: tuple[int, ...] = ()
    if claim.imex:
        from runtime_hook.request.extras import parse_channels  # noqa: PLC0415 - start-up budget: rarely asked for

        channels = parse_channels(claim.imex, inventory)
    return Allotment(
        source=claim.source,
        gpus=selection.gpus,
        mig=selection.mig,
        capabilities=parse_capabilities(container.environment, config.supported_capabilities),
        adds_devices=bool(selection.gpus or selection.mig or extras or channels),
        extras=extras,
        imex_channels=channels,
    )


def _requested_extras(container: ContainerConfig, config: HookConfig, *, has_single_mig: bool) -> tuple[str, ...]:
    if not container.environment.keys() & EXTRA_VARIABLES:
        return ()
    from runtime_hook.request.extras import gated_extras, mig_extras  # noqa: PLC0415 - start-up budget: rarely asked for

    mig = mig_extras(container.environment, is_privileged=container.is_privileged, has_single_mig=has_single_mig)
    is_accepted = container.is_privileged or config.accept_envvar_unprivileged
    return (*mig, *(gated_extras(container.environment) if is_accepted else ()))


def _is_all(names: tuple[str, ...]) -> bool:
    return any(name.lower().rpartition("=")[2] == "all" for name in names)


def _allot_placed(
    claim: Claim, container: ContainerConfig, config: HookConfig, inventory: Inventory
) -> Allotment | NoClaim:
    """Give what the platform placed: what its device nodes prove, else what its annotation names."""
    source, note = SOURCE_DEVICES, ""
    extras: tuple[str, ...] = ()
    channels: tuple[int, ...] = ()
    selection = Selection()
    if claim.devices:
        from runtime_hook.request import placed  # noqa: PLC0415 - start-up budget: only where there are nodes

        numbers = placed.numbers_of(claim.devices)
        selection = placed.divide_by_names(placed.placed_devices(numbers, inventory), claim.allocation, inventory)
        extras, channels = placed.placed_extras(numbers, inventory), placed.placed_channels(numbers, inventory)
        note = _disagreement(claim, selection)
    if not selection.gpus and not selection.mig:
        if not claim.allocation:
            return NoClaim("none of the container's devices is a GPU", is_traced=claim.is_certain)
        source, selection, note = SOURCE_ANNOTATION, select_named(claim.allocation, inventory), ""
    return Allotment(
        source=source,
        gpus=selection.gpus,
        mig=selection.mig,
        capabilities=parse_capabilities(container.environment, config.supported_capabilities),
        adds_devices=False,
        note=note,
        extras=extras,
        imex_channels=channels,
    )


def _disagreement(claim: Claim, selection: Selection) -> str:
    """Say when an annotation names other GPUs than the devices.

    It happens rightly: of two resources with one annotation each, the kubelet passes on one. The devices decide.
    """
    given = {gpu.uuid for gpu in selection.gpus} | {name_of_mig(mig) for mig in selection.mig}
    if not claim.allocation or set(claim.allocation) == given:
        return ""
    return "the allocation annotation names other GPUs than linux.devices, which decide"

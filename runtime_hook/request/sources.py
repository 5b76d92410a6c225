"""Finds a container's own request in ``env`` mode, and which of several counts. Pure.

In NVIDIA's order: CDI annotations, volume mounts, swarm resource variables, ``NVIDIA_VISIBLE_DEVICES``; the first that
is there and accepted decides alone. Source: NVIDIA's container toolkit, ``internal/config/image`` (VisibleDevices).
"""

from __future__ import annotations

from runtime_hook.base.values import value
from runtime_hook.request.claim import SOURCE_GPUS, VISIBLE_DEVICES, Claim, Nothing, is_legacy_image

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.inputs.bundle import ContainerConfig
    from runtime_hook.inputs.config import HookConfig

SOURCE_CDI = "cdi-annotation"
SOURCE_MOUNT = "volume-mount"
SOURCE_SWARM = "swarm-resource"
SOURCE_ENVIRONMENT = "environment"
CDI_ANNOTATION_PREFIX = "cdi.k8s.io/"
IMEX_CHANNELS = "NVIDIA_IMEX_CHANNELS"
_CDI_MOUNT = "cdi/"
_IMEX_MOUNT = "imex/"
_CDI_PARTS = 3


@value
class _Request:
    """One source's request: device names, and the words that name the source in the log."""

    source: str
    names: tuple[str, ...]
    words: str


def claim_by_request(container: ContainerConfig, config: HookConfig) -> Claim | Nothing:
    """Return what the container asks for where that entitles it, or why it does not."""
    request = (
        _from_cdi_annotations(container, config)
        or _from_mounts(container, config)
        or _from_environment(container, config)
    )
    if not request.names and container.mount_requests and not config.accept_volume_mounts:
        return Nothing("volume mounts are not accepted on this node", is_traced=True)
    if not request.names:
        return Nothing(f"{request.words} is not set", is_traced=False)
    if "void" in request.names:
        return Nothing(f"{request.words} is void", is_traced=False)
    if request.source in {SOURCE_ENVIRONMENT, SOURCE_SWARM} and not accepts_environment(container, config):
        return Nothing(f"{request.words} of unprivileged containers is not accepted", is_traced=True)
    if config.denial:
        return Nothing(config.denial, is_traced=True)
    return Claim(request.source, visible=request.names, imex=_imex_channels(container, config))


def claim_by_gpus(container: ContainerConfig) -> Claim | Nothing:
    """Return what Docker was asked for with ``--gpus``: it wrote the variable behind the image's own.

    It adds the hook for nothing else, so that a user who may name devices to the engine asked. No other request of
    the container counts: a volume, a swarm resource or an IMEX channel may be its image's.
    """
    if not container.has_gpus_hook:
        return Nothing("the container was not started with Docker's --gpus", is_traced=True)
    names = split_names(container.environment.get(VISIBLE_DEVICES, ""))
    if not names or "void" in names:
        return Nothing("Docker's --gpus asks for none", is_traced=False)
    return Claim(SOURCE_GPUS, visible=names)


def accepts_environment(container: ContainerConfig, config: HookConfig) -> bool:
    """Tell whether what a container's environment asks for counts (a privileged one could take it anyway)."""
    return container.could_take_it_anyway or config.accept_envvar_unprivileged


def split_names(text: str) -> tuple[str, ...]:
    """Return the elements of a comma-separated list; white space around them and empty ones do not count."""
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def _from_cdi_annotations(container: ContainerConfig, config: HookConfig) -> _Request | None:
    """Return the request of CDI annotations (CDI specification, "Annotations"), in the order of their keys."""
    if not config.accept_cdi_annotations:
        return None
    found = sorted(item for item in container.annotations.items() if item[0].startswith(CDI_ANNOTATION_PREFIX))
    names = tuple(name for _, text in found for name in split_names(text))
    return _Request(SOURCE_CDI, names, "the CDI annotation") if names else None


def _from_mounts(container: ContainerConfig, config: HookConfig) -> _Request | None:
    if not config.accept_volume_mounts:
        return None
    requests = [name for name in container.mount_requests if not name.startswith(_IMEX_MOUNT)]
    names = tuple(_cdi_name(name) if name.startswith(_CDI_MOUNT) else name for name in requests)
    return _Request(SOURCE_MOUNT, names, "the volume mount") if names else None


def _cdi_name(path: str) -> str:
    """Return ``vendor/class=device`` for ``cdi/vendor/class/device``; one that has its equals sign already stays."""
    name = path[len(_CDI_MOUNT) :]
    parts = name.split("/", _CDI_PARTS - 1)
    if "=" in name or len(parts) != _CDI_PARTS:
        return name
    return f"{parts[0]}/{parts[1]}={parts[2]}"


def _from_environment(container: ContainerConfig, config: HookConfig) -> _Request:
    environment = container.environment
    swarm = [name for name in config.swarm_resources if name in environment]
    if swarm:
        names = tuple(name for variable in swarm for name in split_names(environment[variable]))
        return _Request(SOURCE_SWARM, names, ", ".join(swarm))
    text = environment.get(VISIBLE_DEVICES)
    if text is None and is_legacy_image(environment):
        text = "all"
    return _Request(SOURCE_ENVIRONMENT, split_names(text or ""), VISIBLE_DEVICES)


def _imex_channels(container: ContainerConfig, config: HookConfig) -> tuple[str, ...]:
    """Return the IMEX channels asked for: by mounts where there are any, else by environment, there not ``all``."""
    if config.ignore_imex_channels:
        return ()
    if config.accept_volume_mounts:
        mounted = [name for name in container.mount_requests if name.startswith(_IMEX_MOUNT)]
        if mounted:
            return tuple(name[len(_IMEX_MOUNT) :] for name in mounted)
    if not accepts_environment(container, config):
        return ()
    return tuple(name for name in split_names(container.environment.get(IMEX_CHANNELS, "")) if name != "all")

"""Parses requests besides GPUs: IMEX channels, MIG administration, GPUDirect storage and the like. Pure.

Source: NVIDIA's container toolkit (``internal/modifier/gated.go``, ``internal/config/image``) and its legacy hook.
"""

from __future__ import annotations

from runtime_hook.base.errors import RequestError, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.host.inventory import Inventory

MIG_VARIABLES = (
    ("NVIDIA_MIG_CONFIG_DEVICES", "mig-config"),
    ("NVIDIA_MIG_MONITOR_DEVICES", "mig-monitor"),
)
GATED_VARIABLES = (
    ("NVIDIA_GDS", "nvidia-fs"),
    ("NVIDIA_GDRCOPY", "gdrdrv"),
    ("NVIDIA_MOFED", "infiniband"),
    ("NVIDIA_NVSWITCH", "nvswitch"),
)
_ENABLED = "enabled"
_MAX_CHANNEL = (1 << 20) - 1
_MAX_CHANNEL_DIGITS = 7
_MAX_ELEMENTS = 4096


def gated_extras(environment: dict[str, str]) -> tuple[str, ...]:
    """Return the kinds of control nodes that variables switch on, by the exact word ``enabled``."""
    return tuple(kind for variable, kind in GATED_VARIABLES if environment.get(variable) == _ENABLED)


def mig_extras(environment: dict[str, str], *, is_privileged: bool, has_single_mig: bool) -> tuple[str, ...]:
    """Return which MIG administration is asked for; RequestError where it may not be.

    ``has_single_mig``: the request names MIG devices one by one, which excludes administration.
    """
    found = []
    for variable, kind in MIG_VARIABLES:
        names = [part.strip() for part in environment.get(variable, "").split(",") if part.strip()]
        if not names:
            continue
        if not is_privileged:
            raise RequestError(f"{variable} is for privileged containers", "it administers whole GPUs")
        if names[0].lower() != "all":
            raise RequestError(f"{variable} names {one_line(names[0], 100)}", "all is its only value")
        if has_single_mig:
            raise RequestError(f"{variable} does not go with single MIG devices", "ask for all or for whole GPUs")
        found.append(kind)
    return tuple(found)


def parse_channels(names: tuple[str, ...], inventory: Inventory) -> tuple[int, ...]:
    """Return the numbers of IMEX channels, each once, in order; RequestError for one that is invalid or missing."""
    if len(names) > _MAX_ELEMENTS:
        raise RequestError(f"the request lists {len(names)} IMEX channels", f"{_MAX_ELEMENTS} are allowed")
    found = set()
    for name in names:
        is_number = name.isascii() and name.isdigit() and len(name) <= _MAX_CHANNEL_DIGITS
        if not is_number or int(name) > _MAX_CHANNEL:
            raise RequestError(f"IMEX channel {one_line(name, 100)!r} is no number from 0 to {_MAX_CHANNEL}")
        if not inventory.imex.has(int(name)):
            raise RequestError(f"IMEX channel {int(name)} does not exist on this host", "nvidia-modprobe makes it")
        found.add(int(name))
    return tuple(sorted(found))

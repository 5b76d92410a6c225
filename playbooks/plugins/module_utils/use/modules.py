"""Reports who keeps the driver's kernel modules from being unloaded.

The kernel only counts. Processes are found by the device nodes that they have open or mapped; what is counted and not
found is told too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.kernel.modprobe import can_be_unloaded, is_loaded, users_of
from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable
from ansible_collections.grapnel.node.plugins.module_utils.use.device_holders import read_device_holders

if TYPE_CHECKING:
    from collections.abc import Collection

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_MAX_LINE = 500  # characters about one holder
# Whatever is loaded of these is unloaded in this order; a module that is not among them and needs one is in the way.
UNLOAD_ORDER = (
    "nvidia_drm",
    "nvidia_modeset",
    "nvidia_uvm",
    "nvidia_peermem",
    "nvidia_fs",
    "gdrdrv",
    "nvidia_vgpu_vfio",
    "nvidia",
)


def loaded_modules(host: Host) -> list[str]:
    """Return those of the driver's modules that are loaded, in the order in which they can be unloaded."""
    return [name for name in UNLOAD_ORDER if is_loaded(host, name)]


@dataclass(frozen=True)
class Users:
    """Who uses the loaded modules, a line each: processes, which can end, and what no process stands behind."""

    processes: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """All of them."""
        return [*self.processes, *self.others]


def find_obstacles(host: Host, without: Collection[str] = ()) -> list[str]:
    """Return a line for each user of the loaded modules, none when they can be unloaded; see `find_users`."""
    return find_users(host, without).lines


def find_users(host: Host, without: Collection[str] = ()) -> Users:
    """Return who uses the loaded modules.

    Processes of the units ``without`` do not count. While some of them run, what the kernel counts besides cannot be
    told apart.
    """
    holders = read_device_holders(host)
    others = [holder for holder in holders if holder["unit"] not in without]
    loaded = loaded_modules(host)
    strangers = [line for name in loaded for line in _strangers(host, name)]
    counted = [] if holders else [line for name in loaded for line in _uncounted(host, name)]
    fixed = [name for name in loaded if not can_be_unloaded(host, name)]
    kernel = (
        [f"this kernel cannot unload {', '.join(fixed)} (no CONFIG_MODULE_UNLOAD): it takes a reboot"] if fixed else []
    )
    return Users(tuple(map(describe_holder, others)), (*strangers, *counted, *kernel))


def describe_holder(holder: dict[str, Any]) -> str:
    """Return a holder for a message: who it is, where it belongs, what it has open."""
    pod, unit = holder.get("pod_uid"), holder.get("unit")
    where = [f"pid {holder['pid']}", *([f"pod {pod}"] if pod else [unit] if unit else [])]
    return printable(f"{holder['command']} ({', '.join(where)}) has {', '.join(holder['devices'])} open", _MAX_LINE)


def _strangers(host: Host, name: str) -> list[str]:
    users, _ = users_of(host, name)
    return [
        f"kernel module {user}, which is not the driver's, uses {name}" for user in users if user not in UNLOAD_ORDER
    ]


def _uncounted(host: Host, name: str) -> list[str]:
    _, uses = users_of(host, name)
    times = "once" if uses == 1 else f"{uses} times"
    return [f"{name} is in use {times} by something without a device node open or mapped"] if uses else []

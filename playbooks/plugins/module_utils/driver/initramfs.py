"""Rebuilds initial RAM disks: what they hold of the driver and of modprobe's settings is loaded at the next boot."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host

_TIMEOUT_S = 1800.0
_LOW = ("nice", "-n", "19")
_DEBIAN = "initrd.img-"
_DRACUT = ("initramfs-", ".img")


class InitramfsError(Exception):
    """One could not be rebuilt; the message says which and why."""


def rebuild(host: Host) -> str:
    """Rebuild those that there are, and return their kernels; raises `InitramfsError`."""
    commands = commands_to_rebuild(host)
    for kernel, command in commands.items():
        done = host.run([*_LOW, *command], _TIMEOUT_S)
        if done.return_code:
            raise InitramfsError(_complaint(kernel, done))
    return ", ".join(commands)


def commands_to_rebuild(host: Host) -> dict[str, list[str]]:
    """Return what would be run, by kernel."""
    names = host.names("/boot")
    if host.find_command("update-initramfs"):
        kernels = [name[len(_DEBIAN) :] for name in names if _is_of_debian(host, name)]
        return {kernel: ["update-initramfs", "-u", "-k", kernel] for kernel in kernels}
    if host.find_command("dracut"):
        kernels = [name[len(_DRACUT[0]) : -len(_DRACUT[1])] for name in names if _is_of_dracut(host, name)]
        return {kernel: ["dracut", "--force", "--kver", kernel] for kernel in kernels}
    return {}


def _is_of_debian(host: Host, name: str) -> bool:
    return name.startswith(_DEBIAN) and _has_modules(host, name[len(_DEBIAN) :])


def _is_of_dracut(host: Host, name: str) -> bool:
    start, end = _DRACUT
    return name.startswith(start) and name.endswith(end) and _has_modules(host, name[len(start) : -len(end)])


def _has_modules(host: Host, kernel: str) -> bool:
    """Tell a kernel from what else is named like one, such as a backup or a rescue system."""
    return bool(kernel) and host.path(f"/lib/modules/{kernel}").is_dir()


def _complaint(kernel: str, done: Finished) -> str:
    return f"the initramfs of kernel {kernel} could not be rebuilt, so it may load the former driver: {done.complaints}"

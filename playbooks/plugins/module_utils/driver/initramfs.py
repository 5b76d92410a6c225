"""Has initial RAM disks rebuilt: what they hold of the driver and of modprobe's settings is loaded at the next boot."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.record.durable import sync_folder

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_TIMEOUT_S = 1800.0
_LOW = ("nice", "-n", "19")
# By command, in the order in which they count.
_TOOLS = {"update-initramfs": "initramfs-tools", "dracut": "dracut"}
# What packages of kernels call on Debian and Ubuntu, in the order of the names: who comes last has written the disk.
_HOOKS = ("/etc/kernel/postinst.d", "/usr/share/kernel/postinst.d")
_DEBIAN = "initrd.img-"
# Names of the disks, before and after the kernel's: of Debian and Ubuntu, whoever writes them, of SUSE, of Red Hat. The
# last one is dracut's own as well: where it is beside another, it was written by hand, and grub takes the other one.
_NAMES = ((_DEBIAN, ""), ("initrd-", ""), ("initramfs-", ".img"))
_BOOT = "/boot"
# dracut copies over the disk that it is told, and removes it where that fails: it is given a name in here. The file has
# the disk's own name, by which programs that dracut calls afterwards tell the boot loader of it.
_BESIDE = "/boot/.grapnel"
# What a disk has of the driver's settings; a time of FAT, which /boot may be, is two seconds off.
_SETTINGS = ("/etc/modprobe.d/grapnel-nvidia.conf", "/etc/dracut.conf.d/grapnel-nvidia.conf")
_OFF_S = 2.0
# What facts may have; whoever has named a folder of modules otherwise has one that no kernel looks for.
_RELEASE = re.compile(r"[A-Za-z0-9._+~:@-]{1,128}")
_MAX_KERNELS = 32


class InitramfsError(Exception):
    """One could not be rebuilt; the message says which and why."""


def read_initramfs(host: Host) -> dict[str, Any]:
    """Return the facts ``initramfs``."""
    return {"tool": _TOOLS.get(_find_command(host), "none"), "outdated": _outdated(host)}


def _outdated(host: Host) -> list[str]:
    """Return the kernels whose disk is older than the driver's settings: it has others, or none."""
    oldest = max(_changed_at(host, path) for path in _SETTINGS) - _OFF_S
    if oldest > time.time():  # the clock was set back since: that time says nothing
        return []
    disks = _disks(host)
    kernels = filter(_RELEASE.fullmatch, commands_to_rebuild(host))
    return [each for each in kernels if _changed_at(host, f"{_BOOT}/{disks[each]}") < oldest][:_MAX_KERNELS]


def _changed_at(host: Host, path: str) -> float:
    try:
        return host.path(path).stat().st_mtime
    except OSError:
        return 0.0


def rebuild(host: Host) -> str:
    """Rebuild those that there are, and return their kernels; raises `InitramfsError` when all were tried."""
    commands, complaints = commands_to_rebuild(host), []
    for kernel, command in commands.items():
        make = _rebuild_beside if command[0] == "dracut" else _run
        try:
            make(host, kernel, command)
        except InitramfsError as error:  # the one that boots next may be another one
            complaints.append(str(error))
    if complaints:
        raise InitramfsError("; ".join(complaints))
    return ", ".join(commands)


def commands_to_rebuild(host: Host) -> dict[str, list[str]]:
    """Return what would be run, by kernel."""
    found, command = _disks(host), _find_command(host)
    if command == "update-initramfs":
        return {kernel: [command, "-u", "-k", kernel] for kernel, name in found.items() if name.startswith(_DEBIAN)}
    if command == "dracut":  # without a name it takes one that not every boot loader starts
        return {kernel: [command, "--force", f"{_BESIDE}/{name}", kernel] for kernel, name in found.items()}
    return {}


def _rebuild_beside(host: Host, kernel: str, command: list[str]) -> None:
    """Have a disk written beside the one that there is, which is replaced once the new one is whole."""
    folder, new = host.path(_BESIDE), host.path(command[2])
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
    try:
        folder.mkdir(mode=0o700)
        _run(host, kernel, command)
        place = Path(os.path.realpath(host.path(f"{_BOOT}/{new.name}")))  # a link stays, as it does with dracut
        new.replace(place)
        sync_folder(place.parent)
    except OSError as error:
        raise InitramfsError(_complaint(kernel, str(error))) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(host: Host, kernel: str, command: list[str]) -> None:
    done = host.run([*_LOW, *command], _TIMEOUT_S)
    if done.return_code:
        raise InitramfsError(_complaint(kernel, done.complaints))


def _find_command(host: Host) -> str:
    """Return what writes the disks that this machine boots with, empty without any.

    Ubuntu 26.04 has the commands of both, and the kernels' packages call dracut's.
    """
    there = [command for command in _TOOLS if host.find_command(command)]
    called = {name for folder in _HOOKS for name in host.names(folder)}
    named = [command for command in there if _TOOLS[command] in called]
    return next(iter(named or there), "")


def _disks(host: Host) -> dict[str, str]:
    """Return the name of each kernel's disk; one without modules is a backup, or a rescue system."""
    found: dict[str, str] = {}
    names = host.names(_BOOT)
    for start, end in _NAMES:
        for name in names:
            kernel = name[len(start) : len(name) - len(end)]
            is_named = name.startswith(start) and name.endswith(end) and bool(kernel)
            if is_named and host.path(f"/lib/modules/{kernel}").is_dir():
                found.setdefault(kernel, name)
    return found


def _complaint(kernel: str, why: str) -> str:
    return f"the initramfs of kernel {kernel} could not be rebuilt, so it may load the former driver: {why}"

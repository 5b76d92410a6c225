"""Loads, unloads and queries kernel modules (modprobe, rmmod, modinfo); names are the kernel's, with underscores.

A distribution may rename the file of a module and give modprobe an install command for it: Debian's ``nvidia`` is
``modprobe -i nvidia-current``. modprobe follows that and modinfo does not, so the file is asked of modprobe.

Questions raise HostError when they are not answered in time: a module that nobody could look at is not a missing one.
"""

from __future__ import annotations

import shlex
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

MODULES = "/sys/module"
_PCI = "/sys/bus/pci/devices"
_VENDOR = "0x10de"
_LOADED_AT_BOOT = ("/etc/modules-load.d", "/run/modules-load.d", "/usr/lib/modules-load.d")
NOTHING: Mapping[str, str | None] = MappingProxyType({})
_QUERY_TIMEOUT_S = 60.0
_READ_TIMEOUT_S = 180.0  # a compressed module of 90 MB: a second on a free machine, many on one that is busy
_CHANGE_TIMEOUT_S = 300.0  # initialising many GPUs takes its time
_MAX_INDIRECTIONS = 3


def version_on_disk(host: Host, name: str, known: Mapping[str, str | None] = NOTHING) -> str | None:
    """Version of the file that ``modprobe name`` would load for the running kernel, None when there is none.

    ``known`` are versions by file that were read before: a compressed module is a second of work.
    """
    file = module_file(host, name)
    if file is None:
        return None
    if known.get(file):
        return known[file]
    shown = host.ask(["modinfo", "--field", "version", file], _READ_TIMEOUT_S)
    return shown.stdout.strip() or None if shown.return_code == 0 else None


def describe_module(host: Host, file: str) -> dict[str, str]:
    """Return the fields of a module's file that occur once; none where it cannot be read."""
    shown = host.ask(["modinfo", file], _READ_TIMEOUT_S)
    fields = (line.partition(":") for line in shown.stdout.splitlines() if shown.return_code == 0)
    return {name: value.strip() for name, _, value in fields}


def module_file(host: Host, name: str, kernel: str = "") -> str | None:
    """Return the file that ``modprobe name`` would load, for the running kernel or another one."""
    options = ["--set-version", kernel] if kernel else []
    for _ in range(_MAX_INDIRECTIONS):
        shown = host.ask(["modprobe", "--show-depends", *options, name], _QUERY_TIMEOUT_S)
        lines = shown.stdout.strip().splitlines()
        if shown.return_code or not lines:
            return None
        action, _, rest = lines[-1].strip().partition(" ")
        if action == "insmod":
            return rest.split(" ", 1)[0]
        name, more = _parse_install(rest)
        options = [*(["--set-version", kernel] if kernel else []), *more]
        if not name:
            return None  # the command loads nothing: that is how a module is kept out
    return None


def _parse_install(command: str) -> tuple[str, list[str]]:
    """Find what an install command of modprobe.d(5) loads at its end: a module's name, and options to ask for it."""
    try:
        words = shlex.split(command.replace(";", " ; ").replace("&&", " ; "))
    except ValueError:
        return "", []
    name, ignores, is_modprobe = "", False, False
    for word in words:
        if word.rsplit("/", 1)[-1] == "modprobe":
            name, ignores, is_modprobe = "", False, True
        elif word == ";":
            is_modprobe = False
        elif is_modprobe and word.startswith("-"):
            ignores = ignores or word in ("-i", "--ignore-install")
        elif is_modprobe and not name and not word.startswith("$"):
            name = word
    return name, ["--ignore-install"] if ignores else []


def loaded_version(host: Host, name: str) -> str | None:
    """Version of a loaded module, None when it is not loaded or says none."""
    return host.read_text(f"{MODULES}/{name}/version") or None


def is_loaded(host: Host, name: str) -> bool:
    """Tell whether a module is loaded."""
    return host.path(f"{MODULES}/{name}").is_dir()


def users_of(host: Host, name: str) -> tuple[list[str], int]:
    """Return the modules that need a loaded module, and how often it is used by anything else."""
    modules = host.names(f"{MODULES}/{name}/holders")
    count = host.read_text(f"{MODULES}/{name}/refcnt")
    return modules, max(0, int(count) - len(modules)) if count and count.isdecimal() else 0


def can_be_unloaded(host: Host, name: str) -> bool:
    """Tell whether the kernel can unload a loaded module: it counts the users of those alone, and of none built in."""
    return host.read_text(f"{MODULES}/{name}/refcnt") is not None


def load(host: Host, name: str) -> str:
    """Load a module and what it needs; returns why that failed, empty when it is loaded."""
    done = host.run(["modprobe", name], _CHANGE_TIMEOUT_S)
    return done.complaints if done.return_code else ""


def loaded_at_boot(host: Host, names: Sequence[str]) -> list[str]:
    """Return which of these modules systemd or udev would load at the next boot, and are not loaded.

    systemd reads modules-load.d(5); udev loads every module that has the modalias of a device.
    """
    listed = [
        line.strip()
        for folder in _LOADED_AT_BOOT
        for file in host.names(folder)
        if file.endswith(".conf")
        for line in (host.read_text(f"{folder}/{file}") or "").splitlines()
    ]
    devices = (f"{_PCI}/{address}" for address in host.names(_PCI))
    aliases = {host.read_text(f"{one}/modalias") or "" for one in devices if host.read_text(f"{one}/vendor") == _VENDOR}
    for alias in sorted(filter(None, aliases)):
        shown = host.ask(["modprobe", "--resolve-alias", alias.strip()], _QUERY_TIMEOUT_S)
        listed += shown.stdout.split()
    found = {line.replace("-", "_") for line in listed}
    return [name for name in names if name in found and not is_loaded(host, name)]


def unload(host: Host, name: str) -> str:
    """Unload one module; returns why that failed, empty when it is gone."""
    done = host.run(["rmmod", name], _CHANGE_TIMEOUT_S)
    return done.complaints if done.return_code else ""

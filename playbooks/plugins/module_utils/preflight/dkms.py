"""Reads what DKMS has built, from its tree: ``dkms status`` is a shell script that takes a second for each module.

The tree (dkms(8)): ``MODULE/VERSION/source``, ``MODULE/VERSION/KERNEL/ARCH/module/*.ko*`` once built, and a link
``MODULE/kernel-KERNEL-ARCH`` to ``VERSION/KERNEL/ARCH`` while installed.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_TREE = "/var/lib/dkms"
_NO_AUTOINSTALL = "/etc/dkms/no-autoinstall"  # Debian's switch: packages register their modules and build nothing
_MODULES = re.compile(r"^(nvidia|gdrdrv)[A-Za-z0-9._+-]*$")
_WORD = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._+~-]*$")
_AUTOINSTALL = re.compile(r"""^\s*AUTOINSTALL=["']?([^"'\s#]*)""", re.MULTILINE)
_MODULE_FILE = re.compile(r"\.ko(\.(gz|xz|zst))?$")
_MAX_BUILDS = 256
_TIMEOUT_S = 20.0
_COMPILER = re.compile(r"^(gcc|cc|[a-z0-9_]+-linux-gnu-gcc)(-[0-9]+)?$")


def read_dkms(host: Host) -> list[dict[str, Any]]:
    """Return the facts ``dkms``: the driver's modules, with each kernel that they are built for."""
    found = (one for module in host.names(_TREE) if _MODULES.match(module) for one in _versions(host, module))
    return list(found)[:_MAX_BUILDS]


def _versions(host: Host, module: str) -> Iterator[dict[str, Any]]:
    folder = f"{_TREE}/{module}"
    installed = {_link(host, f"{folder}/{name}") for name in host.names(folder) if name.startswith("kernel-")}
    for version in host.names(folder):
        source = f"{folder}/{version}/source"
        if version.startswith("kernel-") or not _WORD.match(version) or not os.path.lexists(host.path(source)):
            continue
        of_version = {"module": module, "version": version, "autoinstall": _is_autoinstalled(host, module, version)}
        builds = list(_builds(host, f"{folder}/{version}"))
        for kernel, architecture in builds:
            is_installed = f"{version}/{kernel}/{architecture}" in installed
            state = "installed" if is_installed else "built"
            yield {**of_version, "kernel": kernel, "architecture": architecture, "state": state}
        if not builds:
            yield {**of_version, "kernel": "", "architecture": "", "state": "added"}


def _builds(host: Host, folder: str) -> Iterator[tuple[str, str]]:
    for kernel in host.names(folder):
        if kernel in ("build", "source") or not _WORD.match(kernel):
            continue
        for architecture in host.names(f"{folder}/{kernel}"):
            modules = host.names(f"{folder}/{kernel}/{architecture}/module")
            if _WORD.match(architecture) and any(_MODULE_FILE.search(name) for name in modules):
                yield kernel, architecture


def _link(host: Host, path: str) -> str:
    """Return ``VERSION/KERNEL/ARCH`` of a link, which may be relative or absolute."""
    try:
        target = host.path(path).readlink()
    except OSError:
        return ""
    return "/".join(target.parts[-3:])


def _is_autoinstalled(host: Host, module: str, version: str) -> bool:
    """Tell whether dkms.conf asks for a build for every new kernel; it does not unless it says so."""
    text = host.read_text(f"/usr/src/{module}-{version}/dkms.conf")
    if text is None:
        text = host.read_text(f"{_TREE}/{module}/{version}/source/dkms.conf") or ""
    match = _AUTOINSTALL.search(text)
    return match is not None and match.group(1).lower() in ("yes", "y", "1", "true")


def read_build_tools(host: Host) -> dict[str, Any]:
    """Return the facts ``build_tools``; the version of DKMS is asked of it only where it is installed."""
    return {
        "dkms": _dkms_version(host),
        "gcc": any(_COMPILER.match(name) for folder in ("/usr/bin", "/usr/local/bin") for name in host.names(folder)),
        "make": host.find_command("make") is not None,
        "autoinstall": not host.path(_NO_AUTOINSTALL).exists(),
    }


def _dkms_version(host: Host) -> str | None:
    if host.find_command("dkms") is None:
        return None
    shown = host.run(["dkms", "--version"], _TIMEOUT_S).stdout.strip()
    version = shown.removeprefix("dkms").lstrip(":- ").split("\n", 1)[0]
    return version if _WORD.match(version) else ""

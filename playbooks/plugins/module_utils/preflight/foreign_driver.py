"""Finds a driver that no package owns: one of NVIDIA's installer (``.run``), or libraries that somebody copied there.

Packages would overwrite parts of it, and its uninstaller would later remove parts of theirs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_UNINSTALLERS = ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer")
_INSTALLED_LOG = "/var/lib/nvidia/log"  # the installer's list of what it installed, its version in the first line
_INSTALLER_LOG = "/var/log/nvidia-installer.log"
_INSTALLER_VERSION = re.compile(r"^installer version: *(\S+)", re.MULTILINE)
_VERSION = re.compile(r"^[0-9]{3}\.[0-9]+(\.[0-9]+)?$")
_LIBRARY_FOLDERS = ("/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib")
_LIBRARY = re.compile(r"^lib(?:cuda|nvidia-ml)\.so\.([0-9]{3}\.[0-9]+(?:\.[0-9]+)?)$")


def read_foreign_driver(host: Host, is_owned: Callable[[Host, str], bool]) -> dict[str, Any] | None:
    """Return the facts ``foreign_driver``, None when there is no such driver."""
    uninstaller = next((path for path in _UNINSTALLERS if host.path(path).exists()), None)
    if uninstaller is not None:
        return {"kind": "runfile", "version": _installed_version(host), "uninstaller": uninstaller, "files": []}
    files = [(path, version) for path, version in _libraries(host) if not is_owned(host, path)]
    if not files:
        return None
    return {"kind": "files", "version": files[0][1], "uninstaller": None, "files": [path for path, _ in files]}


def _installed_version(host: Host) -> str | None:
    first = (host.read_text(_INSTALLED_LOG) or "").split("\n", 1)[0].strip()
    logged = _INSTALLER_VERSION.search(host.read_text(_INSTALLER_LOG) or "")
    candidates = (first, logged.group(1) if logged else "")
    return next((version for version in candidates if _VERSION.match(version)), None)


def _libraries(host: Host) -> Iterator[tuple[str, str]]:
    """Yield the driver's libraries that are files: a package may well lead there by a link."""
    for folder in _LIBRARY_FOLDERS:
        if host.path(folder).is_symlink():
            continue
        for name in host.names(folder):
            match = _LIBRARY.match(name)
            if match is not None and not host.path(f"{folder}/{name}").is_symlink():
                yield f"{folder}/{name}", match.group(1)

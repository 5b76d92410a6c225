"""Checks what the machine needs before a site can be created; one line for each thing that is missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from lab.machine.command import run
from lab.machine.errors import CommandError, HostError

PACKAGES_FILE = Path(__file__).parents[1] / "apt-packages.txt"
TOOLS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "gpg": "gpg",
    "gcc": "gcc",
    "depmod": "kmod",
    "dpkg-deb": "dpkg",
    "apt-get": "apt",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
FILESYSTEMS = Path("/proc/filesystems")


def missing_requirements() -> list[str]:
    """Return one line for each reason why a site cannot run here; empty if there is none."""
    lines = [] if os.geteuid() == 0 else ["not root (nodes need namespaces, mounts and bridges: use sudo)"]
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    lines += [
        f"{tool} is missing (apt-get install {package})"
        for tool, package in TOOLS.items()
        if shutil.which(tool, path=path) is None
    ]
    if not _has_overlayfs():
        lines.append("the kernel has no overlayfs (nodes are overlay clones of a base tree)")
    return lines


def require_machine() -> None:
    """Raise ``HostError`` with everything that is missing, one line each."""
    lines = missing_requirements()
    if lines:
        raise HostError(f"this machine cannot run nodes: {lines[0]}", hint="\n".join(lines[1:]))


def _has_overlayfs() -> bool:
    if "\toverlay\n" in FILESYSTEMS.read_text():
        return True
    try:
        run(["modprobe", "overlay"], timeout_s=10)
    except (CommandError, HostError):
        return False
    return "\toverlay\n" in FILESYSTEMS.read_text()

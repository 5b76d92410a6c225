"""Reads whether nouveau, the kernel's own driver for NVIDIA GPUs, is loaded or will be at the next boot."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_MODULE = "/sys/module/nouveau"
_CMDLINE = "/proc/cmdline"
_MODULES = "/lib/modules"
_DRIVER = "kernel/drivers/gpu/drm/nouveau"
_FOLDERS = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
_KEPT_OUT = re.compile(
    r"^\s*(?:blacklist\s+nouveau|install\s+nouveau\s+/\S*/(?:false|true)|alias\s+nouveau\s+off)\b", re.MULTILINE
)
_PARAMETER = re.compile(r"^(?:modprobe\.blacklist|module_blacklist|rd\.driver\.blacklist)=(?:.*,)?nouveau(?:,|$)")


def read_nouveau(host: Host) -> dict[str, Any]:
    """Return the facts ``nouveau``; a module that no kernel of the machine has counts as kept out."""
    return {
        "loaded": host.path(_MODULE).is_dir(),
        "blacklisted": _is_kept_out(host) or not _is_there(host),
    }


def _is_kept_out(host: Host) -> bool:
    words = (host.read_text(_CMDLINE) or "").split()
    if any(_PARAMETER.match(word) for word in words):
        return True
    paths = (f"{folder}/{name}" for folder in _FOLDERS for name in host.names(folder) if name.endswith(".conf"))
    return any(_KEPT_OUT.search(host.read_text(path) or "") for path in paths)


def _is_there(host: Host) -> bool:
    return any(host.path(f"{_MODULES}/{release}/{_DRIVER}").is_dir() for release in host.names(_MODULES))

"""Finds what writes the initial file system that a kernel boots with: it may hold nouveau, or an old driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_TOOLS = {"update-initramfs": "initramfs-tools", "dracut": "dracut"}  # by command, in the order of preference


def read_initramfs(host: Host) -> dict[str, str]:
    """Return the facts ``initramfs``."""
    return {"tool": next((tool for command, tool in _TOOLS.items() if host.find_command(command)), "none")}

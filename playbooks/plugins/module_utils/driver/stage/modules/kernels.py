"""Tells whether a node could build modules for its kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_MODULES = "/lib/modules"
_TOOLS = ("dkms", "gcc", "make")


def has_headers(host: Host, release: str) -> bool:
    """Tell what dkms asks for before it builds."""
    return host.path(f"{_MODULES}/{release}/build/include").is_dir()


def has_modules(host: Host, release: str) -> bool:
    """Tell whether a module of the driver is on disk for a kernel, from whatever package."""
    found = host.path(f"{_MODULES}/{release}").rglob("nvidia*.ko*")
    return next(found, None) is not None


def missing_tools(host: Host) -> list[str]:
    """Return the commands for building that the node lacks."""
    return [name for name in _TOOLS if host.find_command(name) is None]


def without_headers(host: Host, releases: Iterable[str]) -> list[str]:
    """Return the kernels that no module can be built for."""
    return [release for release in releases if not has_headers(host, release)]

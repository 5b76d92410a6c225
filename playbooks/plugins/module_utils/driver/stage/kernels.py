"""Tells which kernels a node has, and whether it could build modules for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_MODULES = "/lib/modules"
_TIMEOUT_S = 10.0
_TOOLS = ("dkms", "gcc", "make")


def installed_kernels(host: Host) -> list[str]:
    """Return the releases of the running kernel and of those that could be booted."""
    running = host.run(["uname", "-r"], _TIMEOUT_S).stdout.strip()
    bootable = (name for name in host.names(_MODULES) if _has_image(host, name))
    return sorted({*bootable, running} - {""})


def _has_image(host: Host, release: str) -> bool:
    return host.path(f"/boot/vmlinuz-{release}").exists() or host.path(f"{_MODULES}/{release}/vmlinuz").exists()


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

"""Tells how a node has moved away from what it was when a change was staged on it; no file is digested for that.

A set that is made for another node than this one now is must not be swapped in: a kernel would be without a module, or
the way back would lead somewhere else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import QUARANTINED, read_run
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.seal import SEAL
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import (
    StoreError,
    current_change,
    read_change,
    staged_folder,
)
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import ReadInstalled

FOUND = "found.json"  # the node as it was: kernels, and versions of the packages that the change touches
_MODULES = "/lib/modules"
_TIMEOUT_S = 10.0
_MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Found:
    """What a node had when a change was staged; None is a package that was not installed."""

    kernels: tuple[str, ...] = ()
    packages: Mapping[str, str | None] | None = None

    def document(self) -> dict[str, Any]:
        """Return it as ``found.json`` has it."""
        return {"kernels": list(self.kernels), "packages": dict(self.packages or {})}


@dataclass(frozen=True)
class Moved:
    """A package that is neither as it was when the change was staged, nor as the change has it."""

    name: str
    then: str | None
    now: str | None

    def __str__(self) -> str:
        return f"{self.name} ({self.then or 'not installed'} then, {self.now or 'not installed'} now)"


def find_now(host: Host, read: ReadInstalled, names: set[str]) -> Found:
    """Return what a node has now; raises `PackageError`."""
    installed = read(host, names)
    versions = {name: installed[name].version if name in installed else None for name in sorted(names)}
    return Found(tuple(installed_kernels(host)), versions)


def read_found(host: Host, identifier: str) -> Found:
    """Return what the node had when a change was staged, nothing where that is not known."""
    document = _read(host, f"{staged_folder(identifier)}/{FOUND}")
    kernels, packages = document.get("kernels"), document.get("packages")
    return Found(
        tuple(str(one) for one in kernels) if isinstance(kernels, list) else (),
        {str(name): None if was is None else str(was) for name, was in packages.items()}
        if isinstance(packages, dict)
        else {},
    )


def running_kernel(host: Host) -> str:
    """Return the release of the kernel that runs."""
    return host.run(["uname", "-r"], _TIMEOUT_S).stdout.strip()


def installed_kernels(host: Host) -> list[str]:
    """Return the releases of the running kernel and of those that could be booted."""
    bootable = (name for name in host.names(_MODULES) if _has_image(host, name))
    return sorted({*bootable, running_kernel(host)} - {""})


def _has_image(host: Host, release: str) -> bool:
    return host.path(f"/boot/vmlinuz-{release}").exists() or host.path(f"{_MODULES}/{release}/vmlinuz").exists()


def new_kernels(host: Host, change: DriverChange, then: Found) -> list[str]:
    """Return kernels that were installed since: the node may boot one of them next, without a driver."""
    known = {*change.kernels, *then.kernels}
    return [kernel for kernel in installed_kernels(host) if kernel not in known] if change.has_module else []


def moved_packages(host: Host, read: ReadInstalled, change: DriverChange, then: Found) -> list[Moved]:
    """Return packages that somebody else has changed since; raises `PackageError`."""
    before, wanted = dict(then.packages or {}), {one.name: one.version for one in change.packages}
    present = read(host, before) if before else {}
    now = {name: present[name].version if name in present else None for name in before}
    return [Moved(name, old, now[name]) for name, old in before.items() if now[name] not in (old, wanted.get(name))]


def is_begun(host: Host, identifier: str) -> bool:
    """Tell whether a change was swapped in, or half of it: the node is then no longer what it was, and need not be."""
    run = read_run(host)
    is_half = run is not None and run.change == identifier and (run.is_open or run.state == QUARANTINED)
    return is_half or current_change(host) == identifier


def still_fits(host: Host, read: ReadInstalled, identifier: str) -> bool:
    """Tell, as far as that is cheap, whether a sealed set could be swapped in as it is."""
    folder = staged_folder(identifier)
    sealed = host.path(f"{folder}/{SEAL}")
    if not sealed.is_file() or not all(_is_there(host, folder, place) for place in _read(host, f"{folder}/{SEAL}")):
        return False
    if is_begun(host, identifier):
        return True
    try:
        change, then = read_change(host, folder), read_found(host, identifier)
        return not new_kernels(host, change, then) and not moved_packages(host, read, change, then)
    except (StoreError, PackageError):
        return False


def _is_there(host: Host, folder: str, place: str) -> bool:
    return host.path(f"{folder}/{place}").is_file()


def _read(host: Host, path: str) -> dict[str, Any]:
    try:
        said = json.loads(host.read_text(path, _MAX_BYTES) or "")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}

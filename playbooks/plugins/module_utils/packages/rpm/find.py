"""Finds package files below a folder by the name and version that rpm reads in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_TIMEOUT_S = 60.0
_FORMAT = "%{NAME} %|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\n"


def find_package(host: Host, folder: str, name: str, version: str) -> str | None:
    """Return the file of a package at ``[epoch:]version-release``, None when the folder has none."""
    place = host.path(folder)
    release = version.partition(":")[2] or version
    found = sorted(place.rglob(f"{name}-{release}.*.rpm")) if place.is_dir() else []
    files = [f"{folder}/{path.relative_to(place)}" for path in found]
    return next((file for file in files if _described(host, file) in _spellings(name, version)), None)


def _described(host: Host, file: str) -> str:
    asked = ["rpm", "--query", "--package", "--nosignature", "--queryformat", _FORMAT, file]
    return host.run(asked, _TIMEOUT_S).stdout.strip()


def _spellings(name: str, version: str) -> Iterable[str]:
    """Return what a package may be called: an epoch of 0 is written or left out."""
    return (f"{name} {version}", f"{name} 0:{version}")

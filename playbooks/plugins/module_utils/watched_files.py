"""Content of the files that the planner reads or owns."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.file_set import is_leftover
from ansible_collections.grapnel.node.plugins.module_utils.units import RELEASED, RELOAD_MARK, RESTART_MARKS, SITE_MARK

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_CONTENT_LIMIT_BYTES = 256 * 1024
_FILES = (
    "/etc/apt/preferences",
    "/etc/containerd/config.toml",
    "/etc/containerd/conf.d/99-nvidia.toml",
    "/etc/containers/oci/hooks.d/99-grapnel.json",
    "/etc/crio/crio.conf",
    "/etc/crio/crio.conf.d/99-nvidia.conf",
    "/etc/docker/daemon.json",
    "/etc/grapnel/containerd/base-spec.json",
    "/etc/grapnel/hook.json",
    "/etc/grapnel/node.json",
    "/etc/systemd/system/grapnel-node.service",
    "/etc/apt/preferences.d/00-grapnel-nvidia",
    "/usr/share/containers/oci/hooks.d/99-grapnel.json",
    f"{RESTART_MARKS}/containerd.service",
    f"{RESTART_MARKS}/crio.service",
    f"{RESTART_MARKS}/docker.service",
    f"{RESTART_MARKS}/grapnel-node.service",
    RELOAD_MARK,
    RELEASED,
    SITE_MARK,
)
_FOLDERS = ("/etc/apt/preferences.d", "/etc/containerd/conf.d", "/etc/crio/crio.conf.d")


def read_files(host: Host, more: list[str]) -> dict[str, Any]:
    """Facts ``files``: what the planner always asks for, files beside those, and ``more``; absent ones are None."""
    beside = (f"{folder}/{name}" for folder in _FOLDERS for name in host.names(folder) if not is_leftover(name))
    return {_as_text(path): _read_file(host, path) for path in sorted({*_FILES, *beside, *more})}


def _as_text(path: str) -> str:
    """Return a path whose name may not be UTF-8 as text that can be sent."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _read_file(host: Host, path: str) -> dict[str, Any] | None:
    place = host.path(path)
    if not place.is_file():
        return None
    with place.open("rb") as stream:
        status = os.fstat(stream.fileno())
        start = stream.read(_CONTENT_LIMIT_BYTES)
        digest = hashlib.sha256(start)
        while more := stream.read(_CONTENT_LIMIT_BYTES):
            digest.update(more)
    return {
        "mode": f"{status.st_mode & 0o7777:04o}",
        "uid": status.st_uid,
        "gid": status.st_gid,
        "sha256": digest.hexdigest(),
        "content": _text(start),
    }


def _text(start: bytes) -> str | None:
    """Decode what is small enough and text."""
    if len(start) >= _CONTENT_LIMIT_BYTES:
        return None
    try:
        return start.decode("utf-8")
    except UnicodeDecodeError:
        return None

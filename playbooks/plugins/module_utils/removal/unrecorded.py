"""Finds what releases of grapnel that kept no record of it have changed on a node.

What is grapnel's alone goes. How a file of somebody else was before is not known: what can be told to be grapnel's is
taken out, and the rest is said.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.file_set import FileText
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import Original
from ansible_collections.grapnel.node.plugins.module_utils.removal.parts import HOOK_CONFIG, Reader
from ansible_collections.grapnel.node.plugins.module_utils.units import DAEMON_UNIT

if TYPE_CHECKING:
    from collections.abc import Collection

    from ansible_collections.grapnel.node.plugins.module_utils.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import Originals

_CONTAINERD = Reader("containerd.service", "containerd")
_CRIO = Reader("crio.service", "crio")
_DOCKER = Reader("docker.service", "docker", reloads=True)
_DAEMON = Reader(DAEMON_UNIT)
_CONTAINERD_MAIN, _DOCKER_MAIN = "/etc/containerd/config.toml", "/etc/docker/daemon.json"
_CONTAINERD_DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
_OWN = {
    "/etc/containers/oci/hooks.d/99-grapnel.json": Reader("", "podman"),
    "/etc/grapnel/containerd/base-spec.json": _CONTAINERD,
    "/etc/grapnel/declared-devices.json": _DAEMON,
    HOOK_CONFIG: Reader(),
    "/etc/grapnel/gpu-settings.json": Reader(),
    "/etc/grapnel/mig-layout.json": Reader(),
    "/etc/grapnel/node.json": _DAEMON,
    "/etc/grapnel/nvidia.json": _DAEMON,
    f"/etc/systemd/system/{DAEMON_UNIT}": _DAEMON,
    "/usr/share/containers/oci/hooks.d/99-grapnel.json": _CRIO,
}
# NVIDIA's toolkit has files of the same names.
_IF_MARKED = {_CONTAINERD_DROP_IN: _CONTAINERD, "/etc/crio/crio.conf.d/99-nvidia.conf": _CRIO}
_MARK = "managed by grapnel"
_WRAPPER = "/usr/lib/grapnel/hook/grapnel-runtime"
_LIMIT_BYTES = 256 * 1024


@dataclass(frozen=True)
class Unrecorded:
    """Files without a record, as the originals that can be made up for them, and what cannot be given back."""

    files: dict[str, Original]
    notes: tuple[str, ...] = ()


def find_unrecorded(host: Host, originals: Originals, only: Collection[str] | None = None) -> Unrecorded:
    """Return the files of grapnel's that ``originals`` does not tell of, of ``only`` these paths if it is given."""
    found: dict[str, Original] = {}
    notes: list[str] = []
    for path, reader in (*_OWN.items(), *_IF_MARKED.items()):
        text = _read(host, path)
        is_ours = text is not None and (path in _OWN or text.startswith(f"# {_MARK}"))
        if is_ours and path not in originals.files and (only is None or path in only):
            found[path] = Original(None, FileText(path, text or "", 0o644), reader, is_mixed=True)
    drop_in = originals.files.get(_CONTAINERD_DROP_IN, found.get(_CONTAINERD_DROP_IN))
    if drop_in is not None and drop_in.is_mixed and _CONTAINERD_MAIN not in originals.files:
        notes.append(
            f"{_CONTAINERD_MAIN} keeps its imports: grapnel has no record of how it was before; one that matches no "
            "file does nothing"
        )
    docker = None if _DOCKER_MAIN in originals.files else _of_docker(_read(host, _DOCKER_MAIN))
    if docker is not None and (only is None or _DOCKER_MAIN in only):
        found[_DOCKER_MAIN] = docker
        notes.append(f"{_DOCKER_MAIN} keeps its layout and features: grapnel has no record of how it was before")
    return Unrecorded(found, tuple(notes))


def _of_docker(text: str | None) -> Original | None:
    try:
        tree = json.loads(text or "")
        ours = {name for name, one in tree["runtimes"].items() if one.get("path") == _WRAPPER}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return None
    if not ours:
        return None
    others = {name: one for name, one in tree["runtimes"].items() if name not in ours}
    before = {**tree, "runtimes": others} if others else {key: tree[key] for key in tree if key != "runtimes"}
    was = FileText(_DOCKER_MAIN, json.dumps(before, indent=2, ensure_ascii=False) + "\n", 0o644)
    return Original(was if before else None, FileText(_DOCKER_MAIN, text or "", 0o644), _DOCKER)


def _read(host: Host, path: str) -> str | None:
    try:
        with host.open(path) as stream:
            return stream.read(_LIMIT_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return None

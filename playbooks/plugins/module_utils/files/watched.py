"""Reads the files that the planner reads or owns."""

from __future__ import annotations

import hashlib
import os
import re
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.engines import of_kubernetes as kubernetes_engines
from ansible_collections.grapnel.node.plugins.module_utils.engines.containerd_imports import (
    MAIN,
    read_base_specs,
    read_imports,
)
from ansible_collections.grapnel.node.plugins.module_utils.files.leftovers import is_leftover
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import (
    RELEASED,
    RELOAD_MARK,
    RESTART_MARKS,
    SITE_MARK,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_CONTENT_LIMIT_BYTES = 256 * 1024
# Where packages of the driver are found, what keeps their version, and what the kernel is told about the module.
_DRIVER_FILES = (
    "/etc/apt/keyrings/grapnel-nvidia.asc",
    "/etc/apt/preferences.d/00-grapnel-nvidia",
    "/etc/apt/sources.list.d/grapnel-nvidia.sources",
    "/etc/dnf/plugins/versionlock.list",
    "/etc/modprobe.d/grapnel-nvidia.conf",
    "/etc/dnf/modules.d/nvidia-driver.module",
    "/etc/modules-load.d/grapnel-nvidia.conf",
    "/etc/pki/rpm-gpg/RPM-GPG-KEY-grapnel-nvidia",
    "/etc/yum.repos.d/grapnel-nvidia.repo",
    "/etc/zypp/locks",
    "/etc/zypp/repos.d/grapnel-nvidia.repo",
)
_FILES = (
    "/etc/apt/preferences",
    "/etc/containerd/config.toml",
    "/etc/containerd/conf.d/99-nvidia.toml",
    "/etc/containers/oci/hooks.d/99-grapnel.json",
    "/etc/crio/crio.conf",
    "/etc/crio/crio.conf.d/99-nvidia.conf",
    "/etc/docker/daemon.json",
    "/etc/grapnel/containerd/base-spec.json",
    "/etc/grapnel/declared-configs.json",
    "/etc/grapnel/declared-devices.json",
    "/etc/grapnel/declared.json",
    "/etc/grapnel/gpu-settings.json",
    "/etc/grapnel/hook.json",
    "/etc/grapnel/kubelet.json",
    "/etc/grapnel/mig-layout.json",
    "/etc/grapnel/node.json",
    "/etc/grapnel/nvidia.json",
    "/etc/default/grub.d/90-grapnel.cfg",
    "/etc/grapnel/tuning.json",
    "/etc/sysctl.d/90-grapnel.conf",
    "/etc/systemd/system/grapnel-drift.service",
    "/etc/systemd/system/grapnel-drift.timer",
    "/etc/systemd/system/grapnel-node.service",
    *_DRIVER_FILES,
    "/usr/local/sbin/nvidia-container-runtime-hook",
    "/usr/share/containers/oci/hooks.d/99-grapnel.json",
    f"{RESTART_MARKS}/containerd.service",
    f"{RESTART_MARKS}/crio.service",
    f"{RESTART_MARKS}/docker.service",
    f"{RESTART_MARKS}/grapnel-node.service",
    RELOAD_MARK,
    RELEASED,
    SITE_MARK,
)
_MARKS = tuple(f"{RESTART_MARKS}/{unit}" for unit in kubernetes_engines.UNITS)
_CRIO_CONFIG = "/etc/crio/crio.conf"
_CRIO_FOLDER = "/etc/crio/crio.conf.d"
_FOLDERS = ("/etc/apt/preferences.d", "/etc/containerd/conf.d", _CRIO_FOLDER)
_CLASSES = "/etc/grapnel/devices.d"
_CONFIGS = "/etc/grapnel/nvidia.d"  # of which a label of the Node names one
# Folders of OCI hook files that CRI-O and Podman read by themselves; CRI-O's configuration may name others.
_HOOK_FOLDERS = ("/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d")
_HOOK_SUFFIX = _CLASS_SUFFIX = ".json"
_MAX_CLASSES = _MAX_CONFIGS = 64
_MAX_HOOK_FOLDERS = 6
_MAX_HOOK_FILES = 32  # of one folder
_COMMENT = re.compile(r"#[^\n]*")
_HOOKS_DIR = re.compile(r"""\bhooks_dir["']?\s*=\s*\[([^\]]*)\]""")
_ABSOLUTE = re.compile(r"""["'](/[^"'\n]*)["']""")


def read_files(host: Host, more: list[str]) -> dict[str, Any]:
    """Return facts ``files``: what the planner always needs, files beside those, and ``more``; absent ones are None."""
    beside = [f"{folder}/{name}" for folder in _FOLDERS for name in host.names(folder) if not is_leftover(name)]
    engines = [*chain(*read_imports(host).values()), *kubernetes_engines.files_of(host)]
    specs = [path for path in read_base_specs(host, [MAIN, *engines, *beside]) if path not in _FILES]
    paths = {
        *_FILES,
        *_MARKS,
        *beside,
        *_hook_files(host),
        *_class_files(host),
        *_config_files(host),
        *engines,
        *specs,
        *more,
    }
    links = {path for path in specs if host.path(path).is_symlink()}  # a base specification is read at its own place
    return {_as_text(path): None if path in links else _read_file(host, path) for path in sorted(paths)}


def _hook_files(host: Host) -> Iterator[str]:
    """Paths of the hook files that CRI-O and Podman read, of many the first."""
    for folder in islice(dict.fromkeys([*_HOOK_FOLDERS, *_folders_of_crio(host)]), _MAX_HOOK_FOLDERS):
        names = [name for name in host.names(folder) if name.endswith(_HOOK_SUFFIX)]
        yield from (f"{folder}/{name}" for name in names[:_MAX_HOOK_FILES])


def _class_files(host: Host) -> Iterator[str]:
    """Paths of the node daemon's device classes, as many as it reads."""
    names = [name for name in host.names(_CLASSES) if name.endswith(_CLASS_SUFFIX) and not is_leftover(name)]
    return (f"{_CLASSES}/{name}" for name in names[:_MAX_CLASSES])


def _config_files(host: Host) -> Iterator[str]:
    """Paths of the node daemon's configurations, as many as can be declared."""
    names = [name for name in host.names(_CONFIGS) if not is_leftover(name)]
    return (f"{_CONFIGS}/{name}" for name in names[:_MAX_CONFIGS])


def _folders_of_crio(host: Host) -> Iterator[str]:
    """Folders that CRI-O's files call ``hooks_dir``: which one counts is the planner's business.

    Read as text: a node's Python may have no TOML parser.
    """
    beside = (f"{_CRIO_FOLDER}/{name}" for name in host.names(_CRIO_FOLDER))
    for path in (_CRIO_CONFIG, *beside):
        text = _COMMENT.sub("", host.read_text(path, _CONTENT_LIMIT_BYTES) or "")
        for listed in _HOOKS_DIR.findall(text):
            yield from (os.path.normpath(found) for found in _ABSOLUTE.findall(listed))


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

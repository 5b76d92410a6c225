"""Reads the files that the planner reads or owns."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.engines.files import (
    KNOWN,
    find_base_specs,
    find_files,
    hook_files,
)
from ansible_collections.grapnel.node.plugins.module_utils.engines.table import UNITS
from ansible_collections.grapnel.node.plugins.module_utils.files.leftovers import is_leftover
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import (
    DAEMON_UNIT,
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
    "/etc/dnf/plugins/versionlock.conf",
    "/etc/dnf/plugins/versionlock.list",
    "/etc/dracut.conf.d/grapnel-nvidia.conf",
    "/etc/modprobe.d/grapnel-nvidia.conf",
    "/etc/dnf/modules.d/nvidia-driver.module",
    "/etc/modules-load.d/grapnel-nvidia.conf",
    "/etc/pki/rpm-gpg/RPM-GPG-KEY-grapnel-nvidia",
    "/etc/yum.repos.d/grapnel-nvidia.repo",
    "/etc/zypp/locks",
    "/etc/zypp/repos.d/grapnel-nvidia.repo",
)
_ENGINE_FILES = (
    "/etc/apt/keyrings/grapnel-cri-o.asc",
    "/etc/apt/keyrings/grapnel-docker.asc",
    "/etc/apt/sources.list.d/grapnel-cri-o.sources",
    "/etc/apt/sources.list.d/grapnel-docker.sources",
    "/etc/pki/rpm-gpg/RPM-GPG-KEY-grapnel-cri-o",
    "/etc/pki/rpm-gpg/RPM-GPG-KEY-grapnel-docker",
    "/etc/yum.repos.d/grapnel-cri-o.repo",
    "/etc/yum.repos.d/grapnel-docker.repo",
    "/etc/zypp/repos.d/grapnel-cri-o.repo",
)
_FILES = (
    "/etc/apt/preferences",
    "/etc/grapnel/declared-configs.json",
    "/etc/grapnel/declared-devices.json",
    "/etc/grapnel/declared.json",
    "/etc/grapnel/gpu-settings.json",
    "/etc/grapnel/hook.json",
    "/etc/grapnel/kubelet.json",
    "/etc/grapnel/mig-layout.json",
    "/etc/grapnel/node.json",
    "/etc/grapnel/nvidia.json",
    "/etc/grapnel/selinux/grapnel.cil",
    "/etc/default/grub.d/90-grapnel.cfg",
    "/etc/kernel/cmdline",
    "/etc/grapnel/tuning.json",
    "/etc/sysctl.d/90-grapnel.conf",
    "/etc/systemd/system/grapnel-drift.service",
    "/etc/systemd/system/grapnel-drift.timer",
    "/etc/systemd/system/grapnel-node.service",
    *_DRIVER_FILES,
    *_ENGINE_FILES,
    *(f"{RESTART_MARKS}/{unit}" for unit in (*UNITS, DAEMON_UNIT)),
    RELOAD_MARK,
    RELEASED,
    SITE_MARK,
)
_PREFERENCES = "/etc/apt/preferences.d"
_CLASSES = "/etc/grapnel/devices.d"
_CONFIGS = "/etc/grapnel/nvidia.d"  # of which a label of the Node names one
_CLASS_SUFFIX = ".json"
_MAX_CLASSES = _MAX_CONFIGS = 64


def read_files(host: Host, more: list[str]) -> dict[str, Any]:
    """Return facts ``files``: what the planner always needs, files beside those, and ``more``; absent ones are None."""
    engines = find_files(host)
    specs = find_base_specs(host, engines)
    paths = {
        *_FILES,
        *KNOWN,
        *_preferences(host),
        *hook_files(host),
        *_class_files(host),
        *_config_files(host),
        *engines,
        *specs,
        *more,
    }
    links = {path for path in specs if host.path(path).is_symlink()}  # a base specification is read at its own place
    return {_as_text(path): None if path in links else _read_file(host, path) for path in sorted(paths)}


def _preferences(host: Host) -> Iterator[str]:
    return (f"{_PREFERENCES}/{name}" for name in host.names(_PREFERENCES) if not is_leftover(name))


def _class_files(host: Host) -> Iterator[str]:
    """Paths of the node daemon's device classes, as many as it reads."""
    names = [name for name in host.names(_CLASSES) if name.endswith(_CLASS_SUFFIX) and not is_leftover(name)]
    return (f"{_CLASSES}/{name}" for name in names[:_MAX_CLASSES])


def _config_files(host: Host) -> Iterator[str]:
    """Paths of the node daemon's configurations, as many as can be declared."""
    names = [name for name in host.names(_CONFIGS) if not is_leftover(name)]
    return (f"{_CONFIGS}/{name}" for name in names[:_MAX_CONFIGS])


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

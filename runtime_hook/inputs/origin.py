"""Finds where a container comes from: its namespace and pod as the engine wrote them, and who runs the engine.

Only what the author of a pod cannot write counts. containerd sets its keys after everything that a handler passes on
(``DefaultCRIAnnotations``); CRI-O copies the pod's annotations first and the container's labels, which the kubelet
makes, over everything (``SpecAddAnnotations``). So each engine's keys can be the pod's own under the other one, and
which one it is tells the container's cgroup: its name is made of the engine's word and a random id.
"""

from __future__ import annotations

import os

from runtime_hook.base.errors import HookError, StateError
from runtime_hook.base.reading import read_regular
from runtime_hook.base.values import value
from runtime_hook.inputs.bundle import CRIO_CONTAINER_ANNOTATIONS

NOBODY = -1  # a user whom a namespace maps to none of the host's
CONTAINERD_KEYS = ("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.sandbox-name")
CRIO_KEYS = ("io.kubernetes.pod.namespace", "io.kubernetes.pod.name")
_UID_MAP = "/proc/self/uid_map"
_UID_MAP_FIELDS = 3
_MAP_LIMIT_BYTES = 1 << 16
_SYSTEMD_WORDS = 3  # slice, prefix and name of a scope


@value
class Origin:
    """A pod's namespace and name; empty where the engine tells none."""

    namespace: str = ""
    pod: str = ""


def find_origin(annotations: dict[str, str], cgroup: str = "") -> Origin:
    """Return where a container comes from by the annotations and ``linux.cgroupsPath`` of its ``config.json``."""
    is_crio = is_crio_cgroup(cgroup) if cgroup else CRIO_CONTAINER_ANNOTATIONS in annotations
    if is_crio and not cgroup and CONTAINERD_KEYS[0] in annotations:
        return Origin()  # it seems to come from both engines, and nothing tells which one it is
    namespace, pod = CRIO_KEYS if is_crio else CONTAINERD_KEYS
    return Origin(annotations.get(namespace, ""), annotations.get(pod, ""))


def is_crio_cgroup(path: str) -> bool:
    """Tell whether CRI-O named a cgroup: ``SLICE:crio:ID`` for systemd, ``/PARENT/crio-ID`` for cgroupfs.

    containerd's are ``SLICE:cri-containerd:ID`` and ``/PARENT/ID``; the ids are random hexadecimal numbers.
    """
    words = path.split(":")
    return words[1:2] == ["crio"] if len(words) == _SYSTEMD_WORDS else path.rpartition("/")[2].startswith("crio-")


def rootless_owner() -> int | None:
    """Return the user who runs a rootless engine: our own, else whom root of our user namespace is on the host."""
    if os.geteuid() != 0:
        return os.geteuid()  # runc's hooks run as its user, outside of any user namespace
    try:
        text = read_regular(_UID_MAP, _MAP_LIMIT_BYTES, HookError)
    except (OSError, HookError):
        return None
    return parse_owner(text.decode("ascii", "replace"))


def parse_owner(uid_map: str) -> int | None:
    """Read a uid_map (user_namespaces(7)): None where root inside is root outside."""
    for line in uid_map.splitlines():
        fields = line.split()
        if len(fields) == _UID_MAP_FIELDS and fields[0] == "0" and fields[1].isdecimal():
            return int(fields[1]) or None
    return None


def host_user(pid: int, user: int) -> int:
    """Return the host's id of a user of a process's user namespace, as the kernel has it; NOBODY where it has none.

    A configuration need not tell: of a namespace that a container joins, Podman writes that root is the host's
    (``pkg/specgen/generate``: runc wants some mapping).
    """
    try:
        text = read_regular(f"/proc/{pid}/uid_map", _MAP_LIMIT_BYTES, StateError)
    except FileNotFoundError:
        raise StateError(f"container process {pid} has ended") from None
    return find_mapped(text.decode("ascii", "replace"), user)


def find_mapped(uid_map: str, user: int) -> int:
    """Return whom a uid_map makes of a user, NOBODY where it is silent."""
    for line in uid_map.splitlines():
        fields = line.split()
        if len(fields) == _UID_MAP_FIELDS and all(field.isdecimal() for field in fields):
            inside, outside, size = map(int, fields)
            if inside <= user < inside + size:
                return outside + user - inside
    return NOBODY

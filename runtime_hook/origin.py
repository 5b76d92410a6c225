"""Where a container comes from: its namespace and pod as the engine wrote them, and who runs the engine.

Only what the author of a pod cannot write counts. containerd sets its keys after everything that a handler passes on
(``DefaultCRIAnnotations``); CRI-O copies the pod's annotations first and the container's labels, which the kubelet
makes, over them (``SpecAddAnnotations``). So under CRI-O containerd's keys are the pod's, and a container that seems to
come from both engines comes from none.
"""

from __future__ import annotations

from runtime_hook.errors import HookError
from runtime_hook.reading import read_regular
from runtime_hook.values import value

CONTAINERD_KEYS = ("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.sandbox-name")
CRIO_KEYS = ("io.kubernetes.pod.namespace", "io.kubernetes.pod.name")
# CRI-O alone writes this one, for every container; Podman writes some of its other keys.
_CRIO_MARK = "io.kubernetes.cri-o.Annotations"
_UID_MAP = "/proc/self/uid_map"
_UID_MAP_FIELDS = 3


@value
class Origin:
    """A pod's namespace and name; empty where the engine tells none."""

    namespace: str = ""
    pod: str = ""


def find_origin(annotations: dict[str, str]) -> Origin:
    """Return where a container comes from by the annotations of its ``config.json``."""
    is_crio = _CRIO_MARK in annotations
    if is_crio and CONTAINERD_KEYS[0] in annotations:
        return Origin()
    namespace, pod = CRIO_KEYS if is_crio else CONTAINERD_KEYS
    return Origin(annotations.get(namespace, ""), annotations.get(pod, ""))


def rootless_owner() -> int | None:
    """Return the user who runs a rootless engine: whom root of this process's user namespace is on the host."""
    try:
        text = read_regular(_UID_MAP, 1 << 16, HookError)
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

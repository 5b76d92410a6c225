"""Says which keys of a GpuStack a key of the GPU operator becomes. Pure.

A carrier gets the value of one key, and returns keys of a GpuStack with their values, or None where this value has no
counterpart and `verdicts` has to tell.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

from provision.planning.draft.model import Said
from provision.planning.engines.table import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from provision.planning.draft.model import Path

    Carrier = Callable[[Any], "tuple[Said, ...] | None"]

_VERSION: Final = re.compile(r"[1-9][0-9]{2}\.[0-9]{1,3}(\.[0-9]{2})?\Z")
_BRANCH: Final = re.compile(r"[1-9][0-9]{2}\Z")
_LONGEST_DRAIN_MIN: Final = 1440
_LONGEST_WAIT_MIN: Final = 43_200
_ALL_AT_ONCE: Final = 100_000  # the operator's 0: as many as maxUnavailable lets go
_OF_K3S_AND_RKE2: Final = "/run/k3s/"  # both have their socket there
_ENGINE_VARIABLES: Final = tuple(
    f"toolkit.env[{kind}_{what}]"
    for kind in ("RUNTIME", "CONTAINERD", "CRIO", "DOCKER")
    for what in ("CONFIG", "DROP_IN_CONFIG", "SOCKET")
)


def _said(path: str, value: object) -> tuple[Said, ...]:
    keys: Path = tuple(path.split("."))
    return (Said(keys, value, ""),)


def _driver_version(value: Any) -> tuple[Said, ...] | None:
    if isinstance(value, str) and _VERSION.match(value):
        return _said("driver.version", value)
    return _said("driver.branch", value) if isinstance(value, str) and _BRANCH.match(value) else None


def _one_of(path: str, *choices: str) -> Carrier:
    return lambda value: _said(path, value) if value in choices else None


def _same(path: str, kind: type) -> Carrier:
    return lambda value: _said(path, value) if type(value) is kind else None


def _minutes(path: str, longest: int, *, infinite: int) -> Carrier:
    def carry(value: Any) -> tuple[Said, ...] | None:
        if type(value) is not int or value < 0:
            return None
        minutes = infinite if value == 0 else math.ceil(value / 60)
        return _said(path, min(minutes, longest))

    return carry


def _leaving(path: str) -> Carrier:
    """Carry a switch for pods that the operator deletes only if it is told to: else they are waited for."""
    return lambda value: _said(path, "evict" if value else "wait") if isinstance(value, bool) else None


def _parallel(value: Any) -> tuple[Said, ...] | None:
    if type(value) is not int or value < 0:
        return None
    return _said("rollout.maxParallel", value or _ALL_AT_ONCE)


def _unavailable(value: Any) -> tuple[Said, ...] | None:
    is_text = isinstance(value, str) and re.fullmatch(r"(100|[1-9][0-9]?)%", value) is not None
    is_number = type(value) is int and value > 0
    return _said("rollout.maxUnavailable", value) if is_text or is_number else None


def _engine(value: Any) -> tuple[Said, ...] | None:
    path = _path_of(value)
    found = next((engine for engine, known in ENGINES.items() if path.startswith(known.toolkit_paths)), None)
    return None if found is None else _said("runtime.engine", found.value)


def _path_of(value: object) -> str:
    path = value.removeprefix("unix://") if isinstance(value, str) else ""
    return path.removeprefix("/var") if path.startswith("/var/run/") else path


def is_of_k3s_or_rke2(path: str, value: object) -> bool:
    """Tell whether a variable names the engine of one of the two, and not of which."""
    return path in _ENGINE_VARIABLES and _path_of(value).startswith(_OF_K3S_AND_RKE2)


def _metrics(value: Any) -> tuple[Said, ...] | None:
    return _said("plugin.metricsAddress", "0.0.0.0:9400") if value is True else None


def _kernel_module(value: Any) -> tuple[Said, ...] | None:
    return _said("driver.kernelModule", value) if value in ("auto", "open", "proprietary") else None


def _claims(value: Any) -> tuple[Said, ...] | None:
    """Carry that GPUs are given by claims, by the node's own identity."""
    if value is not True:
        return None
    api = _said("plugin.kubernetesApi", "/etc/kubernetes/kubelet.conf")
    return (*_said("plugin.enabled", value=True), *_said("plugin.interface", "dra"), *api)


def _kubelet_root(value: Any) -> tuple[Said, ...] | None:
    root, _, last = value.rpartition("/") if isinstance(value, str) else ("", "", "")
    return _said("plugin.kubeletRoot", root) if last == "plugins" and root not in ("", "/var/lib/kubelet") else None


_UPGRADE: Final = "driver.upgradePolicy"
CARRIERS: Final[Mapping[str, Carrier]] = {
    "driver.enabled": _same("driver.enabled", bool),
    "driver.version": _driver_version,
    "driver.kernelModuleType": _kernel_module,
    f"{_UPGRADE}.maxParallelUpgrades": _parallel,
    f"{_UPGRADE}.maxUnavailable": _unavailable,
    f"{_UPGRADE}.waitForCompletion.podSelector": _same("rollout.waitFor.podSelector", str),
    f"{_UPGRADE}.waitForCompletion.timeoutSeconds": _minutes(
        "rollout.waitFor.timeoutMinutes", _LONGEST_WAIT_MIN, infinite=0
    ),
    f"{_UPGRADE}.podDeletion.timeoutSeconds": _minutes(
        "rollout.drainTimeoutMinutes", _LONGEST_DRAIN_MIN, infinite=_LONGEST_DRAIN_MIN
    ),
    f"{_UPGRADE}.podDeletion.force": _leaving("rollout.drain.withoutController"),
    f"{_UPGRADE}.podDeletion.deleteEmptyDir": _leaving("rollout.drain.withEmptyDir"),
    "operator.runtimeClass": _same("runtime.handler", str),
    **dict.fromkeys(_ENGINE_VARIABLES, _engine),
    "devicePlugin.enabled": _same("plugin.enabled", bool),
    "mig.strategy": _one_of("plugin.migStrategy", "none", "single", "mixed"),
    "dcgmExporter.enabled": _metrics,
    "hostPaths.kubeletRootDir": _same("plugin.kubeletRoot", str),
    # Of the chart of NVIDIA's DRA driver.
    "dra.resources.gpus.enabled": _claims,
    "dra.kubeletPlugin.kubeletPluginsDirectoryPath": _kubelet_root,
}
REASONS: Final[Mapping[str, str]] = {  # what a reader of the written file should know of a key
    "rollout.drain.withoutController": "the operator deletes pods without a controller only with podDeletion.force",
    "rollout.drain.withEmptyDir": "the operator deletes pods with an emptyDir only with podDeletion.deleteEmptyDir",
    "rollout.drainTimeoutMinutes": "podDeletion.timeoutSeconds in minutes",
    "rollout.maxParallel": "maxParallelUpgrades; its 0, no limit, is as many as maxUnavailable lets go",
    "plugin.kubernetesApi": "what kubeadm's nodes have; another distribution's kubelet has its own file",
    "plugin.metricsAddress": "where DCGM-exporter listens, now on the host; metrics have its names",
}

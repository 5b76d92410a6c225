"""Objects of the GPU operator. Values are the defaults of its chart (deployments/gpu-operator/values.yaml), or ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from provision.planning.gpu_operator.convert import convert
from provision.planning.gpu_operator.read import parse_value, sort_objects

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.planning.gpu_operator.model import Conversion, Key

KEYS: Final = [
    tuple(line.split())
    for line in Path(__file__).with_name("keys.txt").read_text().splitlines()
    if not line.startswith("#")
]
POLICY: Final[dict[str, Any]] = {
    "operator": {"runtimeClass": "nvidia"},
    "cdi": {"enabled": True, "nriPluginEnabled": False},
    "sandboxWorkloads": {"enabled": False, "defaultWorkload": "container"},
    "mig": {"strategy": "single"},
    "driver": {
        "enabled": True,
        "useNvidiaDriverCRD": False,
        "kernelModuleType": "auto",
        "usePrecompiled": False,
        "repository": "nvcr.io/nvidia",
        "image": "driver",
        "version": "550.163.01",
        "rdma": {"enabled": False},
        "upgradePolicy": {
            "autoUpgrade": True,
            "maxParallelUpgrades": 1,
            "maxUnavailable": "25%",
            "waitForCompletion": {"timeoutSeconds": 0, "podSelector": ""},
            "podDeletion": {"force": False, "timeoutSeconds": 300, "deleteEmptyDir": False},
            "drain": {"enable": False, "timeoutSeconds": 300},
        },
    },
    "toolkit": {"enabled": True, "installDir": "/usr/local/nvidia", "env": []},
    "devicePlugin": {"enabled": True, "config": {"name": "", "default": ""}},
    "dcgmExporter": {"enabled": True, "serviceMonitor": {"enabled": False}},
    "gfd": {"enabled": True},
    "migManager": {"enabled": True, "config": {"name": "", "default": "all-disabled"}},
    "vfioManager": {"enabled": True, "image": "k8s-driver-manager"},
}


def changed(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec with other values, by dotted keys."""
    made: dict[str, Any] = {key: dict(each) if isinstance(each, dict) else each for key, each in base.items()}
    for path, value in changes.items():
        level, (*above, last) = made, path.split(".")
        for key in above:
            level[key] = dict(level.get(key) or {})
            level = level[key]
        level[last] = value
    return made


def policy(**changes: object) -> dict[str, Any]:
    """Return a ClusterPolicy; keys have two underscores for a dot."""
    spec = changed(POLICY, {key.replace("__", "."): value for key, value in changes.items()})
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "cluster-policy"},
        "spec": spec,
    }


def driver(name: str, **spec: object) -> dict[str, Any]:
    """Return an NVIDIADriver."""
    given = {"driverType": "gpu", "version": "570.133.20", **spec}
    return {"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "metadata": {"name": name}, "spec": given}


def config_map(name: str, **data: str) -> dict[str, Any]:
    """Return a ConfigMap; keys have two underscores for a dot."""
    given = {key.replace("__", "."): value for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": given}


def converted(*objects: Mapping[str, Any]) -> Conversion:
    """Return what becomes of objects."""
    return convert(sort_objects(objects), parse_value)


def values(conversion: Conversion, index: int = 0) -> dict[str, object]:
    """Return what a stack says, by dotted keys."""
    return {".".join(each.path): each.value for each in conversion.stacks[index].said}


def key_of(conversion: Conversion, path: str) -> Key:
    """Return what became of a key."""
    (found,) = [key for key in conversion.keys if key.path == path]
    return found

"""Checks rules across keys: what each key allows alone, but not together, and what is doubtful.

Judges an effective declaration: the file alone, or what the levels of the inventory add up to for one node. Pure; the
caller knows where each key was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from provision.spec.findings import KeyPath, Severity
from provision.spec.model import Engine, Entitlement, KernelModule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.spec.model import StackSpec


@dataclass(frozen=True)
class Remark:
    """A rule that is not kept, and the key that people will want to change."""

    severity: Severity
    path: KeyPath
    message: str
    hint: str = ""


def judge(spec: StackSpec) -> list[Remark]:
    """Return every rule that the declaration does not keep, errors and warnings."""
    return list(chain(_driver(spec), _runtime(spec), _plugin(spec), _node(spec), _rollout(spec), _not_yet(spec)))


def _error(path: KeyPath, message: str, hint: str = "") -> Remark:
    return Remark(Severity.ERROR, path, message, hint)


def _warning(path: KeyPath, message: str, hint: str = "") -> Remark:
    return Remark(Severity.WARNING, path, message, hint)


def _driver(spec: StackSpec) -> Iterator[Remark]:
    driver = spec.driver
    if driver.enabled and driver.version is None:
        hint = 'write one, for example version: "550.163.01", or driver.enabled: false'
        yield _error(("driver", "version"), "is required while the driver is enabled", hint)
    if not driver.enabled and driver.kernel_module is not KernelModule.NONE:
        hint = "grapnel leaves the whole driver alone; set driver.enabled: true, or kernelModule: none"
        yield _warning(("driver", "kernelModule"), "has no effect while the driver is disabled", hint)


def _runtime(spec: StackSpec) -> Iterator[Remark]:
    """With `kubelet`, the device plugin decides who has a GPU; with `env`, the container's own environment does."""
    path: KeyPath = ("runtime", "entitlement")
    by_kubelet = spec.runtime.entitlement is Entitlement.KUBELET
    if by_kubelet and spec.runtime.engine is Engine.PODMAN:
        yield _error(path, "podman does not work with a kubelet", "write entitlement: env")
    elif by_kubelet and not spec.plugin.enabled:
        hint = "enable the plugin, or make sure that another device plugin allocates GPUs"
        yield _warning(path, "grapnel allocates no GPUs while the plugin is disabled", hint)
    elif not by_kubelet and spec.plugin.enabled:
        hint = "write entitlement: kubelet where a kubelet runs, or plugin.enabled: false where none does"
        yield _warning(path, "any image can take GPUs that the plugin gave to others", hint)


def _plugin(spec: StackSpec) -> Iterator[Remark]:
    """Kubernetes keeps its own domain for native resources and refuses extended ones in it."""
    domain = spec.plugin.resource.partition("/")[0]
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        hint = "use a domain of your own, or nvidia.com"
        yield _error(("plugin", "resource"), "kubernetes.io is reserved for Kubernetes itself", hint)


def _node(spec: StackSpec) -> Iterator[Remark]:
    """Within one node, a key and an effect name a taint."""
    seen = set()
    for index, taint in enumerate(spec.node.taints):
        name = (taint.key, taint.effect)
        if name in seen:
            message = f"'{taint.key}' with effect {taint.effect.value} is listed twice"
            yield _error(("node", "taints", index), message, "a key and an effect name one taint")
        seen.add(name)


def _rollout(spec: StackSpec) -> Iterator[Remark]:
    rollout = spec.rollout
    if isinstance(rollout.max_unavailable, int) and rollout.max_parallel > rollout.max_unavailable:
        message = f"never more than maxUnavailable ({rollout.max_unavailable}) nodes change at once"
        yield _warning(("rollout", "maxParallel"), message, "raise maxUnavailable, or lower maxParallel")


def _not_yet(spec: StackSpec) -> Iterator[Remark]:
    """Keys that are part of the format, and that this version does not support."""
    told: dict[KeyPath, bool] = {
        ("driver", "kernelModule"): spec.driver.enabled and spec.driver.kernel_module is not KernelModule.NONE,
        ("node", "labels"): bool(spec.node.labels),
        ("node", "taints"): bool(spec.node.taints),
    }
    for path, is_told in told.items():
        if is_told:
            yield _warning(path, "is not supported by this version yet", "leave the key out until it is")

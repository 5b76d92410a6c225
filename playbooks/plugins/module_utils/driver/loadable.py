"""Tells, before anything is disturbed, whether the kernel that runs would load the module of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.drift import running_kernel
from ansible_collections.grapnel.node.plugins.module_utils.driver.steps import StepError
from ansible_collections.grapnel.node.plugins.module_utils.modprobe import loaded_version, version_on_disk

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.target import Target
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_NVIDIA = "nvidia"


def require_loadable(host: Host, target: Target) -> None:
    """Raise `StepError` where the target's module could not be loaded afterwards."""
    change = target.change
    if not change.module:
        return
    if change.has_module:
        _require_for_kernel(running_kernel(host), change.kernels)
    elif loaded_version(host, _NVIDIA) != change.module:
        _require_on_disk(host, change.module)


def _require_for_kernel(running: str, kernels: tuple[str, ...]) -> None:
    """Refuse a node that was booted into a kernel which was there when the change was planned, and not chosen."""
    if kernels and running not in kernels:
        raise StepError(
            f"kernel-not-staged: the kernel {running} runs, and the change has a module for {', '.join(kernels)} "
            "alone: plan again, or boot a kernel that it has one for"
        )


def _require_on_disk(host: Host, version: str) -> None:
    on_disk = version_on_disk(host, _NVIDIA)
    if on_disk != version:
        raise StepError(
            f"module-not-on-disk: kernel module {version} is to be loaded, and {on_disk or 'none'} is on disk: "
            "driver.kernelModule is none, so whatever provides the module has to put it there first"
        )

"""Tells, before anything is disturbed, whether the kernel that runs would load the module of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.steps import StepError
from ansible_collections.grapnel.node.plugins.module_utils.modprobe import loaded_version, version_on_disk

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.target import Target
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_NVIDIA = "nvidia"


def require_loadable(host: Host, target: Target) -> None:
    """Raise `StepError` where somebody else provides the target's module, and has not done so.

    A module of ours for another kernel than the one that runs needs a reboot: see `reboot`.
    """
    change = target.change
    if change.module and not change.has_module and loaded_version(host, _NVIDIA) != change.module:
        _require_on_disk(host, change.module)


def _require_on_disk(host: Host, version: str) -> None:
    on_disk = version_on_disk(host, _NVIDIA)
    if on_disk != version:
        raise StepError(
            f"module-not-on-disk: kernel module {version} is to be loaded, and {on_disk or 'none'} is on disk: "
            "driver.kernelModule is none, so whatever provides the module has to put it there first"
        )

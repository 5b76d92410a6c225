"""Tells, before anything is disturbed, whether the kernel that runs would load the module of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.drift import running_kernel
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.trust import (
    Signer,
    enforces_signatures,
    find_distrust,
    read_signers,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.steps import StepError
from ansible_collections.grapnel.node.plugins.module_utils.kernel.modprobe import (
    describe_module,
    loaded_version,
    module_file,
    version_on_disk,
)

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.target import Target
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_NVIDIA = "nvidia"


def require_loadable(host: Host, target: Target) -> None:
    """Raise `StepError` where the kernel would not load the target's module, or nobody has provided it.

    A module of ours for another kernel than the one that runs needs a reboot: see `reboot`. A way back says nothing of
    modules that its packages bring.
    """
    change = target.change
    if not change.module:
        return
    if change.has_module:
        _require_trusted(host, read_signers(host, target.folder, running_kernel(host)))
    elif not target.is_way_back and loaded_version(host, _NVIDIA) != change.module:
        _require_on_disk(host, change.module)


def _require_on_disk(host: Host, version: str) -> None:
    on_disk = version_on_disk(host, _NVIDIA)
    if on_disk != version:
        raise StepError(
            f"module-not-on-disk: kernel module {version} is to be loaded, and {on_disk or 'none'} is on disk: "
            "driver.kernelModule is none, so whatever provides the module has to put it there first"
        )
    file = module_file(host, _NVIDIA) if enforces_signatures(host) else None
    if file is not None:
        _require_trusted(host, (Signer(describe_module(host, file).get("signer", "")),))


def _require_trusted(host: Host, signers: tuple[Signer, ...]) -> None:
    """Refuse what the kernel would refuse, while the former driver is still in service."""
    distrust = find_distrust(host, signers) if signers else None
    if distrust is not None and distrust.is_certain:
        raise StepError(f"{distrust.code}: {distrust.message}: {distrust.remedy}")

"""Finds what else is in the way: other drivers, whoever uses the GPUs, and what the last change left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import DriverSource
from provision.planning.driver.preflight import codes
from provision.planning.driver.preflight.situation import some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.fleet.facts.node import DeviceHolder
    from provision.planning.driver.preflight.codes import Finding
    from provision.planning.driver.preflight.situation import Situation

_BLACKLIST: Final = "blacklist nouveau"
_FAILED: Final = frozenset({"failed", "returned", "quarantined"})


def find_nouveau(situation: Situation) -> Iterator[Finding]:
    """Yield nouveau in the way, now or at the next boot; packages of the driver bring a blacklist with them."""
    nouveau, initramfs = situation.facts.nouveau, situation.facts.initramfs
    if nouveau is None or not situation.facts.gpus or not situation.installs_module:
        return
    if nouveau.loaded and not situation.facts.module.loaded:
        yield codes.NOUVEAU_LOADED.found("nouveau is loaded")
        if initramfs is not None and initramfs.tool == "none":
            yield codes.INITRAMFS_TOOL_MISSING.found("there is neither update-initramfs nor dracut")
    files = situation.change.files if situation.change is not None else ()
    is_kept_out = nouveau.blacklisted or any(_BLACKLIST in file.content for file in files)
    if not is_kept_out and (situation.has_any_module or nouveau.loaded):
        yield codes.NOUVEAU_NOT_BLACKLISTED.found("nouveau is not blacklisted")


def find_foreign_driver(situation: Situation) -> Iterator[Finding]:
    """Yield a driver that no package owns, where packages are to be installed."""
    foreign = situation.facts.foreign_driver
    if foreign is None or situation.driver.source is DriverSource.NONE:
        return
    version = f" {foreign.version}" if foreign.version else ""
    if foreign.kind == "runfile":
        where = f", uninstaller {foreign.uninstaller}" if foreign.uninstaller else ""
        yield codes.FOREIGN_DRIVER.found(f"a driver{version} of NVIDIA's installer (.run) is installed{where}")
    else:
        yield codes.FOREIGN_DRIVER.found(f"no package owns the driver{version} in {some(foreign.files)}")


def find_use(situation: Situation) -> Iterator[Finding]:
    """Yield who has the GPUs open, apart from the driver's own services, where the module is to be replaced."""
    change, module = situation.change, situation.facts.module
    if change is None or change.module is None or not module.loaded or module.version == change.module.version:
        return
    holders = [holder for holder in situation.facts.device_holders if not holder.is_driver_service]
    if holders:
        yield codes.IN_USE.found(f"GPUs are open in {some(sorted({_describe(holder) for holder in holders}))}")


def _describe(holder: DeviceHolder) -> str:
    if holder.pod_uid is not None:
        return f"{holder.command} in a pod"
    return f"{holder.command} ({holder.unit})" if holder.unit else holder.command


def find_last_run(situation: Situation) -> Iterator[Finding]:
    """Yield a change that runs now, or the last one if it failed."""
    run = situation.facts.driver.run
    if run is None:
        return
    if run.state == "needs-reboot":
        verb = run.verb or "a change"
        is_due = f"{verb} waits for a reboot: {run.reboot}"
        yield codes.CHANGE_WAITS.found(is_due if run.reboot_due else f"{verb} goes on after the node's reboot")
    elif run.state == "running":
        yield codes.CHANGE_RUNS.found(f"{run.verb or 'a change'} is at step {run.step or 'unknown'}")
    elif run.state in _FAILED:
        why = f": {run.reason}" if run.reason else ""
        yield codes.LAST_CHANGE_FAILED.found(
            f"{run.verb or 'the last change'} ended {run.state} at step {run.step}{why}"
        )

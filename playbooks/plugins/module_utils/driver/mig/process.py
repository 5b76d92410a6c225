"""Runs what asks NVML for MIG instances in a process of its own: ``grapnel-driver mig``.

NVML keeps the GPUs open and its library mapped, and hangs where a GPU is broken. A process of its own ends,
after its time limit at the latest, before the module is unloaded.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.before.restore import remembered_mig
from ansible_collections.grapnel.node.plugins.module_utils.driver.mig.instances import (
    MigError,
    parse_layout,
    read_layout,
    render_layout,
    restore_layout,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.mig.nvml import Nvml, NvmlError
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import NOTE, StoreError
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.unit import LAUNCH

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_READ = (*LAUNCH, "mig")
_RESTORE = (*_READ, "restore")
AFTER_REBOOT = "--after-reboot"
_READ_TIMEOUT_S = 120.0  # without a persistence daemon every GPU is initialised for it
_RESTORE_TIMEOUT_S = 300.0


def ask_layout(host: Host) -> tuple[dict[str, Any] | None, str]:
    """Return how the GPUs are cut now, as JSON has it; None with the reason where NVML does not say."""
    done = host.run(_READ, _READ_TIMEOUT_S)
    if done.return_code:
        return None, done.complaints
    try:
        return render_layout(parse_layout(json.loads(done.stdout))), ""
    except ValueError as error:
        return None, str(error)


def have_restored(host: Host) -> tuple[str, str]:
    """Have the remembered layout restored; returns what was made, and why that failed."""
    done = host.run(_RESTORE, _RESTORE_TIMEOUT_S)
    return (done.stdout.strip(), "") if done.return_code == 0 else ("", done.complaints)


def have_noted_restored(host: Host) -> tuple[str, str]:
    """Have the layout restored that was noted before a reboot; as `have_restored`."""
    done = host.run((*_RESTORE, AFTER_REBOOT), _RESTORE_TIMEOUT_S)
    return (done.stdout.strip(), "") if done.return_code == 0 else ("", done.complaints)


def print_layout() -> str:
    """Return the layout as text, in the process that asks NVML; raises `StoreError`."""
    try:
        with Nvml() as nvml:
            return json.dumps(render_layout(read_layout(nvml)))
    except NvmlError as error:
        raise StoreError(f"the mig layout cannot be read: {error}") from error


def restore_remembered(host: Host) -> str:
    """Cut the GPUs as is remembered, in the process that asks NVML; returns what was made, and raises `StoreError`."""
    return _restore(remembered_mig(host))


def restore_noted(host: Host) -> str:
    """Do the same with what was noted before a reboot (`reboot_note`)."""
    try:
        noted = json.loads(host.read_text(NOTE) or "")["mig"]
    except (ValueError, KeyError, TypeError):
        return ""
    return _restore(noted if isinstance(noted, dict) else None)


def _restore(wanted: dict[str, Any] | None) -> str:
    if not wanted:
        return ""
    try:
        with Nvml() as nvml:
            return "; ".join(restore_layout(nvml, parse_layout(wanted)))
    except (MigError, NvmlError, ValueError) as error:
        raise StoreError(str(error)) from error

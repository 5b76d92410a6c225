"""Remembers over a reboot what the driver forgets in one: which modules were loaded, and how MIG cut the GPUs.

Only for a reboot that is no part of a driver change: a change has its own (`restore`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.mig.process import ask_layout, have_noted_restored
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.durable import remove_durably, write_durably
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import NOTE, open_store
from ansible_collections.grapnel.node.plugins.module_utils.kernel.modprobe import is_loaded, load
from ansible_collections.grapnel.node.plugins.module_utils.use.modules import loaded_modules

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host


def note(host: Host, boot: str) -> None:
    """Write down what is to be restored after the boot has ended; raises OSError, `StoreError`."""
    modules = loaded_modules(host)
    layout = ask_layout(host)[0] if modules else None  # where NVML does not say, nothing can be restored
    open_store(host)
    write_durably(host.path(NOTE), json.dumps({"boot": boot, "modules": modules, "mig": layout}).encode())


def restore(host: Host, boot: str) -> str:
    """Restore what was noted in that boot, as far as nothing else has; returns why that failed, or nothing."""
    found = _read(host)
    if found is None or found.get("boot") != boot:
        return ""
    missing = [str(name) for name in reversed(found.get("modules") or []) if not is_loaded(host, str(name))]
    complaints = [f"{name}: {complaint}" for name in missing if (complaint := load(host, name))]
    if complaints:
        return f"modules that were loaded before the reboot are not now: {'; '.join(complaints)}"
    if found.get("mig"):
        complaint = have_noted_restored(host)[1]
        if complaint:
            return f"the gpus are not cut by mig as they were: {complaint}"
    remove_durably(host.path(NOTE))
    return ""


def _read(host: Host) -> dict[str, Any] | None:
    try:
        found = json.loads(host.read_text(NOTE) or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None

"""Remembers which modules were loaded, which services ran and how MIG cut GPUs before a run, until it is so again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.record.durable import remove_durably, write_durably
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import HOME
from ansible_collections.grapnel.node.plugins.module_utils.kernel.exchange import Before, write_mark
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import RELOAD_MARK

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_PATH = f"{HOME}/restore.json"


def remember(host: Host, before: Before, mig: dict[str, Any] | None = None) -> None:
    """Write it down, for the next run, in another boot too, and for whoever gathers facts."""
    is_new = not host.path(_PATH).exists() or (remembered(host), remembered_mig(host)) != (before, mig)
    if is_new:  # a full disk may have no room for what it has
        values = {"modules": before.modules, "services": before.services, "mig": mig}
        write_durably(host.path(_PATH), json.dumps(values).encode())
    write_mark(host, before)


def remembered(host: Host) -> Before:
    """Return what is to be restored."""
    try:
        values = json.loads(host.read_text(_PATH) or "")
        return Before(tuple(map(str, values["modules"])), tuple(map(str, values["services"])))
    except (ValueError, KeyError, TypeError):
        return Before()


def remembered_mig(host: Host) -> dict[str, Any] | None:
    """Return the MIG layout that is to be restored (`mig.parse_layout`), None where it is not known."""
    try:
        mig = json.loads(host.read_text(_PATH) or "")["mig"]
    except (ValueError, KeyError, TypeError):
        return None
    return mig if isinstance(mig, dict) else None


def forget(host: Host) -> None:
    """Say that everything is as it should be."""
    remove_durably(host.path(_PATH))
    host.path(RELOAD_MARK).unlink(missing_ok=True)

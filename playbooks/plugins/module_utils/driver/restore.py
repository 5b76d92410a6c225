"""Remembers which modules were loaded and which services ran before a run, until they are again: after a reboot too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.durable import remove_durably, write_durably
from ansible_collections.grapnel.node.plugins.module_utils.driver.store import HOME
from ansible_collections.grapnel.node.plugins.module_utils.kernel_module import Before, write_mark
from ansible_collections.grapnel.node.plugins.module_utils.units import RELOAD_MARK

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_PATH = f"{HOME}/restore.json"


def remember(host: Host, before: Before) -> None:
    """Write it down, for the next run and for whoever gathers facts."""
    if (
        not host.path(_PATH).exists() or remembered(host) != before
    ):  # on the way back from a full disk there is nothing new to write
        values = {"modules": before.modules, "services": before.services}
        write_durably(host.path(_PATH), json.dumps(values).encode())
    write_mark(host, before)


def remembered(host: Host) -> Before:
    """Return what is to be restored."""
    try:
        values = json.loads(host.read_text(_PATH) or "")
        return Before(tuple(map(str, values["modules"])), tuple(map(str, values["services"])))
    except (ValueError, KeyError, TypeError):
        return Before()


def forget(host: Host) -> None:
    """Say that everything is as it should be."""
    remove_durably(host.path(_PATH))
    host.path(RELOAD_MARK).unlink(missing_ok=True)

"""Reads how AppArmor stands on a machine, and what of GPUs it has refused. Nothing of it is changed.

A container keeps the profile that its engine gives it. The hook is started by the runtime and has the runtime's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.machine.audit import read_denials

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_ENABLED = "/sys/module/apparmor/parameters/enabled"
_DENIED = re.compile(
    r'apparmor="DENIED" operation="(?P<operation>[a-z_]{1,64})"(?=.*? profile="(?P<profile>[^"]{1,200})")'
    r'(?:.*? name="(?P<name>[^"]{1,300})")?(?:.*? denied_mask="(?P<mask>[a-z ]{1,64})")?'
)


def read_apparmor(host: Host) -> dict[str, Any]:
    """Return the facts ``apparmor``: whether the kernel has it on, and its latest denials about GPUs and grapnel."""
    if (host.read_text(_ENABLED) or "").strip() != "Y":
        return {"mode": "disabled"}
    return {"mode": "enabled", "denials": read_denials(host, _describe)}


def _describe(line: str) -> str | None:
    denied = _DENIED.search(line)
    if denied is None:
        return None
    wanted = f" ({denied['mask']})" if denied["mask"] else ""
    return f"{denied['profile']} {denied['operation']} {denied['name'] or '?'}{wanted}"

"""Finds what upgrades packages on its own: such an upgrade changes libraries under running work."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

# unit → the program without which the unit does nothing
_UNITS = {
    "apt-daily-upgrade.timer": "unattended-upgrade",
    "dnf-automatic-install.timer": "dnf-automatic",
    "dnf-automatic.timer": "dnf-automatic",
    "transactional-update.timer": "transactional-update",
    "os-update.timer": "zypper",
}
UNITS = tuple(_UNITS)
_APT_CONF = "/etc/apt/apt.conf.d"
_APT_SWITCH = re.compile(r'^\s*APT::Periodic::Unattended-Upgrade\s+"?([0-9a-z]+)"?\s*;', re.MULTILINE)
_DNF_CONF = "/etc/dnf/automatic.conf"
_DNF_APPLY = re.compile(r"^\s*apply_updates\s*=\s*(\S+)", re.MULTILINE)


def read_unattended(host: Host, services: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the facts ``unattended``: the unit that is on, else one that is only there, by the facts ``services``."""
    found = [unit for unit, program in _UNITS.items() if _is_there(host, services.get(unit), program)]
    if not found:
        return None
    active = [unit for unit in found if services[unit]["active"] == "active" and _is_on(host, unit)]
    return {"unit": active[0] if active else found[0], "active": bool(active)}


def _is_there(host: Host, service: Mapping[str, Any] | None, program: str) -> bool:
    return service is not None and service["load"] == "loaded" and host.find_command(program) is not None


def _is_on(host: Host, unit: str) -> bool:
    """Tell whether a unit that runs upgrades anything, by what its configuration says last."""
    if unit == "apt-daily-upgrade.timer":
        texts = (host.read_text(f"{_APT_CONF}/{name}") or "" for name in host.names(_APT_CONF))
        values = [value for text in texts for value in _APT_SWITCH.findall(text)]
        return bool(values) and values[-1] not in ("0", "no", "false")
    if unit == "dnf-automatic.timer":
        values = _DNF_APPLY.findall(host.read_text(_DNF_CONF) or "")
        return bool(values) and values[-1].lower() in ("yes", "true", "1", "on")
    return True

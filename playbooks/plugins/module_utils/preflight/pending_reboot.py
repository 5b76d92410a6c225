"""Finds out whether packages were installed that take effect with the next boot only, by what their scripts leave."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

# Debian and Ubuntu: notify-reboot-required(8) of update-notifier-common, and unattended-upgrades.
# SUSE: libzypp's plugin, see `zypper needs-rebooting`. RPM systems of Red Hat leave no file.
_FILES = ("/run/reboot-required", "/run/reboot-needed")
_PACKAGES = "/run/reboot-required.pkgs"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,127}")
_MOST = 256


def read_pending_reboot(host: Host) -> dict[str, Any] | None:
    """Return the facts ``pending_reboot``: the file that says so, and the packages that asked for it."""
    path = next((each for each in _FILES if host.path(each).exists()), None)
    if path is None:
        return None
    lines = (line.strip() for line in (host.read_text(_PACKAGES) or "").splitlines())
    packages = dict.fromkeys(line for line in lines if _NAME.fullmatch(line))
    return {"path": path, "packages": list(packages)[:_MOST]}

"""Has the node daemon's program read its configuration before the running daemon is told to: a reload tells nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.daemon.program import LAUNCHER

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_TIMEOUT_S = 60.0


def daemon_flaw(host: Host) -> str | None:
    """Return what is wrong with the daemon's files as they are now, None when nothing is."""
    if not host.path(LAUNCHER).exists():
        return None
    done = host.run([LAUNCHER, "config", "--config", "/etc/grapnel/node.json"], _TIMEOUT_S)
    return f"grapnel-node does not accept its configuration: {done.complaint}" if done.return_code else None

"""Makes this process, and what it starts, give way to everything else on the node."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_LOWEST = 19
_TIMEOUT_S = 10.0


def give_way(host: Host) -> None:
    """Take the lowest priority for processor and disk; children inherit it. What is refused is left as it is."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _LOWEST)
    host.run(["ionice", "--class", "idle", "--pid", str(os.getpid())], _TIMEOUT_S)

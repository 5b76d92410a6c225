"""Says for how long a reason to wait is borne while nothing else is under way, in seconds."""

from __future__ import annotations

from typing import Final

AT_ONCE: Final = 0  # only a person can change it
A_MINUTE: Final = 60  # a kubelet that was restarted is ready within seconds; one that is gone is noticed after 40 s
LONG: Final = 30 * 60  # what another tool does to a node takes as long as a reboot, or a repair
FOR_EVER: Final = 2**60  # it is known, or was asked for, that it passes

"""A simulated IMEX of a node: what tells of it (`nvidia-imex-ctl`), its process in /proc, and its channel in /dev.

No memory is shared through it: it is what the node daemon asks, at the places where it asks.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

SERVICE: Final = "/system.slice/nvidia-imex.service"
READY: Final = "READY"
CHANNEL: Final = "nvidia-caps-imex-channels/channel0"
_SCRIPT: Final = """#!/bin/sh
echo "nvidia-imex-ctl: simulated" >&2
[ "$1" = -q ] || exit 2
cat {said}
"""


class Imex:
    """`programs` is the folder of the driver's programs, `proc` stands for /proc, and `dev` for /dev."""

    def __init__(self, programs: Path, proc: Path, dev: Path) -> None:
        self.control = programs / "nvidia-imex-ctl"
        self._proc, self._dev = proc, dev
        self._said = programs / "imex-said"
        self.control.write_text(_SCRIPT.format(said=shlex.quote(str(self._said))))
        self.control.chmod(0o755)
        self.say("INITIALIZING")

    def add_channel(self) -> None:
        """Make the channel's node: a link to a character device needs no root."""
        channel = self._dev / CHANNEL
        channel.parent.mkdir(parents=True, exist_ok=True)
        channel.symlink_to("/dev/null")

    def run(self, group: str = SERVICE, pid: int = 4711) -> None:
        """Have a process of this control group."""
        process = self._proc / str(pid)
        process.mkdir(parents=True, exist_ok=True)
        (process / "comm").write_text("nvidia-imex\n")
        (process / "cgroup").write_text(f"0::{group}\n")

    def end(self, pid: int = 4711) -> None:
        """Have that process no more."""
        for name in ("comm", "cgroup"):
            (self._proc / str(pid) / name).unlink()

    def say(self, state: str) -> None:
        """Have it tell this state."""
        self._said.write_text(f"{state}\n")

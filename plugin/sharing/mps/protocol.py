"""What is said to a control daemon, and what its answers mean. Pure.

The interface is the one that NVIDIA calls "Legacy MPS v2", a command in a line: every driver has it, and it is the
default of those that have another one (https://docs.nvidia.com/deploy/mps/latest/mpsv2-interface.html).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.base.errors import MpsError

if TYPE_CHECKING:
    from plugin.sharing.mps.plan import MpsDaemon

QUIT = "quit"
LIST_SERVERS = "get_server_list"
GET_THREADS = "get_default_active_thread_percentage"
_GIB_IN_MIB = 1024
_MAX_SHOWN = 80
_PERCENTAGE = re.compile(r"[0-9]{1,3}(\.[0-9]{1,6})?")
_MEMORY = re.compile(r"([0-9]{1,9})([GM])")
_PID = re.compile(r"[1-9][0-9]{0,9}")


def list_clients(server: int) -> str:
    """Ask for the clients of a server, by process id."""
    return f"get_client_list {server}"


def get_memory(daemon: MpsDaemon) -> str:
    """Ask for the ceiling on memory. By UUID, as it is set: a limit by index and one by UUID are two limits."""
    return f"get_default_device_pinned_mem_limit {daemon.uuid}"


def set_limits(daemon: MpsDaemon) -> tuple[str, ...]:
    """Set the ceilings for servers that are started from now on."""
    return (
        f"set_default_device_pinned_mem_limit {daemon.uuid} {daemon.memory_mib}M",
        f"set_default_active_thread_percentage {daemon.thread_percentage}",
    )


def set_server_limits(daemon: MpsDaemon, server: int) -> tuple[str, ...]:
    """Set the ceilings of a server that runs, for clients that come from now on."""
    return (
        f"set_device_pinned_mem_limit {server} {daemon.uuid} {daemon.memory_mib}M",
        f"set_active_thread_percentage {server} {daemon.thread_percentage}",
    )


@dataclass(frozen=True)
class ShownLimits:
    """The ceilings as a control daemon shows them: its own words, to be compared with later ones."""

    threads: str
    memory: str

    def may_be(self, daemon: MpsDaemon) -> bool:
        """Whether they can be the ceilings of a daemon; raises MpsError where there is no percentage.

        From a GiB on, a limit is shown in whole GiB (rounded down by driver 595), however exact it is. Nothing is no
        limit; other words are believed, as they are those after the limit was set.
        """
        if abs(parse_percentage(self.threads) - daemon.thread_percentage) >= 1:
            return False
        found = _MEMORY.fullmatch(self.memory.strip())
        if found is None:
            return bool(self.memory.strip())
        if found[2] == "M":
            return int(found[1]) == daemon.memory_mib
        return abs(int(found[1]) * _GIB_IN_MIB - daemon.memory_mib) < _GIB_IN_MIB


def parse_percentage(answer: str) -> float:
    """Return a percentage, `25.0`; raises MpsError."""
    text = answer.strip()
    if not _PERCENTAGE.fullmatch(text):
        raise _nonsense(GET_THREADS, answer)
    return float(text)


def parse_pids(answer: str) -> tuple[int, ...]:
    """Return process ids, one in a line; raises MpsError."""
    words = answer.split()
    if not all(_PID.fullmatch(word) for word in words):
        raise _nonsense("a list of processes", answer)
    return tuple(map(int, words))


def _nonsense(what: str, answer: str) -> MpsError:
    return MpsError(f"the control daemon's answer to {what} is not understood: {answer.strip()[:_MAX_SHOWN]!a}")

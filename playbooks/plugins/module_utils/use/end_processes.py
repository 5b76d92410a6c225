"""Ends processes of people that hold a GPU, where that is declared; services, containers and pods are never ended.

A process is held by its descriptor (pidfd_open(2)) before it is looked at again: another one that got its number
meanwhile is never hit.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock

# What logind starts for somebody: a session, or the services of somebody's own systemd (user@.service(5)).
_OF_PEOPLE = ("session-", "user@")
_POLL_S = 0.2


def is_of_a_person(holder: dict[str, Any]) -> bool:
    """Tell whether a holder runs in a login and in no container: what systemd or an engine keeps comes back."""
    unit = holder.get("unit") or ""
    return unit.startswith(_OF_PEOPLE) and not holder.get("pod_uid") and not holder.get("container_id")


def end_processes(
    holders: Iterable[dict[str, Any]],
    still_holding: Callable[[], Iterable[dict[str, Any]]],
    clock: Clock,
    grace_s: float,
) -> list[str]:
    """Ask each process of a person to end, and end after ``grace_s`` those that have not; return a line for each.

    ``still_holding`` looks again: only what holds a GPU then, in the same place, is ended.
    """
    asked = {holder["pid"]: holder for holder in holders if is_of_a_person(holder)}
    with _descriptors(asked) as opened:
        present = {each["pid"]: each for each in still_holding() if is_of_a_person(each)} if opened else {}
        ended = {
            pid: descriptor
            for pid, descriptor in opened.items()
            if pid in present and present[pid].get("unit") == asked[pid].get("unit")
        }
        for descriptor in ended.values():
            _signal(descriptor, signal.SIGTERM)
        deadline = clock.monotonic() + grace_s
        left = [descriptor for descriptor in ended.values() if not _has_ended(descriptor)]
        while left and clock.monotonic() < deadline:
            clock.sleep(_POLL_S)
            left = [descriptor for descriptor in left if not _has_ended(descriptor)]
        for descriptor in left:
            _signal(descriptor, signal.SIGKILL)
        return [_told(asked[pid], is_killed=descriptor in left) for pid, descriptor in ended.items()]


@contextlib.contextmanager
def _descriptors(pids: Iterable[int]) -> Iterator[dict[int, int]]:
    opened: dict[int, int] = {}
    try:
        for pid in pids:
            with contextlib.suppress(OSError):  # it has ended; or the kernel is older than 5.3, and has no such call
                opened[pid] = os.pidfd_open(pid)
        yield opened
    finally:
        for descriptor in opened.values():
            os.close(descriptor)


def _signal(descriptor: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, number)


def _has_ended(descriptor: int) -> bool:
    """Tell whether a process is over: its descriptor is readable then."""
    return bool(select.select([descriptor], [], [], 0)[0])


def _told(holder: dict[str, Any], *, is_killed: bool) -> str:
    how = "was killed, as it did not end when asked" if is_killed else "was asked to end, and did"
    return f"{holder.get('command')} ({holder['pid']}, {holder.get('unit')}) {how}"

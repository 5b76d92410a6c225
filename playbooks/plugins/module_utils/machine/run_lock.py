"""Keeps a second run off a node while one changes it, whichever machine each of them is started from.

The lock is a file below ``/run``: a reboot takes it away, and a run that reboots a node takes it again. Its owner is a
process on another machine, which the node cannot see, so it says until when it counts; whoever finds out that its owner
is dead says so and takes it over. Time is that of the node since its boot, which nobody sets.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

LOCK = "/run/grapnel/run-lock.json"
_GUARD = "/run/grapnel/run-lock"  # held while the lock is read and written
_LONGEST = 200


@dataclass(frozen=True)
class RunLock:
    """Who changes the node: ``owner`` is the run, ``holder`` the person. ``began`` is in seconds since 1970.

    A run may consist of several playbooks, one after the other: ``process`` is the one that was at work last, which may
    outlive a run that was killed. ``until`` is in seconds since the node's boot.
    """

    owner: str
    holder: str
    began: int
    until: float
    process: str

    def describe(self, now: float, time_now: float) -> str:
        """Return who it is, since when, and until when at most, for a message."""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.began))
        until = time.strftime("%H:%M", time.gmtime(time_now + self.until - now))
        return (
            f"this node is being changed by {self.holder} since {since} UTC: wait for that run. Should it be dead, "
            f"this ends at {until} UTC, or with: rm {LOCK}"
        )


def take(host: Host, mine: RunLock, now: float, dead: str = "") -> RunLock | None:
    """Take the lock, or keep it; return who else has it, None where it is ours.

    ``dead`` is an owner that is known not to run any more.
    """
    with _guarded(host):
        found = read(host)
        if found is not None and found.owner not in (mine.owner, dead) and now < found.until:
            return found
        began = found.began if found is not None and found.owner == mine.owner else mine.began
        _write(host, replace(mine, began=began))
    return None


def free(host: Host, owner: str, until: float = 0.0) -> bool:
    """Give the lock back, or keep it ``until`` then for the next playbook of the run; return whether it was theirs."""
    with _guarded(host):
        found = read(host)
        if found is None or found.owner != owner:
            return False
        if until:
            _write(host, replace(found, until=until))
        else:
            host.path(LOCK).unlink(missing_ok=True)
    return True


def read(host: Host) -> RunLock | None:
    """Return the lock; one that cannot be read is nobody's."""
    try:
        found = json.loads(host.read_text(LOCK) or "")
        return RunLock(
            owner=str(found["owner"])[:_LONGEST],
            holder=printable(str(found["holder"]), _LONGEST),
            began=int(found["began"]),
            until=float(found["until"]),
            process=str(found["process"])[:_LONGEST],
        )
    except (ValueError, TypeError, KeyError, OverflowError):
        return None


def _write(host: Host, lock: RunLock) -> None:
    path = host.path(LOCK)
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(asdict(lock)), encoding="utf-8")
    new.replace(path)


@contextlib.contextmanager
def _guarded(host: Host) -> Iterator[None]:
    path = host.path(_GUARD)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # for moments
        yield
    finally:
        os.close(descriptor)

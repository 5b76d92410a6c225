"""Runs the disruptive part in a transient unit of systemd, where no lost connection and no controller can stop it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import UNIT
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import LOCK, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host

LAUNCHER = "/usr/lib/grapnel/driver/grapnel-driver"
LAUNCH = (LAUNCHER,)  # its first line names the interpreter
BEFORE_RELEASE = "--before-release"
_START_TIMEOUT_S = 60.0
_QUERY_TIMEOUT_S = 20.0
_POLL_S = 0.25
# One is there as long as a process of the unit is; the second with systemd's own hierarchy (cgroups(7), version 1).
_CGROUPS = (f"/sys/fs/cgroup/system.slice/{UNIT}", f"/sys/fs/cgroup/systemd/system.slice/{UNIT}")
# A shutdown lets a run come to its end for a while; then, or when the program was killed, nothing of it stays behind.
_PROPERTIES = (
    "Type=exec", "KillMode=mixed", "TimeoutStopSec=120", "OOMScoreAdjust=-900", "UMask=0077", "StandardInput=null",
    "Description=grapnel: change of the GPU driver",
)  # fmt: skip
_RUNNING = ("active", "activating", "deactivating", "reloading")


def start_unit(host: Host, words: Sequence[str]) -> None:
    """Start the program in its unit; raises `StoreError` where another run goes on, or systemd cannot."""
    properties = [f"--property={each}" for each in _PROPERTIES]
    command = ["systemd-run", f"--unit={UNIT}", "--collect", "--quiet", *properties, *LAUNCH, "run", *words]
    done = host.run(command, _START_TIMEOUT_S)
    if done.return_code:
        raise StoreError(f"the driver's unit cannot be started: {done.complaints}")


def wait_for_unit(host: Host, timeout_s: float, clock: Clock) -> bool:
    """Wait until the unit has ended; False when time is up, which does not end it."""
    deadline = clock.monotonic() + timeout_s
    cgroups = [host.path(path) for path in _CGROUPS]
    while any(path.exists() for path in cgroups) or is_active(host):  # to ask systemd costs it more
        if clock.monotonic() >= deadline:
            return False
        clock.sleep(_POLL_S)
    return True


def is_active(host: Host) -> bool:
    """Tell whether the unit runs."""
    shown = host.run(["systemctl", "show", "--property", "ActiveState", "--value", UNIT], _QUERY_TIMEOUT_S)
    return shown.stdout.strip() in _RUNNING


@contextlib.contextmanager
def only_run(host: Host) -> Iterator[None]:
    """Be the only run while this lasts, started by the unit or by hand; raises `StoreError`."""
    descriptor = os.open(host.path(LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(f"another run changes the driver of this node: see `{LAUNCHER} status`") from error
        yield
    finally:
        os.close(descriptor)

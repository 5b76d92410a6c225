"""One apply at a time of one inventory, by one user, on one machine.

A flock: the kernel drops it with the process that holds it, so an apply that was killed blocks nothing. The
file's text only serves the message; the file itself stays, because removing it would race with the next
holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

from provision.apply.errors import LockedError
from provision.fleet.sources import inventory_key
from provision.runner import end_processes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

LEASH = "GRAPNEL_APPLY"
_GRACE_S = 5.0


def lock_path(inventories: Iterable[str], environment: Mapping[str, str], here: Path) -> Path:
    """Return where the lock of an inventory lies; see `inventory_key` for what an inventory is."""
    return _folder(environment) / f"apply-{inventory_key(inventories, here)}.lock"


def _folder(environment: Mapping[str, str]) -> Path:
    runtime = environment.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime) / "grapnel"
    home = Path(environment.get("HOME") or "~").expanduser()
    return Path(environment.get("XDG_STATE_HOME") or home / ".local" / "state") / "grapnel"


@contextlib.contextmanager
def hold_lock(path: Path, subject: str) -> Iterator[None]:
    """Hold the lock for ``subject``, the inventory's name in the message of LockedError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise _locked(file.read().strip(), subject, path) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


@contextlib.contextmanager
def be_only_apply(
    inventories: Sequence[str], environment: Mapping[str, str], here: Path
) -> Iterator[Mapping[str, str]]:
    """Hold the lock of an inventory; gives the variables that every process of the apply has to carry.

    An apply that was killed leaves its ansible-playbook behind, in the middle of a task: it is ended first.
    """
    path = lock_path(inventories, environment, here)
    with hold_lock(path, ", ".join(inventories) or "the inventory of ansible.cfg"):
        end_processes(LEASH, str(path), grace_s=_GRACE_S)
        yield {LEASH: str(path)}


def _locked(holder: str, subject: str, path: Path) -> LockedError:
    who = f"process {holder}" if holder else "another process"
    return LockedError(
        f"{subject} is being applied by {who}",
        hint=f"wait for it, or end it: its nodes are safe to be applied again (lock: {path})",
    )

"""Runs the module `run_lock`: says which run this is, and whether one that has the lock was killed on this machine."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import multiprocessing
import os
import re
import socket
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail

from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction

# The controller of a cluster has a lease of its own, and runs in a pod that another one follows at any time.
_IN_CLUSTER = "grapnel controller"
# The process whose playbooks are one run: its number, and when it began. Without it, each is a run of its own.
_RUN_VARIABLE = "GRAPNEL_RUN_PROCESS"
_RUN = re.compile(r"[0-9]+:[0-9]*")


class ActionModule(CheckedAction):
    RETURNS: ClassVar = {"held_by": str, "process": str, "says": str}

    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Take the lock or give it back; raises AnsibleActionFail where another run has it."""
        arguments = {**self._task.args, **self._identity(), "dead": ""}
        answer = self.execute(self._task.action, arguments, task_vars)
        other, process = str(answer.get("held_by") or ""), str(answer.get("process") or "")
        if other and is_dead(other) and is_dead(process):
            answer = self.execute(self._task.action, {**arguments, "dead": other}, task_vars)
        if answer.get("held_by"):
            raise AnsibleActionFail(str(answer.get("says") or "another run is changing this node"))
        return answer

    def _identity(self) -> dict[str, str]:
        if str(self._connection.transport).endswith("host"):
            return {"owner": _IN_CLUSTER, "holder": _IN_CLUSTER, "process": ""}
        process = playbook_of_worker()
        run = os.environ.get(_RUN_VARIABLE, "")
        owner = f"{_place()}:{run}" if _RUN.fullmatch(run) else process
        return {"owner": owner, "holder": f"{getpass.getuser()}@{socket.gethostname()}", "process": process}


def playbook_of_worker() -> str:
    """Return the owner that stands for this worker's ansible-playbook; raises AnsibleActionFail where it was killed.

    A worker outlives it for a moment. Its parent is another process then, which may never end.
    """
    parent = multiprocessing.parent_process()
    pid = (parent.pid if parent is not None else None) or os.getppid()
    owner = owner_of(pid)
    if os.getppid() != pid:
        raise AnsibleActionFail("the run that this task belongs to was killed")
    return owner


def owner_of(pid: int) -> str:
    """Return what stands for a process of this machine: place, number and when it began."""
    return f"{_place()}:{pid}:{_began(pid)}"


def is_dead(owner: str) -> bool:
    """Tell whether an owner was a process of this machine that does not run any more."""
    place, _, process = owner.partition(":")
    pid, _, began = process.partition(":")
    return place == _place() and pid.isdecimal() and _began(int(pid)) != began


def _place() -> str:
    """Return what stands for this machine and its numbers of processes: a container has its own."""
    known = [_read(Path("/etc/machine-id")), socket.gethostname(), _read(Path("/proc/sys/kernel/random/boot_id"))]
    with contextlib.suppress(OSError):  # nothing but Linux has it
        known.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _began(pid: int) -> str:
    """Return when a process began, in ticks since the boot; empty where there is none, or it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]

"""A prestart hook that carries out one given plan: for plans that no request leads to on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.runtime_hook.containers import HOOK_ENVIRONMENT, REPOSITORY, Container

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from runtime_hook.container.operations.operation import Operation

# Operations are values whose representation makes them again.
SCRIPT = """#!/usr/bin/python3 -IS
import os, sys
sys.path.insert(0, {repository!r})
from runtime_hook.inputs.bundle import read_container, read_state
from runtime_hook.container.injection import apply_plan
from runtime_hook.container.kernel import KernelSyscalls
from runtime_hook.container.operations.devices import AddDeviceNode, AllowDevices, LinkDevice
from runtime_hook.container.operations.driverproc import MaskDriverProc
from runtime_hook.container.operations.files import BindFile, LinkName, NoteAbsent, WriteText
from runtime_hook.container.operations.loadercache import MergeLoaderCache
from runtime_hook.container.operations.loaderpaths import ListCompatFolder, ListMuslFolder
from runtime_hook.base.deadline import Deadline
from runtime_hook.base.errors import HookError
from runtime_hook.loader.cache import CacheEntry
os.umask(0)
os.chdir("/")
state = read_state(0)
container = read_container(state)
syscalls = KernelSyscalls(state.pid, container.rootfs, mount_label=container.mount_label)
try:
    outcome = apply_plan({plan}, syscalls, Deadline())
except HookError as refusal:
    sys.exit(f"refused: {{refusal}}")
with open({notes!r}, "w") as file:
    file.write("\\n".join(outcome.notes))
"""


def with_plan(container: Container, plan: Sequence[Operation]) -> Path:
    """Give a container the plan instead of the hook; return where its notes will be."""
    folder = container.folder.parent
    script, notes = folder / f"{container.folder.name}-hook", folder / f"{container.folder.name}-notes"
    script.write_text(SCRIPT.format(repository=str(REPOSITORY), plan=repr(list(plan)), notes=str(notes)))
    script.chmod(0o755)
    container.with_hook = False
    hook = {"path": str(script), "args": [script.name], "env": HOOK_ENVIRONMENT, "timeout": 20}
    container.changes = {**container.changes, "hooks": {"prestart": [hook]}}
    return notes

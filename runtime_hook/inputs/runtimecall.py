"""Reads the command line of the runtime that started this hook, for what the state on stdin leaves out.

The runtime is this process's parent. Its words are the engine's, and worth as much as the state that it wrote.
"""

from __future__ import annotations

import os

from runtime_hook.base.errors import StateError
from runtime_hook.base.reading import read_regular

_LIMIT_BYTES = 4 << 20
_CREATING = ("create", "run")
_RESTORE = "restore"
_CONFIG = "config.json"


def read_runtime_call() -> tuple[str, ...]:
    """Return the words of the parent's command line, its own name first; StateError where they cannot be read."""
    path = f"/proc/{os.getppid()}/cmdline"
    try:
        data = read_regular(path, _LIMIT_BYTES, StateError)
    except FileNotFoundError:
        raise StateError(f"{path} does not exist", "the hook must be started by an OCI runtime") from None
    return tuple(os.fsdecode(word) for word in data.split(b"\0")[:-1])


def is_restore(words: tuple[str, ...]) -> bool:
    """Tell whether a runtime was called to restore a container from a checkpoint; a doubtful call counts as one."""
    return _RESTORE in words


def find_bundle(words: tuple[str, ...], container: str) -> str:
    """Return the bundle that a runtime was called with for a container; StateError where its words do not tell."""
    from runtime_hook.inputs.commandline import read_call

    call = read_call(words[1:])
    if call.verb not in _CREATING or container not in words or not call.bundle.startswith("/"):
        raise StateError(
            "the runtime names no bundle but /, nor does its command line",
            "crun does so in user namespaces: call it with --bundle and an absolute path, or use runc",
        )
    if call.config != _CONFIG:
        raise StateError(f"the runtime names no bundle but /, and reads {call.config}", f"hooks read {_CONFIG}")
    return call.bundle

"""The call of the runtime that started this hook: what the state on stdin leaves out stands on its command line.

The runtime is this process's parent. Its words are the engine's, and worth as much as the state that it wrote.
"""

from __future__ import annotations

import os

from runtime_hook.bundle import State
from runtime_hook.engines.commandline import Call, read_call
from runtime_hook.errors import StateError
from runtime_hook.reading import read_regular

NO_BUNDLE = "/"
_LIMIT_BYTES = 4 << 20
_CREATING = ("create", "run")


def read_runtime_call() -> tuple[str, ...]:
    """Return the words of the parent's command line, its own name first; StateError where they cannot be read."""
    path = f"/proc/{os.getppid()}/cmdline"
    try:
        data = read_regular(path, _LIMIT_BYTES, StateError)
    except FileNotFoundError:
        raise StateError(f"{path} does not exist", "the hook must be started by an OCI runtime") from None
    return tuple(os.fsdecode(word) for word in data.split(b"\0")[:-1])


def with_bundle(state: State, words: tuple[str, ...]) -> State:
    """Return a state whose bundle is ``/`` with the one that the runtime was called with.

    crun (1.8 to 1.29 at least; containers/crun pull request 2263) reports its working directory as the bundle, and
    has left it for ``/`` by the time of its hooks where the container has a user namespace and devices.
    """
    call = read_call(words[1:])
    if call.verb not in _CREATING or state.id not in words or not call.bundle.startswith("/"):
        raise StateError(
            "the runtime names no bundle but /, nor does its command line",
            "crun does so in user namespaces: call it with --bundle and an absolute path, or use runc",
        )
    if call.config != Call("").config:
        raise StateError(
            f"the runtime names no bundle but /, and reads {call.config}", "config.json is what hooks read"
        )
    return State(state.id, state.pid, call.bundle, state.root)


def check_root(state: State, rootfs: str) -> None:
    """Compare the root in a configuration that was found so with the one that crun says; StateError if it differs."""
    if os.path.join(state.bundle, state.root) != rootfs:
        raise StateError(f"{state.bundle}/config.json is about the root {rootfs}, the runtime about {state.root}")

"""Runs ``grapnel-runtime``: adds the hook to a container's bundle, then becomes the real OCI runtime.

For engines that can be told of a runtime but not of a hook (Docker). Only ``create`` and ``run`` are looked at; every
other verb is the real runtime's at once, mostly without Python (``wrapper_launcher.sh``). The real runtime is named by
root (an argument in ``daemon.json``) or stands at one of a few absolute places; nothing of the container and no
``PATH`` has a say in it.

The hook is added unless it would do nothing and say nothing, which is asked with its own question (`find_claim`): a
container that is not for it does not start it.
"""

from __future__ import annotations

import os
import stat
import sys

from runtime_hook.base.errors import EXIT_BUG, EXIT_FAILURE, HookError, one_line
from runtime_hook.base.values import value
from runtime_hook.inputs.commandline import STARTING_VERBS, read_call

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
    from typing import NoReturn

    from runtime_hook.inputs.commandline import Call
else:
    import _signal as signal  # the C half; the Python half imports enum (3 ms)

RUNTIME_NAMES = ("runc", "crun")
RUNTIME_FOLDERS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
_OWN_PREFIX = "--grapnel-"
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class WrapperError(HookError):
    """The real runtime cannot be started, or the bundle cannot be given the hook."""


@value
class Own:
    """What root wrote before the runtime's own arguments: ``--grapnel-runtime=``, ``-config=``, ``-root=``."""

    runtime: str = ""
    config: str = ""
    root: str = ""


def run_wrapper(release: str, arguments: Sequence[str]) -> int:
    """Do the wrapper's part and become the real runtime; return an exit status when that is impossible.

    ``release`` is the folder that has the hook, by the name that outlives the release.
    """
    call = None
    try:
        own, rest = split_own(arguments)
        call = read_call(rest)
        runtime = find_runtime(own.runtime)
        if call.verb in STARTING_VERBS:
            from runtime_hook.engines.bundlehook import add_hook

            hook = os.path.join(release, "grapnel-hook")
            add_hook(os.path.join(os.path.abspath(call.bundle), call.config), hook, own.config, own.root)
        _become(runtime, rest)
    except HookError as failure:
        _complain(str(failure), call)
        return EXIT_FAILURE
    except Exception as bug:  # noqa: BLE001 - the last line of defence: whatever it is, the container is refused
        _complain(f"internal error: {type(bug).__name__}: {bug} (please report this)", call)
        return EXIT_BUG


def split_own(arguments: Sequence[str]) -> tuple[Own, Sequence[str]]:
    """Return our own arguments, which come first, and the runtime's."""
    found = {}
    count = 0
    for word in arguments:
        if not word.startswith(_OWN_PREFIX):
            break
        name, _, text = word[len(_OWN_PREFIX) :].partition("=")
        if name not in {"runtime", "config", "root"} or not text.startswith("/"):
            raise WrapperError(
                f"argument {one_line(word, 100)} is unknown or names no absolute path",
                "known are --grapnel-runtime=FILE, --grapnel-config=FILE and --grapnel-root=FOLDER",
            )
        found[name] = text
        count += 1
    return Own(**found), arguments[count:]


def find_runtime(declared: str, folders: Sequence[str] = RUNTIME_FOLDERS) -> str:
    """Return the real runtime: the declared one, or the first of the known places that has one."""
    if declared:
        _require_trusted(declared)
        return declared
    for name in RUNTIME_NAMES:
        for folder in folders:
            path = os.path.join(folder, name)
            if os.path.exists(path):
                _require_trusted(path)
                return path
    raise WrapperError(
        f"found no {' or '.join(RUNTIME_NAMES)} in {', '.join(folders)}",
        "install one, or name it: --grapnel-runtime=FILE in the engine's runtime arguments",
    )


def _require_trusted(path: str) -> None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        raise WrapperError(
            f"the runtime {path} does not exist", "see --grapnel-runtime in the engine's configuration"
        ) from None
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & stat.S_IXUSR:
        raise WrapperError(f"the runtime {path} is not a program")
    if status.st_uid not in {0, os.geteuid()} or status.st_mode & _WRITABLE_BY_OTHERS:
        raise WrapperError(
            f"the runtime {path} can be changed by others than root", f"chown root {path}; chmod go-w {path}"
        )


def _become(runtime: str, arguments: Sequence[str]) -> NoReturn:
    """Replace this process as if the engine had started the real runtime itself.

    Python ignores SIGPIPE and SIGXFSZ, which would be inherited down to the container, and may set LC_CTYPE
    (PEP 538): both are put right. Descriptors, limits, folder and process id stay as they are.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execve(runtime, [runtime, *arguments], _first_environment())
    except OSError as reason:
        raise WrapperError(f"cannot start the runtime {runtime}: {(reason.strerror or '').lower()}") from reason


def _first_environment() -> dict[bytes, bytes]:
    """Return the environment that this process was started with."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return dict(os.environb)
    return {name: text for name, sign, text in (entry.partition(b"=") for entry in entries) if sign}


def _complain(text: str, call: Call | None) -> None:
    """Say what failed where engines look for it: stderr, and the runtime's log, whose last line containerd shows."""
    line = f"grapnel-runtime: {one_line(text, 2000)}"
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
    if call is None or not call.log:
        return
    import time

    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    quoted = '"' + line.replace("\\", "\\\\").replace('"', '\\"') + '"'
    json_line = f'{{"level":"error","msg":{quoted},"time":"{moment}"}}\n'
    text_line = f'time="{moment}" level=error msg={quoted}\n'
    try:
        with open(call.log, "a", encoding="utf-8") as file:
            file.write(json_line if call.log_format == "json" else text_line)
    except OSError:
        return

"""Names what is grapnel's alone on a node, beside the files that it configured: programs, units, state, sockets."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.engines.handed import HOME as ENGINE_PACKAGES
from ansible_collections.grapnel.node.plugins.module_utils.engines.staged import HOME
from ansible_collections.grapnel.node.plugins.module_utils.engines.table import OWN_FOLDER
from ansible_collections.grapnel.node.plugins.module_utils.machine.commands import our_command
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import DAEMON_UNIT, RESTART_MARKS, SITE_MARK
from ansible_collections.grapnel.node.plugins.module_utils.removal.parts import (
    DAEMON,
    HOOK,
    HOOK_CONFIG,
    NODE_CONFIG,
    RUNTIME,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

UNITS = {
    DAEMON: ("grapnel-drift.timer", "grapnel-drift.service", DAEMON_UNIT),
    HOOK: ("grapnel-inventory.path", "grapnel-inventory.service"),
}
PROGRAMS, VOLATILE = "/usr/lib/grapnel", ("/run/grapnel", "/run/grapnel-modules")
FOLDERS = (
    f"{PROGRAMS}/releases",
    PROGRAMS,
    OWN_FOLDER,
    "/etc/grapnel/devices.d",
    "/etc/grapnel/nvidia.d",
    "/etc/grapnel/selinux",
    "/etc/grapnel",
    "/var/lib/grapnel",
)
_UNIT_FOLDER = "/etc/systemd/system"
_TARGETS = ("multi-user.target", "timers.target")
_RELEASES = f"{PROGRAMS}/releases"
_PROGRAMS = {DAEMON: "node", HOOK: "hook"}
_CDI_FOLDER = "/var/run/cdi"
_CDI = f"{_CDI_FOLDER}/grapnel.json"
_HOOKLESS = ("grapnel.dev/device", "grapnel.dev/channel")  # of other devices, and of IMEX channels
_MAX_CDI_BYTES = 4 << 20  # as the hook reads it
_STATE = {
    DAEMON: (
        "/var/lib/grapnel/node",
        "/var/lib/grapnel/drift",
        SITE_MARK,
        "/run/grapnel/node.sock",
        "/run/grapnel/nvml.json",
    ),
    HOOK: ("/run/grapnel/inventory.json",),
    RUNTIME: (HOME, ENGINE_PACKAGES),  # what is staged, or of an exchange that was killed; what a bundle had
}
_UMOUNT_TIMEOUT_S = 30.0
_PATH = re.compile(r"/[A-Za-z0-9._/-]{1,250}")


def find_own(host: Host, part: str) -> list[str]:
    """Return the paths of a part that are there, in the order in which they go: programs after what runs them."""
    links = [f"{_UNIT_FOLDER}/{unit}" for unit in UNITS.get(part, ()) if part == HOOK]
    wants = [f"{_UNIT_FOLDER}/{target}.wants/{unit}" for unit in UNITS.get(part, ()) for target in _TARGETS]
    found = (*links, *wants, *_named(host, part), *_STATE.get(part, ()), *_programs(host, part))
    return [path for path in found if os.path.lexists(host.path(path))]


def _named(host: Host, part: str) -> list[str]:
    """Return the files that a part's configuration names, where it wrote them: nothing else that has such a name."""
    folder = _setting(host, NODE_CONFIG, "cdiFolder") or _CDI_FOLDER
    named = {
        HOOK: [_setting(host, HOOK_CONFIG, "cdi") or _CDI],
        DAEMON: [f"{folder}/grapnel-{name}.json" for name in ("claims", "devices", "domains")],
    }
    return [path for path in named.get(part, ()) if _is_our_cdi(host, path)]


def _is_our_cdi(host: Host, path: str) -> bool:
    """Whether it is a plain file of devices that our hook gives, or of other devices; what else is named stays."""
    try:
        if not stat.S_ISREG(host.path(path).lstat().st_mode):
            return False
        document = json.loads(host.read_text(path, _MAX_CDI_BYTES) or "{}")
        if document.get("kind") in _HOOKLESS:
            return True
        hooks = document["containerEdits"]["hooks"]
        return any(str(hook["path"]).startswith(f"{PROGRAMS}/") for hook in hooks)
    except (OSError, ValueError, RecursionError, TypeError, LookupError, AttributeError):
        return False


def _setting(host: Host, path: str, key: str) -> str:
    try:
        value = json.loads(host.read_text(path) or "{}").get(key) or ""
    except (AttributeError, ValueError):
        return ""
    return value if isinstance(value, str) and _PATH.fullmatch(value) and os.path.normpath(value) == value else ""


def _programs(host: Host, part: str) -> list[str]:
    program = _PROGRAMS.get(part)
    if program is None:
        return []
    starts = (f"{program}-", f".{program}-")
    releases = [f"{_RELEASES}/{name}" for name in host.names(_RELEASES) if name.startswith(starts)]
    return [*our_command(host, program), f"{PROGRAMS}/{program}", f"{PROGRAMS}/.{program}.new", *releases]


def remove_path(host: Host, path: str) -> None:
    """Remove a file, a link or a whole folder; raises OSError."""
    place = host.path(path)
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def unmount_below(host: Host, folder: str) -> None:
    """Unmount what the daemon has mounted there for MPS, the latest first; a folder with a mount in it cannot go."""
    lines = (host.read_text("/proc/self/mounts") or "").splitlines()
    places = [line.split()[1] for line in lines if len(line.split()) > 1]
    for place in reversed([one for one in places if one.startswith(f"{folder}/")]):
        host.run(["umount", "--", place], _UMOUNT_TIMEOUT_S)


def remove_made(host: Host, path: str) -> None:
    """Remove what an engine has made since it was installed; of settings only folders in which there is nothing.

    A link in the place of such a folder is somebody else's, and so is what it leads to.
    """
    if not path.startswith("/etc/"):
        remove_path(host, path)
        return
    if host.path(path).is_symlink():
        return
    below = [str(one) for one, _, _ in os.walk(host.path(path))]
    for folder in sorted(below, key=len, reverse=True):
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106 - a path as os.walk has it


def remove_marks(host: Host, units: Collection[str]) -> None:
    """Remove the marks of restarts that are due: what they were due for is gone."""
    for unit in units:
        host.path(f"{RESTART_MARKS}/{unit}").unlink(missing_ok=True)


def remove_empty(host: Host, folders: Collection[str]) -> list[str]:
    """Remove folders in which nothing is left, deepest first; return which."""
    removed = []
    for folder in sorted(folders, key=len, reverse=True):
        try:
            host.path(folder).rmdir()
        except OSError:
            continue
        removed.append(folder)
    return removed

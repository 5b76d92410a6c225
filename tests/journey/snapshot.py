"""What a machine has on its disk and in its package manager, as one value that can be compared with a later one.

Every path below the folders with kind, mode, owner and content; every package with its version and state; every unit
that starts by itself. What the system writes on its own account is left out, each with its reason.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.nodes import Node

FOLDERS = ("/boot", "/etc", "/opt", "/root", "/srv", "/usr", "/var/lib", "/var/cache/nvidia", "/var/spool")
# Patterns of fnmatch(3): a star takes slashes as well.
WRITTEN_BY_THE_SYSTEM = {
    "/etc/ld.so.cache": "ldconfig numbers what it lists after the order on the disk",
    "/etc/group-": "a backup that the tools for groups keep",
    "/etc/gshadow-": "the same",
    "/etc/gpusim*": "the simulated machine itself",
    "/root/.ansible*": "Ansible's own folder for the modules that it runs",
    "/usr/lib/*/libnvidia-ml.so*": "the simulated NVML, and dpkg's diversions of it",
    "/usr/share/mime/*": "a cache that dpkg triggers make again",
    "*/__pycache__*": "Python's own cache",
    "/var/lib/apt/daily_lock": "a lock",
    "/var/lib/apt/extended_states": "rewritten with other paragraphs in between; its marks are compared by package",
    "/var/lib/apt/lists*": "what package sources offered when they were last asked",
    "/var/lib/apt/periodic*": "when they were asked",
    "/var/lib/dpkg/*-old": "backups of the package manager",
    "/var/lib/dpkg/available*": "a cache of the package manager",
    "/var/lib/dpkg/diversions": "the simulated NVML",
    "/var/lib/dpkg/lock*": "locks",
    "/var/lib/dpkg/status": "its paragraphs move; the packages are compared instead",
    "/var/lib/dpkg/triggers/*": "what was triggered last",
    "/var/lib/systemd/*": "timers, random seed, catalogues",
    "/var/lib/rpm*": "the package manager's database; the packages are compared instead",
    "/var/lib/dnf*": "its history",
    "/var/lib/kubelet*": "the kubelet's own data",
    "/var/lib/cni*": "addresses that the pod network has given",
    "/var/lib/containerd*": "the engine's own data",
    "/var/lib/containers*": "the same, of CRI-O and Podman",
    "/var/lib/crio*": "what CRI-O notes of its starts and ends",
    "/var/lib/private*": "made by systemd",
}
_PROGRAM = """
import fnmatch, hashlib, json, os, stat, sys
folders, skipped = json.loads(sys.argv[1])
found = {}
def look(path):
    if any(fnmatch.fnmatchcase(path, one) for one in skipped):
        return False
    status = os.lstat(path)
    kind = stat.S_IFMT(status.st_mode)
    row = [oct(status.st_mode), status.st_uid, status.st_gid]
    if stat.S_ISLNK(kind):
        row.append(os.readlink(path))
    elif stat.S_ISREG(kind):
        with open(path, 'rb') as stream:
            row.append(hashlib.sha256(stream.read()).hexdigest()[:16])
    found[path] = row
    return stat.S_ISDIR(kind)
for folder in folders:
    if not os.path.lexists(folder) or not look(folder):
        continue
    for place, below, names in os.walk(folder):
        below[:] = [one for one in below if os.path.islink(os.path.join(place, one)) or look(os.path.join(place, one))]
        for name in [*names, *(one for one in below if os.path.islink(os.path.join(place, one)))]:
            look(os.path.join(place, name))
json.dump(found, sys.stdout)
"""
_PACKAGES = (
    "if command -v dpkg-query > /dev/null; then"
    " dpkg-query -W -f '${Package}:${Architecture} ${Version} ${db:Status-Want} ${db:Status-Status}\\n';"
    " else rpm -qa | grep -v ^gpg-pubkey; fi"  # keys that dnf has taken in stay, as everywhere
)
_AUTOMATIC = "if command -v apt-mark > /dev/null; then apt-mark showauto; fi"
_UNITS = "systemctl list-unit-files --no-legend --plain | awk '{print $1, $2}'"
_RUNNING = (
    "systemctl list-units --type=service,timer,path --state=active --no-legend --plain | cut -d' ' -f1"
    " | grep -v -E '^(session|user@|user-runtime|apt-|dpkg-|systemd-tmpfiles-clean|fstrim|e2scrub|logrotate)'"
    " | grep -v -E '^(ldconfig|systemd-(journal-catalog-update|sysusers|update-done))[.]'"  # if /usr was changed
)


@dataclass(frozen=True)
class Snapshot:
    """A machine at one moment; ``lists`` are lines of commands, sorted."""

    files: Mapping[str, tuple[object, ...]]
    lists: Mapping[str, tuple[str, ...]]

    def difference(self, later: Snapshot) -> dict[str, str]:
        """Return what a later moment has otherwise, by path or list; empty when nothing differs."""
        paths = sorted(self.files.keys() | later.files.keys())
        files = {path: (self.files.get(path), later.files.get(path)) for path in paths}
        changed = {path: f"{before} -> {after}" for path, (before, after) in files.items() if before != after}
        for name, lines in self.lists.items():
            gone, new = sorted(set(lines) - set(later.lists[name])), sorted(set(later.lists[name]) - set(lines))
            if gone or new:
                changed[name] = f"gone: {gone}; new: {new}"
        return changed


def take_snapshot(node: Node) -> Snapshot:
    """Return what a node is like now."""
    wanted = json.dumps([FOLDERS, list(WRITTEN_BY_THE_SYSTEM)])
    found = json.loads(node.run(["python3", "-IS", "-c", _PROGRAM, wanted]).stdout)
    commands = {
        "packages": _PACKAGES,
        "automatic": _AUTOMATIC,
        "units": _UNITS,
        "active": _RUNNING,
        "groups": "cat /etc/group",
    }
    lists = {name: tuple(sorted(node.run(["sh", "-c", one]).stdout.splitlines())) for name, one in commands.items()}
    return Snapshot({path: tuple(row) for path, row in found.items()}, lists)

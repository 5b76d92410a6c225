"""Who has a device node of an NVIDIA GPU open, in this process namespace and those below it: from /proc.

Nodes are the driver's own (`/dev/nvidia*`, with those for MIG and IMEX below them) and those that the kernel's graphics
system makes for its GPUs (`/dev/dri`): each of them keeps a module of the driver. A library that is mapped does not.

Needs root and CAP_SYS_PTRACE, which the daemon's unit does not have: the command line calls this. Not
here: what is done about a holder.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.holdings.holders.cgroup import parse_cgroup

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DEVICE = "/dev/nvidia"
_NVIDIA = "0x10de"
_DRI_NODE = re.compile(r"(card|renderD)[0-9]+")
_PROCESS = re.compile(r"[0-9]{1,9}")
_DELETED = " (deleted)"
_PATH = 5  # which of the fields of a mapping, proc_pid_maps(5)
_MAX_DEVICES = 64  # that are told of one process
MAX_SHOWN = 256  # characters: more than a unit's name may have


def printable(text: str, limit: int = MAX_SHOWN) -> str:
    """Return a text that an ordinary user of the node chose as at most `limit` visible characters.

    Others are spelled out as Python spells them.
    """
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text[:limit])
    return shown if len(shown) <= limit and len(text) <= limit else shown[: limit - 1] + "…"


@dataclass(frozen=True)
class Holder:
    """A process; `devices` are the nodes that it has open or mapped, by their names on the host or in its container."""

    pid: int
    command: str
    devices: tuple[str, ...]
    unit: str | None = None
    pod_uid: str | None = None
    container_id: str | None = None
    pod_name: str | None = None  # namespace/name; it and the next only where they were looked for
    container_name: str | None = None


@dataclass(frozen=True)
class Listing:
    """All holders by process id, and the processes that root may not look into (confined or traced ones)."""

    holders: tuple[Holder, ...] = ()
    hidden: tuple[int, ...] = ()


def read_dri_nodes(sys_root: Path) -> frozenset[str]:
    """Return the nodes of `/dev/dri` that belong to NVIDIA GPUs; others are of no interest."""
    folder = sys_root / "class/drm"
    try:
        names = os.listdir(folder)
    except OSError:
        return frozenset()
    nodes = (name for name in names if _DRI_NODE.fullmatch(name))
    return frozenset(f"/dev/dri/{name}" for name in nodes if _read(folder / name / "device/vendor").strip() == _NVIDIA)


def list_holders(proc: Path, own_pid: int = -1, *, dri_nodes: frozenset[str] = frozenset()) -> Listing:
    """Look at every process but the own one, which ends anyway; raises OSError when /proc itself cannot be read.

    A process that cannot be looked into is named, not counted as a holder: should it be one after all, the
    kernel still refuses to unload the module.
    """
    holders, hidden = [], []
    for pid in sorted(int(name) for name in os.listdir(proc) if _PROCESS.fullmatch(name)):
        if pid == own_pid:
            continue
        process = proc / str(pid)
        try:
            devices = sorted({*_open_nodes(process / "fd", dri_nodes), *_mapped_nodes(process, dri_nodes)})
        except PermissionError:
            hidden.append(pid)
            continue
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        if devices:
            holders.append(_describe(process, pid, tuple(devices)))
    return Listing(tuple(holders), tuple(hidden))


def _open_nodes(folder: Path, dri_nodes: frozenset[str]) -> Iterator[str]:
    for name in os.listdir(folder):
        with suppress(FileNotFoundError, ProcessLookupError):  # closed meanwhile
            target = os.readlink(folder / name).removesuffix(_DELETED)  # the name, not the file
            if target in dri_nodes or _is_node(target, folder / name):
                yield target


def _is_node(target: str, link: Path) -> bool:
    """Tell by the name, and only where that is unusual by the file: looking at files can hang on a dead disk."""
    if target.startswith(_DEVICE):
        return True
    name = target.rpartition("/")[2]
    return name.startswith("nvidia") and "/dev/" in target and stat.S_ISCHR(link.stat().st_mode)


def _mapped_nodes(process: Path, dri_nodes: frozenset[str]) -> Iterator[str]:
    """Return nodes that are mapped, with or without a descriptor: a mapping keeps the module as well."""
    for line in _text(process / "maps").split("\n"):
        fields = line.split(maxsplit=5)
        path = fields[_PATH].removesuffix(_DELETED) if len(fields) > _PATH else ""
        if path.startswith(_DEVICE) or path in dri_nodes:
            yield path


def _text(path: Path) -> str:
    """Return a file's text with its line ends as they are: a name in it may have any but the kernel's."""
    return path.read_bytes().decode(errors="replace")


def _read(path: Path) -> str:
    try:
        return _text(path)
    except OSError:
        return ""


def _describe(process: Path, pid: int, devices: tuple[str, ...]) -> Holder:
    """Return a holder as it may be shown: a user of the node chooses these names."""
    place = parse_cgroup(_read(process / "cgroup"))
    command = printable(_read(process / "comm").strip())
    unit = printable(place.unit) if place.unit else None
    return Holder(pid, command, tuple(map(printable, devices[:_MAX_DEVICES])), unit, place.pod_uid, place.container_id)

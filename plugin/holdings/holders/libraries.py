"""Which containers have none of the driver's libraries mounted, from /proc: no hook has run for them.

A container that was allocated a GPU has its device nodes from the kubelet; the libraries come from the hook, which runs
where the container's handler (RuntimeClass) has it run. Needs root, as `plugin.holdings.holders.scan` does.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from plugin.holdings.holders.cgroup import parse_cgroup
from plugin.holdings.holders.pod_names import PodNames

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from plugin.holdings.holders.cgroup import Place
    from plugin.kubelet.pod_resources.attribution import PodContainer

_PROCESS = re.compile(r"[0-9]{1,9}")
_LIBRARY = re.compile(rb"/lib(?:cuda|nvidia)[^/ ]*\.so")  # in a mount point, proc_pid_mountinfo(5): no blanks in it
_MOUNT_POINT = 4  # which of the fields


def without_libraries(proc: Path, logs: Path, wanted: Collection[PodContainer]) -> tuple[PodContainer, ...]:
    """Return those of the wanted containers that have a process, and no process that sees a library of the driver.

    A container of which nothing can be read is not among them. Raises OSError when /proc itself cannot be read.
    """
    seen = {place: pids for place, pids in _by_place(proc).items() if place.pod_uid and place.container_id}
    found: dict[PodContainer, bool] = {}
    for place, name in PodNames(logs).look_up(seen).items():
        if name in wanted:  # a pod's own container, which has no libraries either, may go by the name of its only one
            found[name] = found.get(name, False) or any(_may_have_libraries(proc / pid) for pid in seen[place])
    return tuple(name for name in wanted if found.get(name) is False)


def _by_place(proc: Path) -> dict[Place, list[str]]:
    found: dict[Place, list[str]] = {}
    for pid in os.listdir(proc):
        if _PROCESS.fullmatch(pid):
            for text in _read(proc / pid / "cgroup"):
                found.setdefault(parse_cgroup(text.decode(errors="replace")), []).append(pid)
    return found


def _may_have_libraries(process: Path) -> bool:
    """Tell whether a process sees a library of the driver by a mount; also where that cannot be read."""
    read = _read(process / "mountinfo")
    lines = [line.split(b" ", 5) for text in read for line in text.split(b"\n")]
    return not read or any(_LIBRARY.search(fields[_MOUNT_POINT]) for fields in lines if len(fields) > _MOUNT_POINT)


def _read(path: Path) -> tuple[bytes, ...]:
    """Return the content of a file as one item, none where it cannot be read."""
    try:
        return (path.read_bytes(),)
    except OSError:
        return ()

"""What ``/proc/self/mountinfo`` tells of a container's mounts. Pure.

Source: proc_pid_mountinfo(5): mount id, parent's id, device of the file system, root in it, mount point, options.
"""

from __future__ import annotations


def is_mounted_outside(mountinfo: str, mount_id: str, root_id: str) -> bool:
    """Tell whether a mount of a container shows a file system that is mounted outside of the container's root, too.

    Then it is a volume: what is made there is made on the host. The root's own mount is none, though the host may well
    see it: it is the image's.
    """
    if mount_id == root_id:
        return False
    parents, devices = {}, {}
    for line in mountinfo.splitlines():
        number, parent, device = line.split(" ", 3)[:3]
        parents[number], devices[number] = parent, device
    wanted = devices.get(mount_id)
    return any(device == wanted and not _is_below(parents, number, root_id) for number, device in devices.items())


def _is_below(parents: dict[str, str], number: str, root_id: str) -> bool:
    seen = set()
    while number not in seen:
        if number == root_id:
            return True
        seen.add(number)
        number = parents.get(number, number)
    return False

"""Looks up mounts in ``/proc/self/mountinfo`` and ``fdinfo``: which one a descriptor is on, who else sees it.

Source: proc_pid_mountinfo(5): mount id, parent's id, device of the file system, root in it, mount point, options.
"""

from __future__ import annotations


def is_mounted_outside(mountinfo: str, mount_id: str, root_id: str) -> bool:
    """Tell whether a mount of a container shows a file system that is mounted outside of the container's root, too.

    Then it is a volume: what is made there is made on the host. The root's own mount is not one, though the host may
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


def read_own(name: str) -> str:
    """Return a file of this process's own folder in ``/proc``."""
    with open(f"/proc/self/{name}", encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def mount_id(descriptor: int) -> str:
    """Return the number that mountinfo has for the mount behind a descriptor."""
    lines = read_own(f"fdinfo/{descriptor}").splitlines()
    return next(line.split()[1] for line in lines if line.startswith("mnt_id:"))


def is_shared_mount(descriptor: int) -> bool:
    """Tell whether mounts below a descriptor's mount would propagate to another namespace."""
    wanted = mount_id(descriptor)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields = line.partition(" - ")[0].split()
            if fields[0] == wanted:
                return any(field.startswith("shared:") for field in fields[6:])
    return True

"""Finds where a container's device rules are kept: a group of cgroup v1's devices controller, or one of cgroup v2.

Source: cgroups(7), proc_pid_cgroup(5), proc_pid_mountinfo(5). Where both hierarchies are mounted, the devices
controller of v1 decides alone when it is among the mounted ones (hybrid hosts): runtimes put their rules there.
"""

from __future__ import annotations

import os

from runtime_hook.base.errors import InjectionError
from runtime_hook.base.values import value
from runtime_hook.container.devicerules import Unrestricted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.container.devicerules import DeviceRules

_NESTED_GROUP = "container"


@value
class Group:
    """A group's path on the host, and the version of its hierarchy."""

    path: str
    version: int


def find_device_rules(pid: int, *, is_rootless: bool) -> DeviceRules:
    """Return what keeps the device rules of a process; InjectionError where they cannot be set.

    A rootless engine sets no rules (only root on the host may), so none stand in the way.
    """
    if is_rootless:
        return Unrestricted()
    mounts = _read("/proc/self/mountinfo")
    group = locate_group(_read(f"/proc/{pid}/cgroup"), mounts)
    own = locate_group(_read("/proc/self/cgroup"), mounts)
    return open_device_rules(group, is_shared=group == own)


def open_device_rules(group: Group | None, *, is_shared: bool) -> DeviceRules:
    """Return what keeps a group's rules. A group that the hook is in itself is not the container's own."""
    if group is None:
        raise InjectionError(
            "device rules cannot be set: the container's device group is not found below any mounted cgroup hierarchy",
            "let the engine put the devices into the container's configuration",
        )
    if group.version == 1:
        rules = open_group(group.path)
    else:
        from runtime_hook.container.devicerules.v2 import find_programs

        rules = find_programs(own_folders(group.path))
    if is_shared and not isinstance(rules, Unrestricted):
        raise InjectionError(
            f"device rules cannot be set: {group.path} is not the container's own group",
            "let the engine make a group for each container, or put the devices into its configuration",
        )
    return rules


def locate_group(groups: str, mounts: str) -> Group | None:
    """Combine /proc/PID/cgroup and mountinfo into the group whose device rules count."""
    paths = {}
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            paths["cgroup2"] = path
        elif "devices" in controllers.split(","):
            paths["cgroup"] = path
    for kind in ("cgroup", "cgroup2"):
        found = _place(paths[kind], mounts, kind) if kind in paths else None
        if found is not None:
            return found
    return None


def _place(path: str, mounts: str, kind: str) -> Group | None:
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, words = left.split(), right.split()
        if words[:1] != [kind] or (kind == "cgroup" and "devices" not in words[-1].split(",")):
            continue
        root, mount_point = fields[3:5]
        if "/.." in path:
            continue  # outside the part of the hierarchy that this process may see
        if root in {"/", path} or path.startswith(root + "/"):
            below = path if root == "/" else path[len(root) :]
            return Group(mount_point + below.rstrip("/"), 1 if kind == "cgroup" else 2)
    return None


def own_folders(path: str) -> tuple[str, ...]:
    """Return the v2 groups that are the container's alone: its own and, with crun, the systemd scope around it.

    crun puts a container below its scope, in ``container`` (annotation run.oci.systemd.subgroup), and either may bear
    the program. Groups further out belong to others too, and stay as they are.
    """
    outer, name = os.path.split(path)
    if name == _NESTED_GROUP and outer.endswith(".scope"):
        return path, outer
    return (path,)


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


# Sets device rules under cgroup v1, in files of the container's group. Source: Documentation/admin-
# guide/cgroup-v1/devices.rst.

_ALL = "a *:* rwm"


class ControllerFiles:
    """One group of the devices controller."""

    def __init__(self, group: str) -> None:
        self._group = group

    def allow(self, rules: tuple[str, ...]) -> None:
        """Add all rules, or none."""
        for count, rule in enumerate(rules):
            try:
                _write(f"{self._group}/devices.allow", rule)
            except BaseException:
                self.deny(rules[:count])
                raise

    def deny(self, rules: tuple[str, ...]) -> None:
        """Take rules away."""
        for rule in reversed(rules):
            _write(f"{self._group}/devices.deny", rule)


def open_group(group: str) -> DeviceRules:
    """Return a group's rules."""
    with open(f"{group}/devices.list", encoding="utf-8") as file:
        return Unrestricted() if file.read().strip() == _ALL else ControllerFiles(group)


def _write(path: str, rule: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, rule.encode())
    finally:
        os.close(descriptor)

"""Device rules: which the container's configuration already allows, and where cgroup v1 keeps them.

Only ``env`` mode sets rules. Rules that a hook adds are lost when the runtime's manager writes its own again (for
example at ``systemctl daemon-reload`` with systemd cgroups): with Kubernetes they belong in the configuration.
Room for cgroup v2, whose rules are a BPF program, which a later release replaces.
"""

from __future__ import annotations

from runtime_hook.errors import InjectionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime_hook.bundle import DeviceRule

_ANY = -1


def is_allowed(rules: Sequence[DeviceRule], major: int, minor: int) -> bool:
    """Tell whether rules, applied in their order, leave a character device readable and writable.

    Without any rule nothing is known to be allowed.
    """
    missing = {"r", "w"}
    for rule in rules:
        if rule.type not in {"a", "c"} or rule.major not in {_ANY, major} or rule.minor not in {_ANY, minor}:
            continue
        if rule.allow:
            missing.difference_update(rule.access)
        else:
            missing.update(set(rule.access) & {"r", "w"})
    return not missing


def find_device_group(pid: int) -> str:
    """Return the host's path of a process's group under the v1 devices controller; InjectionError under v2."""
    with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        groups = file.read()
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mounts = file.read()
    group = locate_device_group(groups, mounts)
    if not group:
        raise InjectionError(
            "device rules cannot be set: the devices controller of cgroup v1 is not mounted",
            "with cgroup v2 let the engine put the devices into the container's configuration",
        )
    return group


def locate_device_group(groups: str, mounts: str) -> str:
    """Combine /proc/PID/cgroup and mountinfo into a path, "" where the v1 devices controller is not there."""
    path = ""
    for line in groups.splitlines():
        _, controllers, here = line.split(":", 2)
        if "devices" in controllers.split(","):
            path = here
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if kind[:1] != ["cgroup"] or "devices" not in kind[-1].split(","):
            continue
        root, mount_point = fields[3:5]
        if path and (root in {"/", path} or path.startswith(root + "/")):
            return mount_point + (path if root == "/" else path[len(root) :]).rstrip("/")
    return ""

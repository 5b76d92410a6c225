"""Enters the container's mount namespace and returns from it, whoever runs the hook.

Three cases (docs/hook/unusual.md):

- root on the host, container in the host's user namespace: nothing but setns;
- root on the host, container in a user namespace of its own: what the hook makes belongs to the container's root;
- an ordinary user (rootless runc): the hook joins the container's user namespace, where the user is root, and stages
  from a copy of the host's mount namespace. Rootless Podman starts its hooks in such a namespace already.
"""

from __future__ import annotations

import os
import stat

from runtime_hook.base.errors import InjectionError, StateError
from runtime_hook.base.reading import describe_error
from runtime_hook.container import libc

_INITIAL_USER_NAMESPACE = 0xEFFFFFFD  # its inode number, include/linux/proc_ns.h
_FOR_ALL = stat.S_IROTH | stat.S_IWOTH


class ContainerNamespaces:
    """The way between the host's side and the container's."""

    def __init__(self, pid: int) -> None:
        self._container = _open_namespace(pid, "mnt")
        own_user = os.stat("/proc/self/ns/user").st_ino
        has_own_users = os.stat(f"/proc/{pid}/ns/user").st_ino != own_user
        self.is_rootless = os.geteuid() != 0 or own_user != _INITIAL_USER_NAMESPACE
        self.makes_nodes = not (self.is_rootless or has_own_users)
        self._owner = (0, 0)
        self._own = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        if os.path.sameopenfile(self._own, self._container):
            raise InjectionError("the container has no mount namespace of its own", "nothing is mounted on the host")
        if os.geteuid() != 0:
            self._become_root(pid, has_own_users=has_own_users)
        elif has_own_users:
            self._owner = (_first_id(_read(f"/proc/{pid}/uid_map")), _first_id(_read(f"/proc/{pid}/gid_map")))
            libc.keep_capabilities()
        self._own_root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._pid = pid
        self._is_known = False

    def _become_root(self, pid: int, *, has_own_users: bool) -> None:
        """Join the container's user namespace, with a copy of the host's mounts that it owns."""
        if not has_own_users:
            raise InjectionError("no privilege to mount", "the engine must run as root or with a user namespace")
        try:
            libc.setns(_open_namespace(pid, "user"), libc.CLONE_NEWUSER)
            libc.unshare(libc.CLONE_NEWNS)
        except OSError as reason:
            raise InjectionError(f"container's user namespace: {describe_error(reason)}") from reason
        self._own = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

    def may_open(self, path: str, status: os.stat_result, mode: int) -> bool:
        """Tell whether a device node of the host can be opened as ``mode`` lets all, before it is bound there."""
        if self.is_rootless:
            return os.access(path, os.R_OK | (os.W_OK if mode & stat.S_IWOTH else 0))
        return status.st_mode & mode & _FOR_ALL == mode & _FOR_ALL

    def enter(self) -> None:
        """Go into the container; what is made there belongs to its root."""
        if self._is_known:
            libc.setns(self._container, libc.CLONE_NEWNS)
        else:
            self._enter_first()
        if self._owner != (0, 0):
            libc.set_file_ids(*self._owner)

    def _enter_first(self) -> None:
        """Go in and, before anything is looked up there, make sure that the host's files are what is found.

        Until pivot_root the namespace is a copy of ours, so what Python imports and what is read by path is the
        host's. Afterwards (a hook at a later stage, a pid that was used again) it would be the image's.
        """
        libc.setns(self._own, libc.CLONE_NEWNS)
        own = os.stat("/")
        libc.setns(self._container, libc.CLONE_NEWNS)
        if not os.path.samestat(os.stat("/"), own):
            raise StateError(f"container process {self._pid} has left the host's root", "the hook belongs to prestart")
        self._is_known = True

    def leave(self) -> None:
        """Go back into the host's mount namespace, and to the root that the engine has there.

        setns(2) leads to the namespace's own root: for an engine in a chroot that is another place, where neither
        our modules nor the log would be found.
        """
        if self._owner != (0, 0):
            libc.set_file_ids(0, 0)
        libc.setns(self._own, libc.CLONE_NEWNS)
        os.fchdir(self._own_root)
        os.chroot(".")


def _open_namespace(pid: int, kind: str) -> int:
    try:
        return os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as reason:
        raise StateError(f"container process {pid}: {describe_error(reason)}") from reason


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _first_id(id_map: str) -> int:
    """Return which id outside a user namespace its root has; ours where it has no root."""
    for line in id_map.splitlines():
        inside, outside, _ = line.split()
        if inside == "0":
            return int(outside)
    return 0

"""Implements ``Syscalls`` on one container's root with real system calls.

Works inside another mount namespace whose root is hostile: paths are resolved by openat2 inside the root, without
magic links and without crossing mounts; the last name is never followed; mounts go from descriptor to descriptor.
Needs Linux 5.12 (mount_setattr). The calls themselves are in ``libc``, the way in and out in ``namespaces``.
"""

from __future__ import annotations

import errno
import os
import stat

from runtime_hook.base.errors import InjectionError
from runtime_hook.base.reading import describe_error, read_descriptor
from runtime_hook.container import libc
from runtime_hook.container.libc import (
    MOUNT_ATTR_NODEV,
    MOUNT_ATTR_NOEXEC,
    MOUNT_ATTR_NOSUID,
    MOUNT_ATTR_RDONLY,
    RESOLVE_BENEATH,
    RESOLVE_IN_ROOT,
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS,
    RESOLVE_NO_XDEV,
)
from runtime_hook.container.mounttable import is_mounted_outside, is_shared_mount, mount_id, read_own
from runtime_hook.container.namespaces import ContainerNamespaces
from runtime_hook.container.procmask import mask_proc
from runtime_hook.container.syscalls import KIND_FILE, KIND_FOLDER, KIND_SOCKET, FileStatus
from runtime_hook.container.writing import TemporaryNames, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from runtime_hook.container.devicerules import DeviceRules
    from runtime_hook.loader.elf import ReadAt

    T = TypeVar("T")

_INSIDE = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS
_ONE_NAME = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV
_STAGED_TYPES = {
    KIND_FILE: (stat.S_IFREG,),
    KIND_FOLDER: (stat.S_IFDIR,),
    KIND_SOCKET: (stat.S_IFSOCK, stat.S_IFDIR),
}


class KernelSyscalls:
    """The interface of ``syscalls.Syscalls`` on one container: its init process and its root on the host.

    ``enter`` and ``leave`` move between the two mount namespaces; host files are cloned outside, all else is inside.
    """

    def __init__(self, pid: int, rootfs: str, driver_root: str = "/", mount_label: str = "") -> None:
        self._rootfs = rootfs
        self._driver_root = driver_root
        self._mount_label = mount_label
        self._pid = pid
        self._namespaces = ContainerNamespaces(pid)
        self._host_root = os.stat("/")
        self._host_dev = os.stat("/dev").st_dev
        self._root = -1
        self._rules: DeviceRules | None = None
        self._temporary = TemporaryNames()
        self._dev = -1
        self._staged: dict[str, int] = {}
        self._staged_folders: set[str] = set()
        self._attached: dict[str, int] = {}
        self._folders: dict[str, int] = {}

    @property
    def makes_nodes(self) -> bool:
        """Whether device nodes that are made here can be opened: not in a user namespace."""
        return self._namespaces.makes_nodes

    def enter(self) -> None:
        """Go into the container's mount namespace and open its root there (pivot_root comes after the hook)."""
        self._namespaces.enter()
        if self._root < 0:
            self._root = self._open_root()

    def leave(self) -> None:
        """Go back into the host's mount namespace, and to the root that the engine has there."""
        self._namespaces.leave()

    def _open_root(self) -> int:
        try:
            root = os.open(self._rootfs, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as reason:
            raise InjectionError(f"container root {self._rootfs}: {describe_error(reason)}") from reason
        if os.path.samestat(os.fstat(root), self._host_root):
            raise InjectionError(f"container root {self._rootfs} is the host's", "nothing is written there")
        if is_shared_mount(root):
            raise InjectionError(
                f"container root {self._rootfs} is a shared mount, and mounts in it would appear on the host",
                "the runtime must make it private before hooks run, as runc and crun do",
            )
        return root

    def stage_file(self, source: str, kind: str = KIND_FILE) -> None:
        """Clone something of the host as a detached mount, nosuid, nodev, and read-only unless it is a socket.

        A folder of sockets is read-only, too: they can be used there, and nobody puts anything in their place.
        """
        tree = libc.clone_path(source, self._driver_root)
        mode = os.fstat(tree).st_mode
        if stat.S_IFMT(mode) not in _STAGED_TYPES[kind]:
            raise OSError(errno.EINVAL, f"not a {kind}", source)
        if stat.S_ISDIR(mode):
            self._staged_folders.add(source)
        attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV
        attributes |= MOUNT_ATTR_NOEXEC if kind == KIND_SOCKET else 0
        attributes |= 0 if stat.S_ISSOCK(mode) else MOUNT_ATTR_RDONLY
        libc.set_attributes(tree, attributes)
        self._staged[source] = tree

    def stage_node(self, source: str, major: int, minor: int, mode: int) -> None:
        """Clone a device node of the host as a detached mount; read-only keeps its mode and owner as they are."""
        tree = libc.clone_path(source, self._driver_root)
        status = os.fstat(tree)
        if not stat.S_ISCHR(status.st_mode) or status.st_rdev != os.makedev(major, minor):
            raise OSError(errno.ENXIO, f"not the device {major}:{minor}", source)
        if not self._namespaces.may_open(source, status, mode):
            raise OSError(errno.EACCES, f"mode {status.st_mode & 0o777:o} keeps the container's users out", source)
        libc.set_attributes(tree, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)
        self._staged[source] = tree

    def stage_device_rules(self) -> None:
        """Find where the container's device rules are kept."""
        if self._rules is None:
            from runtime_hook.container.devicerules.hierarchy import find_device_rules

            self._rules = find_device_rules(self._pid, is_rootless=self._namespaces.is_rootless)

    def open_folder(self, path: str) -> int:
        """Open a folder of the container; neither leaves the root nor crosses into another mount."""
        if path not in self._folders:
            flags = os.O_PATH | os.O_DIRECTORY
            self._folders[path] = libc.openat2(self._root, path, flags, _INSIDE | RESOLVE_NO_XDEV)
        return self._folders[path]

    def open_device_folder(self, subfolder: str = "") -> int:
        """Open the container's ``/dev``, which is a mount of its own but never the host's, or a folder of it."""
        if self._dev < 0:
            folder = libc.openat2(self._root, "dev", os.O_PATH | os.O_DIRECTORY, _INSIDE | RESOLVE_NO_SYMLINKS)
            is_volume = is_mounted_outside(read_own("mountinfo"), mount_id(folder), mount_id(self._root))
            if is_volume or os.fstat(folder).st_dev == self._host_dev:
                raise OSError(errno.EXDEV, "/dev is a folder of the host", "/dev")
            self._dev = folder
        if not subfolder:
            return self._dev
        return libc.openat2(self._dev, subfolder, os.O_PATH | os.O_DIRECTORY, _ONE_NAME)

    @staticmethod
    def _open_name(folder: int, name: str) -> int:
        return libc.openat2(folder, name, os.O_PATH | os.O_NOFOLLOW, _ONE_NAME)

    def make_folder(self, folder: int, name: str) -> None:
        """Make a folder that does not exist."""
        os.mkdir(name, 0o755, dir_fd=folder)

    def remove_folder(self, folder: int, name: str) -> None:
        """Remove an empty folder."""
        os.rmdir(name, dir_fd=folder)
        self._folders.clear()  # one of them may lead to the folder that is gone, not to its successor

    def lstat(self, folder: int, name: str) -> FileStatus | None:
        """Look at a name without following it; EXDEV when another mount covers it."""
        try:
            found = self._open_name(folder, name)
        except FileNotFoundError:
            return None
        try:
            status = os.fstat(found)
        finally:
            os.close(found)
        return FileStatus(status.st_mode, os.major(status.st_rdev), os.minor(status.st_rdev))

    @staticmethod
    def _create(folder: int, name: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, 0o644, dir_fd=folder)

    def attach(self, source: str, folder: int, name: str) -> int:
        """Attach what was staged; its target is judged by the descriptor that it is attached to."""
        target = self._open_name(folder, name)
        try:
            kind = stat.S_IFDIR if source in self._staged_folders else stat.S_IFREG
            if stat.S_IFMT(os.fstat(target).st_mode) != kind:
                raise OSError(errno.EINVAL, "not a regular file" if kind == stat.S_IFREG else "not a folder", name)
            return self._attach_to(target, source)
        finally:
            os.close(target)

    def attach_new(self, source: str, folder: int, name: str) -> int:
        """Attach what was staged on a target made for it, which goes again when that fails."""
        target = -1
        if source in self._staged_folders:
            os.mkdir(name, 0o755, dir_fd=folder)
        else:
            target = self._create(folder, name)
        try:
            if target < 0:
                target = self._open_name(folder, name)
            return self._attach_to(target, source)
        except BaseException:
            self.remove_target(source, folder, name)
            raise
        finally:
            if target >= 0:
                os.close(target)

    def remove_target(self, source: str, folder: int, name: str) -> None:
        """Remove a target that was made for what was staged."""
        if source in self._staged_folders:
            os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)

    def _attach_to(self, target: int, source: str) -> int:
        tree = self._take_tree(source)
        libc.attach_tree(tree, target)
        self._attached[source] = tree
        return tree

    def mask_proc(self, target: str, shown: tuple[str, ...]) -> int:
        """Cover a driver's folder in the container's procfs; return a handle, -1 where there is none to cover."""
        return mask_proc(self._root, target, shown, self._mount_label)

    def _take_tree(self, source: str) -> int:
        """Return a detached clone: the staged one, then clones of the attached one (with its attributes)."""
        if source in self._attached:
            return libc.clone_tree(self._attached[source])
        if source not in self._staged:
            raise OSError(errno.ENOENT, "not staged", source)
        return self._staged[source]

    def detach(self, handle: int) -> None:
        """Take what was attached away: the handle still leads to exactly this mount."""
        libc.unmount(handle)

    def read_link(self, folder: int, name: str) -> str:
        """Return the text of a symbolic link."""
        return os.readlink(name, dir_fd=folder)

    def make_link(self, folder: int, name: str, target: str) -> None:
        """Make a symbolic link where there is nothing."""
        os.symlink(target, name, dir_fd=folder)

    def put_link(self, folder: int, name: str, target: str) -> None:
        """Make a symbolic link, replacing whatever non-folder has the name, in one step."""
        temporary = self._temporary.name(folder)
        os.symlink(target, temporary, dir_fd=folder)
        self._rename(folder, temporary, name)

    def read_file(self, folder: int, name: str, limit_bytes: int) -> bytes | None:
        """Return a regular file's content; None when it is larger than the limit."""
        content = self._open_content(folder, name)
        try:
            return read_descriptor(content, limit_bytes)
        finally:
            os.close(content)

    def _open_content(self, folder: int, name: str) -> int:
        """Open a regular file for reading: its type is known before anything of it is opened."""
        found = self._open_name(folder, name)
        try:
            if not stat.S_ISREG(os.fstat(found).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", name)
            return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            os.close(found)

    def names(self, folder: int, limit: int) -> list[str] | None:
        """Return the names in a folder; None when there are more than the limit."""
        found: list[str] = []
        listing = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            with os.scandir(listing) as entries:
                for entry in entries:
                    if len(found) == limit:
                        return None
                    found.append(entry.name)
        finally:
            os.close(listing)
        return found

    def inspect_file(self, folder: int, name: str, parse: Callable[[ReadAt], T]) -> T:
        """Return what a parser makes of a regular file, by reads of its parts."""
        content = self._open_content(folder, name)
        try:
            return parse(lambda length, offset: os.pread(content, length, offset))
        finally:
            os.close(content)

    def put_file(self, folder: int, name: str, data: bytes) -> None:
        """Write a file, replacing whatever non-folder has the name, in one step."""
        temporary = self._temporary.name(folder)
        descriptor = self._create(folder, temporary)
        try:
            write_all(descriptor, data)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise
        finally:
            os.close(descriptor)
        self._rename(folder, temporary, name)

    @staticmethod
    def _rename(folder: int, temporary: str, name: str) -> None:
        try:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise

    def remove(self, folder: int, name: str) -> None:
        """Remove a name that is not a folder."""
        os.unlink(name, dir_fd=folder)

    def make_node(self, folder: int, name: str, major: int, minor: int, mode: int) -> None:
        """Make a character device node."""
        os.mknod(name, stat.S_IFCHR | mode, os.makedev(major, minor), dir_fd=folder)

    def allow_devices(self, rules: tuple[str, ...]) -> None:
        """Add rules to the container's device cgroup."""
        if self._rules is not None:
            self._rules.allow(rules)

    def deny_devices(self, rules: tuple[str, ...]) -> None:
        """Take the rules that were added last away again."""
        if self._rules is not None:
            self._rules.deny(rules)

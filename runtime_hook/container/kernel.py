"""The real system calls: ``ctypes`` and ``os``. The only importer of ctypes.

Works inside another mount namespace whose root is hostile: paths are resolved by openat2 inside the root, without
magic links and without crossing mounts; the last name is never followed; mounts go from descriptor to descriptor.
Needs Linux 5.12 (mount_setattr). Numbers and flags are the kernel's, from include/uapi.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct

from runtime_hook.container.devicerules import find_device_group
from runtime_hook.container.syscalls import Occupant
from runtime_hook.errors import InjectionError, StateError
from runtime_hook.reading import describe_error, read_descriptor

NR_open_tree = 428
NR_move_mount = 429
NR_openat2 = 437
NR_mount_setattr = 442
OPEN_TREE_CLONE = 1
OPEN_TREE_CLOEXEC = os.O_CLOEXEC
AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
AT_EMPTY_PATH = 0x1000
MOVE_MOUNT_F_EMPTY_PATH = 0x04
MOVE_MOUNT_T_EMPTY_PATH = 0x40
MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
MOUNT_ATTR_NODEV = 4
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
CLONE_NEWNS = 0x00020000
RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
RESOLVE_IN_ROOT = 0x10

_OPEN_HOW = struct.Struct("QQQ")
_MOUNT_ATTR = struct.Struct("QQQQ")
_INSIDE = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS
_ONE_NAME = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV
_DEVICE_MODE = stat.S_IFCHR | 0o666

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    converted = [ctypes.c_long(part) if isinstance(part, int) else part for part in arguments]
    return _checked(int(_libc.syscall(ctypes.c_long(number), *converted)), "")


class KernelSyscalls:
    """The interface of ``syscalls.Syscalls`` on one container: its init process and its root on the host.

    ``enter`` and ``leave`` move between the two mount namespaces; host files are cloned outside, all else is inside.
    """

    def __init__(self, pid: int, rootfs: str) -> None:
        self._rootfs = rootfs
        self._own = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._container = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as reason:
            raise StateError(f"container process {pid}: {describe_error(reason)}") from reason
        if os.path.sameopenfile(self._own, self._container):
            raise InjectionError("the container has no mount namespace of its own", "nothing is mounted on the host")
        self._host_root = os.stat("/")
        self._own_root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._host_dev = os.stat("/dev").st_dev
        self._root = -1
        self._pid = pid
        self._device_group = ""
        self._staged: dict[str, int] = {}
        self._attached: dict[str, int] = {}
        self._folders: dict[str, int] = {}

    def enter(self) -> None:
        """Go into the container's mount namespace and open its root there (pivot_root comes after the hook)."""
        self._setns(self._container)
        if self._root < 0:
            self._root = self._open_root()

    def leave(self) -> None:
        """Go back into the host's mount namespace, and to the root that the engine has there.

        setns(2) leads to the namespace's own root: for an engine in a chroot that is another place, where neither
        our modules nor the log would be found.
        """
        self._setns(self._own)
        os.fchdir(self._own_root)
        os.chroot(".")

    def _setns(self, namespace: int) -> None:
        _checked(_libc.setns(namespace, CLONE_NEWNS), "setns")

    def _open_root(self) -> int:
        try:
            root = os.open(self._rootfs, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as reason:
            raise InjectionError(f"container root {self._rootfs}: {describe_error(reason)}") from reason
        if os.path.samestat(os.fstat(root), self._host_root):
            raise InjectionError(f"container root {self._rootfs} is the host's", "nothing is written there")
        if _is_shared_mount(root):
            raise InjectionError(
                f"container root {self._rootfs} is a shared mount", "mounts in it would appear on the host"
            )
        return root

    def stage_file(self, source: str) -> None:
        """Clone a regular file of the host as a detached mount, read-only, nosuid, nodev."""
        flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW
        tree = _syscall(NR_open_tree, AT_FDCWD, os.fsencode(source), flags)
        if not stat.S_ISREG(os.fstat(tree).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", source)
        attributes = _MOUNT_ATTR.pack(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0, MS_PRIVATE, 0)
        _syscall(NR_mount_setattr, tree, b"", AT_EMPTY_PATH, attributes, _MOUNT_ATTR.size)
        self._staged[source] = tree

    def stage_device_rules(self) -> None:
        """Find the container's device cgroup."""
        self._device_group = find_device_group(self._pid)

    def open_folder(self, path: str) -> int:
        """Open a folder of the container; neither leaves the root nor crosses into another mount."""
        if path not in self._folders:
            flags = os.O_PATH | os.O_DIRECTORY
            self._folders[path] = self._openat2(self._root, path, flags, _INSIDE | RESOLVE_NO_XDEV)
        return self._folders[path]

    def open_device_folder(self) -> int:
        """Open the container's ``/dev``, which is a mount of its own but never the host's."""
        folder = self._openat2(self._root, "dev", os.O_PATH | os.O_DIRECTORY, _INSIDE | RESOLVE_NO_SYMLINKS)
        if os.fstat(folder).st_dev == self._host_dev:
            raise OSError(errno.EXDEV, "/dev is the host's", "/dev")
        return folder

    def _openat2(self, folder: int, path: str, flags: int, resolve: int) -> int:
        how = _OPEN_HOW.pack(flags | os.O_CLOEXEC, 0, resolve)
        try:
            return _syscall(NR_openat2, folder, os.fsencode(path), how, _OPEN_HOW.size)
        except OSError as reason:
            raise OSError(reason.errno, reason.strerror, path) from None

    def _open_name(self, folder: int, name: str) -> int:
        return self._openat2(folder, name, os.O_PATH | os.O_NOFOLLOW, _ONE_NAME)

    def make_folder(self, folder: int, name: str) -> None:
        """Make a folder that does not exist."""
        os.mkdir(name, 0o755, dir_fd=folder)

    def remove_folder(self, folder: int, name: str) -> None:
        """Remove an empty folder."""
        os.rmdir(name, dir_fd=folder)

    def occupant(self, folder: int, name: str) -> Occupant | None:
        """Look at a name without following it; EXDEV when another mount covers it."""
        try:
            found = self._open_name(folder, name)
        except FileNotFoundError:
            return None
        try:
            status = os.fstat(found)
        finally:
            os.close(found)
        return Occupant(status.st_mode, os.major(status.st_rdev), os.minor(status.st_rdev))

    def create_file(self, folder: int, name: str) -> None:
        """Create an empty file that does not exist."""
        os.close(self._create(folder, name))

    def _create(self, folder: int, name: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, 0o644, dir_fd=folder)

    def attach(self, source: str, folder: int, name: str) -> int:
        """Attach a staged host file; its target is judged by the descriptor that it is attached to."""
        target = self._open_name(folder, name)
        try:
            if not stat.S_ISREG(os.fstat(target).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", name)
            tree = self._take_tree(source)
            _syscall(NR_move_mount, tree, b"", target, b"", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)
        finally:
            os.close(target)
        self._attached[source] = tree
        return tree

    def _take_tree(self, source: str) -> int:
        """Return a detached clone: the staged one, then clones of the attached one (with its attributes)."""
        if source in self._attached:
            flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH
            return _syscall(NR_open_tree, self._attached[source], b"", flags)
        if source not in self._staged:
            raise OSError(errno.ENOENT, "not staged", source)
        return self._staged[source]

    def detach(self, handle: int) -> None:
        """Take an attached file away: the handle still leads to exactly this mount."""
        path = f"/proc/self/fd/{handle}"
        _checked(_libc.umount2(path.encode(), MNT_DETACH), path)

    def read_link(self, folder: int, name: str) -> str:
        """Return the text of a symbolic link."""
        return os.readlink(name, dir_fd=folder)

    def put_link(self, folder: int, name: str, target: str) -> None:
        """Make a symbolic link, replacing whatever non-folder has the name, in one step."""
        temporary = _temporary_name()
        os.symlink(target, temporary, dir_fd=folder)
        self._rename(folder, temporary, name)

    def read_file(self, folder: int, name: str, limit_bytes: int) -> bytes | None:
        """Return a regular file's content; None when it is larger than the limit."""
        found = self._open_name(folder, name)
        try:
            if not stat.S_ISREG(os.fstat(found).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", name)
            content = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                return read_descriptor(content, limit_bytes)
            finally:
                os.close(content)
        finally:
            os.close(found)

    def put_file(self, folder: int, name: str, data: bytes) -> None:
        """Write a file, replacing whatever non-folder has the name, in one step."""
        temporary = _temporary_name()
        descriptor = self._create(folder, temporary)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise
        finally:
            os.close(descriptor)
        self._rename(folder, temporary, name)

    def _rename(self, folder: int, temporary: str, name: str) -> None:
        try:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise

    def remove(self, folder: int, name: str) -> None:
        """Remove a name that is not a folder."""
        os.unlink(name, dir_fd=folder)

    def make_node(self, folder: int, name: str, major: int, minor: int) -> None:
        """Make a character device node, readable and writable for all."""
        os.mknod(name, _DEVICE_MODE, os.makedev(major, minor), dir_fd=folder)

    def allow_device(self, rule: str) -> None:
        """Add a rule to the container's device cgroup."""
        _write_rule(f"{self._device_group}/devices.allow", rule)

    def deny_device(self, rule: str) -> None:
        """Take a rule away from the container's device cgroup."""
        _write_rule(f"{self._device_group}/devices.deny", rule)


def _write_rule(path: str, rule: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, rule.encode())
    finally:
        os.close(descriptor)


def _temporary_name() -> str:
    return f".grapnel-{os.urandom(8).hex()}"


def _is_shared_mount(descriptor: int) -> bool:
    """Tell whether mounts below a descriptor's mount would propagate to another namespace."""
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
        mount_id = next(line.split()[1] for line in file if line.startswith("mnt_id:"))
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields = line.partition(" - ")[0].split()
            if fields[0] == mount_id:
                return any(field.startswith("shared:") for field in fields[6:])
    return True

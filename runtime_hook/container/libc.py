"""Wraps the system calls that Python's ``os`` lacks as plain functions. The only importer of ``_ctypes``.

Numbers and flags are the kernel's, from include/uapi; calls from 428 on have the same number on every architecture.
All fail with OSError.

``_ctypes`` is the C half of ``ctypes``, and there wherever that is. The Python half makes types, loaders and byte
orders that are not needed here: 1.1 ms of 1.7.
"""

from __future__ import annotations

import errno
import os
import struct

from runtime_hook.base.errors import InjectionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from ctypes import addressof, c_char, c_long
    from ctypes import get_errno as last_errno

    class _Function:
        """A function of the C library, by its address; returns an ``int``, sets ``errno``."""

        def __init__(self, address: int) -> None: ...

        def __call__(self, *arguments: object) -> int: ...

    _LongFunction = _Function
    _open_library: Callable[[None, int], int]
    _address_in: Callable[[int, str], int]
else:
    from _ctypes import FUNCFLAG_CDECL, FUNCFLAG_USE_ERRNO, CFuncPtr, _SimpleCData, addressof
    from _ctypes import dlopen as _open_library
    from _ctypes import dlsym as _address_in
    from _ctypes import get_errno as last_errno

    class c_char(_SimpleCData):  # noqa: N801 - as ctypes has it
        _type_ = "c"

    class c_long(_SimpleCData):  # noqa: N801 - as ctypes has it
        _type_ = "l"

    class _Function(CFuncPtr):
        _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO

    class _LongFunction(CFuncPtr):
        _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
        _restype_ = c_long


NR_open_tree = 428
NR_move_mount = 429
NR_fsopen = 430
NR_fsconfig = 431
NR_fsmount = 432
NR_openat2 = 437
NR_mount_setattr = 442
# (bpf, timer_create, timer_settime): older calls differ between architectures.
_OLD_NUMBERS = {"x86_64": (321, 222, 223), "aarch64": (280, 107, 110)}
RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
RESOLVE_IN_ROOT = 0x10
MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
MOUNT_ATTR_NODEV = 4
MOUNT_ATTR_NOEXEC = 8
OPEN_TREE_CLONE = 1
OPEN_TREE_CLOEXEC = os.O_CLOEXEC
AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
AT_EMPTY_PATH = 0x1000
MOVE_MOUNT_F_EMPTY_PATH = 0x04
MOVE_MOUNT_T_EMPTY_PATH = 0x40
FSOPEN_CLOEXEC = 1
FSCONFIG_SET_STRING = 1
FSCONFIG_CMD_CREATE = 6
FSMOUNT_CLOEXEC = 1
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLOCK_MONOTONIC = 1
SIGKILL = 9
PR_SET_SECUREBITS = 28
SECBIT_NO_SETUID_FIXUP = 1 << 2
_SIGEV_SIGNAL = 0
_SIGEVENT = struct.Struct("Qii48x")
_ITIMERSPEC = struct.Struct("qqqq")
_OPEN_HOW = struct.Struct("QQQ")
_MOUNT_ATTR = struct.Struct("QQQQ")
# A rename or a mount anywhere on the host while ".." is resolved: openat2 wants to be called again (EAGAIN).
_MAX_ATTEMPTS = 1000
_ID_MASK = 0xFFFFFFFF  # uid_t and gid_t are unsigned; setfsuid(2) and setfsgid(2) return them as a signed int
_NO_ID = 0xFFFFFFFF  # -1: changes nothing, and belongs to nobody
_STATFS_BYTES = 256  # struct statfs is smaller on every architecture; f_type is its first word

_library = _open_library(None, 0)
_syscall_function = _LongFunction(_address_in(_library, "syscall"))


def _call(name: str, *arguments: object) -> int:
    """Call a function of the C library that returns an ``int``."""
    return _Function(_address_in(_library, name))(*arguments)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = last_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    converted = [c_long(part) if isinstance(part, int) else part for part in arguments]
    return _checked(_syscall_function(c_long(number), *converted), "")


def _old_number(index: int) -> int:
    machine = os.uname().machine
    if machine not in _OLD_NUMBERS:
        raise InjectionError(f"system call numbers of {machine} are not known")
    return _OLD_NUMBERS[machine][index]


def openat2(folder: int, path: str, flags: int, resolve: int) -> int:
    """Open below a folder; the error names the path."""
    how, name = _OPEN_HOW.pack(flags | os.O_CLOEXEC, 0, resolve), os.fsencode(path)
    for attempt in range(_MAX_ATTEMPTS):
        try:
            return _syscall(NR_openat2, folder, name, how, _OPEN_HOW.size)
        except OSError as reason:
            if reason.errno != errno.EAGAIN or attempt + 1 == _MAX_ATTEMPTS:
                raise OSError(reason.errno, reason.strerror, path) from None
    raise AssertionError("the last attempt returns or raises")


def clone_path(path: str, root: str = "/") -> int:
    """Clone what a path leads to (its last name is not followed) as a detached mount.

    Below another ``root``, with which the path begins, links are that root's own: none leads out of it.
    """
    if root != "/":
        return _clone_inside(path[len(root) :], root)
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW
    return _syscall(NR_open_tree, AT_FDCWD, os.fsencode(path), flags)


def _clone_inside(path: str, root: str) -> int:
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = openat2(folder, path, os.O_PATH | os.O_NOFOLLOW, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)
    finally:
        os.close(folder)
    try:
        return clone_tree(found)
    finally:
        os.close(found)


def clone_tree(tree: int) -> int:
    """Clone a mount by its descriptor, with its attributes, as a detached one."""
    return _syscall(NR_open_tree, tree, b"", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH)


def set_attributes(tree: int, attributes: int) -> None:
    """Set attributes of a mount and make it private."""
    packed = _MOUNT_ATTR.pack(attributes, 0, MS_PRIVATE, 0)
    _syscall(NR_mount_setattr, tree, b"", AT_EMPTY_PATH, packed, _MOUNT_ATTR.size)


def attach_tree(tree: int, target: int) -> None:
    """Attach a detached mount on a target, both by descriptor."""
    _syscall(NR_move_mount, tree, b"", target, b"", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)


def unmount(tree: int) -> None:
    """Take exactly the mount away that a descriptor leads to."""
    path = f"/proc/self/fd/{tree}"
    _checked(_call("umount2", path.encode(), MNT_DETACH), path)


def setns(namespace: int, kind: int) -> None:
    """Go into a namespace."""
    _checked(_call("setns", namespace, kind), "setns")


def unshare(kind: int) -> None:
    """Leave a namespace for a new one."""
    _checked(_call("unshare", kind), "unshare")


def keep_capabilities() -> None:
    """Let a change of the file-system ids take no capability away (securebits, capabilities(7))."""
    _checked(_call("prctl", PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0), "securebits")


def set_file_ids(uid: int, gid: int) -> None:
    """Set whose files this process makes. setfsuid(2) does not report a failure: the result is read back."""
    if not (0 <= uid < _NO_ID and 0 <= gid < _NO_ID):
        raise OSError(errno.EINVAL, f"user {uid} or group {gid} is no id that files can have")
    _call("setfsgid", gid)
    _call("setfsuid", uid)
    if (as_id(_call("setfsuid", -1)), as_id(_call("setfsgid", -1))) != (uid, gid):
        raise OSError(errno.EPERM, f"cannot make files as user {uid} and group {gid}")


def as_id(result: int) -> int:
    """Return the id in what a C function returned as ``int``: ids from 2^31 on are negative there."""
    return result & _ID_MASK


def bpf(command: int, attribute: bytearray) -> int:
    """Run one command on BPF programs; its answers are in the attribute afterwards."""
    return _syscall(_old_number(0), command, address_of(attribute), len(attribute))


def address_of(memory: bytearray) -> int:
    """Return where memory lies, for an attribute that points to it. The memory must not be resized after that."""
    return addressof(c_char.from_buffer(memory))


def kill_after(seconds: float) -> None:
    """Have the kernel kill this process some time from now, also out of a call that no other signal interrupts."""
    timer = bytearray(4)
    event = _SIGEVENT.pack(0, SIGKILL, _SIGEV_SIGNAL)
    _syscall(_old_number(1), CLOCK_MONOTONIC, event, address_of(timer))
    whole = int(seconds)
    setting = _ITIMERSPEC.pack(0, 0, whole, int((seconds - whole) * 1e9))
    _syscall(_old_number(2), int.from_bytes(timer, "little"), 0, setting, None)


def make_tmpfs(mode: bytes, attributes: int, label: str = "") -> int:
    """Make a tmpfs as a detached mount, all of it with one SELinux label where that is given; Linux 5.2."""
    context = _syscall(NR_fsopen, b"tmpfs", FSOPEN_CLOEXEC)
    try:
        _syscall(NR_fsconfig, context, FSCONFIG_SET_STRING, b"mode", mode, 0)
        if label:
            _syscall(NR_fsconfig, context, FSCONFIG_SET_STRING, b"context", os.fsencode(label), 0)
        _syscall(NR_fsconfig, context, FSCONFIG_CMD_CREATE, None, None, 0)
        return _syscall(NR_fsmount, context, FSMOUNT_CLOEXEC, attributes)
    finally:
        os.close(context)


def file_system(descriptor: int) -> int:
    """Return the magic number of the file system that a descriptor leads to (statfs(2), f_type)."""
    buffer = bytearray(_STATFS_BYTES)
    _checked(_call("fstatfs", descriptor, (c_char * _STATFS_BYTES).from_buffer(buffer)), "fstatfs")
    magic: int = struct.unpack_from("l", buffer)[0]
    return magic

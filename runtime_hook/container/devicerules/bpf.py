"""Wraps the calls of bpf(2) that device programs need, laid out as ``union bpf_attr`` is (include/uapi/linux/bpf.h)."""

from __future__ import annotations

import struct

from runtime_hook.base.values import value
from runtime_hook.container import libc

BPF_PROG_LOAD = 5
BPF_PROG_ATTACH = 8
BPF_PROG_GET_FD_BY_ID = 13
BPF_OBJ_GET_INFO_BY_FD = 15
BPF_PROG_QUERY = 16
BPF_PROG_TYPE_CGROUP_DEVICE = 15
BPF_CGROUP_DEVICE = 6
BPF_F_ALLOW_MULTI = 2
BPF_F_REPLACE = 4

_QUERY = struct.Struct("=IIIIQII")  # group, kind, flags asked, flags found, ids, count, -
_LOAD = struct.Struct("=IIQQIIQII")  # type, count, instructions, license, log: level, size, place, -, flags
_INFO_REQUEST = struct.Struct("=IIQ")  # program, size, place
_INFO = struct.Struct("=IIQIIQQ")  # type, id, tag, translated to machine code: size, shown: size, places of both
_INFO_BYTES = 232  # struct bpf_prog_info of Linux 6; what an older kernel does not know must be zero
_MAX_PROGRAMS = 64  # BPF_CGROUP_MAX_PROGS
_LICENSE = b"Apache-2.0\0"  # device programs that call no function need none that is GPL-compatible


@value
class Attached:
    """The device programs of one group, by their ids, and the flags they are attached with."""

    flags: int
    ids: tuple[int, ...]


def query(group: int) -> Attached:
    """Ask for the device programs attached to a group itself, not to those around it."""
    ids = bytearray(4 * _MAX_PROGRAMS)
    attribute = bytearray(_QUERY.pack(group, BPF_CGROUP_DEVICE, 0, 0, libc.address_of(ids), _MAX_PROGRAMS, 0))
    libc.bpf(BPF_PROG_QUERY, attribute)
    _, _, _, flags, _, count, _ = _QUERY.unpack(attribute)
    return Attached(flags, struct.unpack_from(f"={count}I", ids))


def open_program(number: int) -> int:
    """Return a descriptor of a loaded program."""
    return libc.bpf(BPF_PROG_GET_FD_BY_ID, bytearray(struct.pack("=III", number, 0, 0)))


def read_instructions(program: int) -> bytes:
    """Return a loaded program's instructions; empty where the kernel does not show them (bpf_jit_harden)."""
    size, _ = _instructions(program, bytearray())
    shown = bytearray(size)
    return bytes(shown) if size and _instructions(program, shown)[1] else b""


def _instructions(program: int, room: bytearray) -> tuple[int, bool]:
    """Fill the room with instructions; return how many bytes there are, and whether they were shown."""
    info = bytearray(_INFO_BYTES)
    _INFO.pack_into(info, 0, 0, 0, 0, 0, len(room), 0, libc.address_of(room) if room else 0)
    request = bytearray(_INFO_REQUEST.pack(program, len(info), libc.address_of(info)))
    libc.bpf(BPF_OBJ_GET_INFO_BY_FD, request)
    found = _INFO.unpack_from(info)
    return found[4], bool(found[6])


def load(instructions: bytes) -> int:
    """Load a device program."""
    code, name = bytearray(instructions), bytearray(_LICENSE)
    count = len(code) // 8
    attribute = _LOAD.pack(
        BPF_PROG_TYPE_CGROUP_DEVICE, count, libc.address_of(code), libc.address_of(name), 0, 0, 0, 0, 0
    )
    return libc.bpf(BPF_PROG_LOAD, bytearray(attribute))


def replace(group: int, *, old: int, new: int, flags: int) -> None:
    """Put one program in the place of another, in one step; ENOENT when the old one is no longer attached."""
    if flags & BPF_F_ALLOW_MULTI:
        attribute = struct.pack("=IIIII", group, new, BPF_CGROUP_DEVICE, flags | BPF_F_REPLACE, old)
    else:
        attribute = struct.pack("=IIIII", group, new, BPF_CGROUP_DEVICE, flags, 0)
    libc.bpf(BPF_PROG_ATTACH, bytearray(attribute))

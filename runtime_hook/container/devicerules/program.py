"""Extends a device program: builds the instructions that go in front of an existing one. Pure.

A program of type cgroup/dev gets the request in r1 (``struct bpf_cgroup_dev_ctx``: access type, major, minor; the
type of device in the low half of the first word, the access in its high half) and answers 1 to allow. The kernel
translates nothing in such programs (no accesses to the context are converted), so what it shows of a loaded program
can be loaded again, as long as it calls no function and uses no map: those are shown without what they refer to.
Sources: include/uapi/linux/bpf.h, kernel/bpf/cgroup.c (cg_dev_verifier_ops), kernel/bpf/syscall.c
(bpf_insn_prepare_dump).
"""

from __future__ import annotations

import struct

_INSTRUCTION = struct.Struct("=BBhi")  # code, registers, jump, number
INSTRUCTION_BYTES = _INSTRUCTION.size

_LOAD_WORD = 0x61  # BPF_LDX | BPF_MEM | BPF_W
_LOAD_NUMBER = 0x18  # BPF_LD | BPF_IMM | BPF_DW, two instructions long
_MOVE = 0xB7  # BPF_ALU64 | BPF_MOV | BPF_K
_AND = 0x57  # BPF_ALU64 | BPF_AND | BPF_K
_JUMP_UNLESS_EQUAL = 0x55  # BPF_JMP | BPF_JNE | BPF_K
_CALLS = (0x85, 0x8D)  # BPF_JMP | BPF_CALL, with BPF_K and BPF_X
_EXIT = 0x95

_CONTEXT, _REQUEST, _MAJOR, _MINOR = 1, 2, 3, 4  # registers
_ACCESS = {"m": 1, "r": 2, "w": 4}
_KINDS = {"b": 1, "c": 2}
_ALL_ACCESS = 7


def extend(program: bytes, rules: tuple[str, ...]) -> bytes:
    """Put rules like ``c 195:0 rw`` before a program: what one allows is allowed, the rest is decided as before."""
    groups: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for rule in rules:
        kind, numbers, access = rule.split()
        major, minor = numbers.split(":")
        groups.setdefault((kind, access), []).append((int(major), int(minor)))
    return b"".join(_allow(kind, access, numbers) for (kind, access), numbers in groups.items()) + program


def _allow(kind: str, access: str, numbers: list[tuple[int, int]]) -> bytes:
    """Return instructions that allow devices of one kind; what matches none of them runs through to what follows."""
    devices = [_load(_MAJOR, 4), _load(_MINOR, 8)]
    for major, minor in numbers:
        devices += [_skip_unless(_MAJOR, major, 3), _skip_unless(_MINOR, minor, 2), _move(0, 1), _plain(_EXIT)]
    refused = _ALL_ACCESS & ~sum(_ACCESS[letter] for letter in set(access))
    if refused:
        mask = _INSTRUCTION.pack(_AND, _REQUEST, 0, refused << 16)
        devices = [_load(_REQUEST, 0), mask, _skip_unless(_REQUEST, 0, len(devices)), *devices]
    mask = _INSTRUCTION.pack(_AND, _REQUEST, 0, 0xFFFF)
    return b"".join([_load(_REQUEST, 0), mask, _skip_unless(_REQUEST, _KINDS[kind], len(devices)), *devices])


def _load(register: int, offset: int) -> bytes:
    return _INSTRUCTION.pack(_LOAD_WORD, register | _CONTEXT << 4, offset, 0)


def _skip_unless(register: int, number: int, count: int) -> bytes:
    return _INSTRUCTION.pack(_JUMP_UNLESS_EQUAL, register, count, number)


def _move(register: int, number: int) -> bytes:
    return _INSTRUCTION.pack(_MOVE, register, 0, number)


def _plain(code: int) -> bytes:
    return _INSTRUCTION.pack(code, 0, 0, 0)


def has_references(program: bytes) -> bool:
    """Tell whether a program calls functions or uses maps, which the kernel does not show."""
    for code, registers, _, _ in _INSTRUCTION.iter_unpack(program):
        if code in _CALLS or (code == _LOAD_NUMBER and registers >> 4):
            return True
    return False

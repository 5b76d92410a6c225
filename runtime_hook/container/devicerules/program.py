"""A device program's instructions: what the hook puts in front of a program that is there already. Pure.

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

_CONTEXT = 1
_ALLOW = 1
_ACCESS = {"m": 1, "r": 2, "w": 4}
_KINDS = {"b": 1, "c": 2}
_ALL_ACCESS = 7


def extend(program: bytes, rule: str) -> bytes:
    """Put a rule like ``c 195:0 rw`` before a program: what it allows is allowed, the rest is decided as before."""
    kind, numbers, access = rule.split()
    major, minor = map(int, numbers.split(":"))
    refused = _ALL_ACCESS & ~sum(_ACCESS[letter] for letter in set(access))
    tests = [(_KINDS[kind], 0, 0xFFFF), (major, 4, 0), (minor, 8, 0)]
    if refused:
        tests.append((0, 0, refused << 16))
    instructions: list[bytes] = []
    last = [_move(0, _ALLOW), _plain(_EXIT)]
    for number, offset, mask in reversed(tests):
        part = [_INSTRUCTION.pack(_LOAD_WORD, 2 | _CONTEXT << 4, offset, 0)]
        if mask:
            part.append(_INSTRUCTION.pack(_AND, 2, 0, mask))
        jump = len(instructions) + len(last)
        part.append(_INSTRUCTION.pack(_JUMP_UNLESS_EQUAL, 2, jump, number))
        instructions = part + instructions
    return b"".join(instructions + last) + program


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

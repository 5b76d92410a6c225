"""Sets device rules under cgroup v2: reads, extends and replaces every program attached to the container's group.

A request must be allowed by each program attached to the group and to the groups around it, so the hook's rules go
in front of each of the container's own; the others stay as they are. The way is the one of NVIDIA's
libnvidia-container (src/nvcgo/internal/cgroup). Decision record: docs/decisions/0019-cgroup-v2-device-program.md.
"""

from __future__ import annotations

import errno
import os
import struct

from runtime_hook.base.errors import InjectionError
from runtime_hook.base.reading import describe_error
from runtime_hook.container.devicerules import Unrestricted, bpf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime_hook.container.devicerules import DeviceRules

_HINT = "let the engine put the devices into the container's configuration"


class AttachedProgram:
    """One program in its place in a group; it can be extended, and put back as it was."""

    def __init__(self, group: int, flags: int, number: int) -> None:
        self._group = group
        self._flags = flags
        self._before: list[tuple[int, bytes]] = []
        self._program = bpf.open_program(number)
        self._instructions = bpf.read_instructions(self._program)
        if not self._instructions:
            raise OSError(errno.EPERM, "the kernel does not show its instructions")
        if has_references(self._instructions):
            raise OSError(errno.ENOTSUP, "it calls functions or uses maps")

    def extend(self, rules: tuple[str, ...]) -> None:
        """Put rules in front."""
        instructions = extend(self._instructions, rules)
        program = bpf.load(instructions)
        self._replace(program)
        self._before.append((self._program, self._instructions))
        self._program, self._instructions = program, instructions

    def restore(self) -> None:
        """Go back to what was there before the last ``extend``."""
        program, instructions = self._before[-1]
        self._replace(program)
        os.close(self._program)
        del self._before[-1]
        self._program, self._instructions = program, instructions

    def _replace(self, program: int) -> None:
        try:
            bpf.replace(self._group, old=self._program, new=program, flags=self._flags)
        except FileNotFoundError:
            raise OSError(errno.ESTALE, "the container's device program was replaced by another meanwhile") from None


class DevicePrograms:
    """All programs of one container."""

    def __init__(self, programs: Sequence[AttachedProgram]) -> None:
        self._programs = programs

    def allow(self, rules: tuple[str, ...]) -> None:
        """Extend every program, or none."""
        done: list[AttachedProgram] = []
        try:
            for program in self._programs:
                program.extend(rules)
                done.append(program)
        except BaseException:
            for program in reversed(done):
                program.restore()
            raise

    def deny(self, rules: tuple[str, ...]) -> None:  # they are taken away in the reverse order
        """Take the rules away that were added last."""
        for program in reversed(self._programs):
            program.restore()


def find_programs(folders: Sequence[str]) -> DeviceRules:
    """Open the device programs of groups; without any, every device is allowed there."""
    programs: list[AttachedProgram] = []
    for folder in folders:
        try:
            programs += _open_programs(folder)
        except OSError as reason:
            what = f"device rules cannot be set: the BPF program of {folder}: {describe_error(reason)}"
            raise InjectionError(what, _HINT) from reason
    return DevicePrograms(programs) if programs else Unrestricted()


def _open_programs(folder: str) -> list[AttachedProgram]:
    group = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    attached = bpf.query(group)
    return [AttachedProgram(group, attached.flags, number) for number in attached.ids]


# Extends a device program: builds the instructions that go in front of an existing one. A program of type cgroup/dev
# gets the request in r1 (``struct bpf_cgroup_dev_ctx``: access type, major, minor; the type of device in the low half
# of the first word, the access in its high half) and answers 1 to allow. The kernel translates nothing in such
# programs (no accesses to the context are converted), so what it shows of a loaded program can be loaded again, as
# long as it calls no function and uses no map: those are shown without what they refer to. Sources:
# include/uapi/linux/bpf.h, kernel/bpf/cgroup.c (cg_dev_verifier_ops), kernel/bpf/syscall.c (bpf_insn_prepare_dump).

_INSTRUCTION = struct.Struct("=BBhi")  # code, registers, jump, number

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

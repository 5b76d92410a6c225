"""Sets device rules under cgroup v2: reads, extends and replaces every program attached to the container's group.

A request must be allowed by each program attached to the group and to the groups around it, so the hook's rules go
in front of each of the container's own; the others stay as they are. The way is the one of NVIDIA's
libnvidia-container (src/nvcgo/internal/cgroup). Decision record: docs/decisions/0019-cgroup-v2-device-program.md.
"""

from __future__ import annotations

import errno
import os

from runtime_hook.base.errors import InjectionError
from runtime_hook.base.reading import describe_error
from runtime_hook.container.devicerules import Unrestricted, bpf
from runtime_hook.container.devicerules.program import extend, has_references

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

    def deny(self, rules: tuple[str, ...]) -> None:  # noqa: ARG002 - they are taken away in the reverse order
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

"""Reads and writes the region with the library's machine, in a state file or at the end of a library: src/state.h.

A region has a header (magic, generation, length, Adler-32 of the text), the text, and zeros. It is written in place, so
that every mount and hard link of the file sees the change: generation odd, text, header with the next even generation.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lab.nvml import text
from lab.nvml.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lab.nvml.machine import Machine

STATE_SIZE = 256 * 1024
_MAGIC = b"GPUSIM1\n"
_HEADER = struct.Struct("<8sQII")
_TEXT_OFFSET = 64
_ELF = b"\x7fELF"


def read(path: Path) -> Machine:
    """Return the machine in a state file or library. Raises StateError."""
    with _opened(path, os.O_RDONLY) as (descriptor, offset):
        return _read(path, descriptor, offset)


def write(path: Path, machine: Machine) -> None:
    """Replace the machine in a state file (made if there is none) or in a library. Raises StateError."""
    with _opened(path, os.O_RDWR | os.O_CREAT) as (descriptor, offset):
        _write(path, descriptor, offset, machine)


def update(path: Path, change: Callable[[Machine], Machine]) -> Machine:
    """Apply a change to the machine in a file, one writer at a time; return the new machine. Raises StateError."""
    with _opened(path, os.O_RDWR) as (descriptor, offset):
        machine = change(_read(path, descriptor, offset))
        _write(path, descriptor, offset, machine)
        return machine


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[tuple[int, int]]:
    """Open and lock the file; yield its descriptor and where the region begins."""
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StateError(f"cannot open the state in {path}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH if flags == os.O_RDONLY else fcntl.LOCK_EX)
        is_library = os.pread(descriptor, len(_ELF), 0) == _ELF
        offset = os.fstat(descriptor).st_size - STATE_SIZE if is_library else 0
        if offset < 0:
            raise StateError(f"{path} has no state at its end", hint="make it with lab.nvml.install")
        yield descriptor, offset
    finally:
        os.close(descriptor)


def _read(path: Path, descriptor: int, offset: int) -> Machine:
    header = os.pread(descriptor, _HEADER.size, offset)
    if len(header) < _HEADER.size or not header.startswith(_MAGIC):
        raise StateError(f"{path} has no state", hint="write a machine into it first")
    _, _, length, checksum = _HEADER.unpack(header)
    body = os.pread(descriptor, length, offset + _TEXT_OFFSET)
    if zlib.adler32(body) != checksum:
        raise StateError(f"the state in {path} is damaged", hint="write a machine into it again")
    return text.decode(body.decode())


def _generation(descriptor: int, offset: int) -> int:
    header = os.pread(descriptor, _HEADER.size, offset)
    if len(header) < _HEADER.size or not header.startswith(_MAGIC):
        return 0
    generation: int = _HEADER.unpack(header)[1]
    return generation


def _write(path: Path, descriptor: int, offset: int, machine: Machine) -> None:
    body = text.encode(machine).encode()
    if len(body) > STATE_SIZE - _TEXT_OFFSET:
        raise StateError(f"the machine is too big for {path}", hint=f"at most {STATE_SIZE} bytes of text")
    busy = _generation(descriptor, offset) | 1
    checksum = zlib.adler32(body)
    if os.fstat(descriptor).st_size < offset + STATE_SIZE:
        os.ftruncate(descriptor, offset + STATE_SIZE)
    os.pwrite(descriptor, _HEADER.pack(_MAGIC, busy, len(body), checksum), offset)
    os.pwrite(descriptor, body, offset + _TEXT_OFFSET)
    os.pwrite(descriptor, _HEADER.pack(_MAGIC, busy + 1, len(body), checksum), offset)

"""Keeps NVML from loading CUDA into this process: it finds an empty library under CUDA's name.

NVML opens `libcuda.so.1` when a session begins, for the CUDA version alone (seen with driver 580.159.04). It never
closes it: the library stays mapped when NVML is unloaded, its thread goes on, and each session leaves a descriptor
behind. After a change of drivers the loader would give the next NVML that old library, as its SONAME is taken.
NVIDIA supports NVML without CUDA: a container with the driver capability `utility` has no `libcuda.so.1`.

Not here: the CUDA version, which another process asks for (`plugin.driver.cuda_probe`).
"""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import suppress

_SONAME = b"libcuda.so.1"
_MACHINES = {"x86_64": 62, "aarch64": 183}  # EM_* of elf.h
_HEADER, _PROGRAM_HEADER, _SYMBOL = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ"), bytes(24)
_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_READ_WRITE = 6  # the loader writes addresses into the dynamic section
_PAGE_BYTES = 0x10000  # the largest of both machines
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME, _DT_NULL = 4, 5, 6, 10, 11, 14, 0

_kept: list[ctypes.CDLL] = []  # for as long as the process runs: NVML closes it as little as the real one


def keep_cuda_out() -> None:
    """Take CUDA's name in this process, once. Where that fails, NVML loads what it finds."""
    machine = _MACHINES.get(os.uname().machine)
    if _kept or machine is None:
        return
    with suppress(OSError):
        file = os.memfd_create("no-libcuda", os.MFD_CLOEXEC)
        try:
            os.write(file, empty_library(machine))
            _kept.append(ctypes.CDLL(f"/proc/self/fd/{file}"))
        finally:
            os.close(file)


def empty_library(machine: int) -> bytes:
    """Return a 64-bit shared library for a machine (EM_*) that has CUDA's SONAME and no symbol."""
    strings = b"\0" + _SONAME + b"\0"
    table_at = _HEADER.size + 3 * _PROGRAM_HEADER.size
    strings_at = table_at + 16
    symbols_at = -(-(strings_at + len(strings)) // 8) * 8
    dynamic_at = symbols_at + len(_SYMBOL)
    tags = (
        *((_DT_SONAME, 1), (_DT_HASH, table_at), (_DT_STRTAB, strings_at), (_DT_STRSZ, len(strings))),
        *((_DT_SYMTAB, symbols_at), (_DT_SYMENT, len(_SYMBOL)), (_DT_NULL, 0)),
    )
    dynamic = b"".join(struct.pack("<qQ", *tag) for tag in tags)
    body = struct.pack("<4I", 1, 1, 0, 0) + strings
    body += bytes(symbols_at - table_at - len(body)) + _SYMBOL + dynamic
    size = table_at + len(body)
    segments = (
        (_PT_LOAD, 0, size, _PAGE_BYTES),
        (_PT_DYNAMIC, dynamic_at, len(dynamic), 8),
        (_PT_GNU_STACK, 0, 0, 16),  # without it the loader makes stacks executable
    )
    identity = b"\x7fELF\x02\x01\x01"
    sizes = (_HEADER.size, _PROGRAM_HEADER.size, len(segments), 0, 0, 0)
    head = _HEADER.pack(identity, 3, machine, 1, 0, _HEADER.size, 0, 0, *sizes)
    for kind, offset, length, alignment in segments:
        head += _PROGRAM_HEADER.pack(kind, _READ_WRITE, offset, offset, offset, length, length, alignment)
    return head + body

"""Makes the smallest shared libraries that a loader takes, of 32 or 64 bits: no symbol, a SONAME, what they need."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

ET_DYN = 3
PT_LOAD, PT_DYNAMIC = 1, 2
READ_WRITE = 6
DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_SONAME, DT_NEEDED, DT_NULL = 4, 5, 6, 10, 11, 14, 1, 0
MACHINES = {("x86_64", 64): 62, ("x86_64", 32): 3, ("aarch64", 64): 183, ("aarch64", 32): 40}


@dataclass(frozen=True)
class _Class:
    """What differs between ELFCLASS32 and ELFCLASS64."""

    number: int
    header: struct.Struct
    program_header: struct.Struct
    dynamic: struct.Struct
    symbol_bytes: int


_CLASSES = {
    32: _Class(1, struct.Struct("<16sHHIIIIIHHHHHH"), struct.Struct("<IIIIIIII"), struct.Struct("<iI"), 16),
    64: _Class(2, struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ"), struct.Struct("<qQ"), 24),
}


def library(soname: str, elf_class: int = 64, needed: tuple[str, ...] = ()) -> bytes:
    """Return a library without any symbol; "" as SONAME leaves it out."""
    kind = _CLASSES[elf_class]
    names = ["", soname, *needed]
    strings = b"".join(name.encode() + b"\0" for name in names)
    place = {name: strings.index(b"\0" + name.encode() + b"\0") + 1 for name in names if name}
    start = kind.header.size + 2 * kind.program_header.size
    symbols = start + 8 * (4 + len(strings) // 8)  # behind the hash table and the strings
    hash_table = struct.pack("<4I", 1, 1, 0, 0)
    dynamic_at = symbols + kind.symbol_bytes
    tags = [(DT_SONAME, place[soname])] if soname else []
    tags += [(DT_NEEDED, place[name]) for name in needed]
    tags += [(DT_HASH, start), (DT_STRTAB, start + len(hash_table)), (DT_STRSZ, len(strings))]
    tags += [(DT_SYMTAB, symbols), (DT_SYMENT, kind.symbol_bytes), (DT_NULL, 0)]
    dynamic = b"".join(kind.dynamic.pack(*tag) for tag in tags)
    body = hash_table + strings
    body += bytes(dynamic_at - start - len(body)) + dynamic
    size = start + len(body)
    return _headers(kind, elf_class, dynamic_at, len(dynamic), size) + body


def _headers(kind: _Class, elf_class: int, dynamic_at: int, dynamic_bytes: int, size: int) -> bytes:
    identity = b"\x7fELF" + bytes([kind.number, 1, 1])
    machine = MACHINES[os.uname().machine, elf_class]
    sizes = (kind.header.size, kind.program_header.size, 2, 0, 0, 0)
    head = kind.header.pack(identity, ET_DYN, machine, 1, 0, kind.header.size, 0, 0, *sizes)
    for segment, offset, length, align in ((PT_LOAD, 0, size, 0x1000), (PT_DYNAMIC, dynamic_at, dynamic_bytes, 8)):
        place = (offset, offset, offset, length, length)
        head += kind.program_header.pack(
            segment,
            *((READ_WRITE, *place, align) if elf_class == 64 else (*place, READ_WRITE, align)),
        )
    return head

"""Empties built modules of their code: nothing of it ever runs, and it is 44 of the 46 MB that every node would copy.

What tools read of a module stays as the compiler wrote it: names, versions, parameters, symbols, dependencies.
"""

from __future__ import annotations

import io
import lzma
import struct
import tarfile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

LARGE_BYTES: Final = 1 << 20  # what tools read of a module is smaller
# Of a relocatable file of 64 bits, as elf.h has it: the section table's place, size of an entry and count; of a section
# its type, place, size and alignment.
PROGRAM, RELOCATIONS, NOTHING = 1, 4, 8  # SHT_PROGBITS, SHT_RELA, SHT_NOBITS
HEADER: Final = struct.Struct("<40xQ10xHH2x")
TABLE, TABLE_AT, TABLE_ALIGNMENT = struct.Struct("<Q"), 40, 8
SECTION: Final = struct.Struct("<4xI16xQQ8xQ8x")
PLACE, PLACE_AT = struct.Struct("<QQ"), 24


def empty(source: Path, target: Path) -> None:
    """Write the archive of ``dkms mktarball`` at ``source`` to ``target``, its modules without code."""
    with tarfile.open(source) as former, tarfile.open(target, "w:gz", compresslevel=1) as archive:
        for member in former:
            file = former.extractfile(member) if member.isfile() else None
            content = None if file is None else file.read()
            if content is not None and member.name.endswith(".ko.xz"):
                content = _compressed(without_code(lzma.decompress(content)))
                member.size = len(content)
            archive.addfile(member, None if content is None else io.BytesIO(content))


def without_code(module: bytes) -> bytes:
    """Return a module file whose large sections of code, constants and relocations have no content.

    What follows its table of sections, a signature, is kept.
    """
    table, entry_size, count = HEADER.unpack_from(module)
    kept, entries = bytearray(module[: HEADER.size]), bytearray(module[table : table + count * entry_size])
    for number in range(count):
        kind, begin, size, alignment = SECTION.unpack_from(entries, number * entry_size)
        if kind in (PROGRAM, RELOCATIONS) and size >= LARGE_BYTES:
            size = 0
        kept += bytes(-len(kept) % max(alignment, 1))
        PLACE.pack_into(entries, number * entry_size + PLACE_AT, len(kept), size)
        if kind != NOTHING:
            kept += module[begin : begin + size]
    kept += bytes(-len(kept) % TABLE_ALIGNMENT)
    TABLE.pack_into(kept, TABLE_AT, len(kept))
    return bytes(kept + entries + module[table + len(entries) :])


def _compressed(module: bytes) -> bytes:
    """Return it as dkms compresses it, which is what the kernel can read: a CRC32, and a dictionary of 1 MiB."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 20}]
    return lzma.compress(module, check=lzma.CHECK_CRC32, filters=filters)

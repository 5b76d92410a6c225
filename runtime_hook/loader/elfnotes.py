"""Reads a note of an ELF file by its section's name. Bounded reads, nothing loaded or executed.

Source: the System V ABI, "Sections" and "Note Section"; 64-bit, little-endian.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.loader.elf import ReadAt

_HEADER_BYTES = 64
_HEADER = struct.Struct("<40xQ10xHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOTE = struct.Struct("<III")
_SHT_NOTE = 7
_MAX_SECTIONS = 1024
_MAX_BYTES = 1 << 16


def read_note(read_at: ReadAt, section: bytes, owner: bytes) -> bytes | None:
    """Return the description of the first note in a section, or None where there is none of this owner.

    Padding before the description is skipped whatever its alignment: NVIDIA's libraries differ in it. A damaged file
    has no notes.
    """
    try:
        data = _find_section(read_at, section)
        if data is None:
            return None
        name_bytes, description_bytes, _kind = _NOTE.unpack_from(data)
    except (struct.error, OverflowError, OSError):
        return None
    start = _NOTE.size + name_bytes
    if data[_NOTE.size : start].rstrip(b"\0") != owner:
        return None
    padded = len(data) - len(data[start:].lstrip(b"\0"))
    return data[padded : padded + description_bytes].rstrip(b"\0")


def _find_section(read_at: ReadAt, wanted: bytes) -> bytes | None:
    header = read_at(_HEADER_BYTES, 0)
    if len(header) < _HEADER_BYTES or header[:6] != b"\x7fELF\x02\x01":
        return None
    table_at, size, count, names_index = _HEADER.unpack_from(header)
    if size != _SECTION.size or not names_index < count <= _MAX_SECTIONS:
        return None
    table = read_at(size * count, table_at)
    names = _content(read_at, _SECTION.unpack_from(table, size * names_index))
    for fields in _SECTION.iter_unpack(table):
        name_at, kind = fields[:2]
        if kind == _SHT_NOTE and names.startswith(wanted + b"\0", name_at):
            return _content(read_at, fields)
    return None


def _content(read_at: ReadAt, fields: tuple[int, ...]) -> bytes:
    return read_at(min(fields[5], _MAX_BYTES), fields[4])

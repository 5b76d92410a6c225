"""Reads class, machine and SONAME of an ELF file. Nothing is loaded or executed."""

from __future__ import annotations

import struct

from runtime_hook.base.values import value

_HEADER_BYTES = 64
_MAX_SEGMENTS = 64
_PT_LOAD = 1
_PT_DYNAMIC = 2
_DT_NULL = 0
_DT_STRTAB = 5
_DT_SONAME = 14

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    ReadAt = Callable[[int, int], bytes]  # (length, offset), as os.pread with its descriptor bound


@value
class ElfIdentity:
    """Class (32 or 64), e_machine and SONAME ("" where a library has none)."""

    elf_class: int
    machine: int
    soname: str


@value
class _Format:
    """What differs between 32 and 64 bits: in the header the place of the program headers, their size and count.

    ``segment`` unpacks a program header, ``order`` says where kind, offset, address and size in the file stand in it.
    """

    elf_class: int
    table: str
    segment: str
    order: tuple[int, int, int, int]
    dynamic: str


# By EI_CLASS. Source: the System V ABI, "Object Files" (Elf32_Ehdr, Elf32_Phdr, Elf32_Dyn and their 64-bit twins).
_FORMATS = {
    1: _Format(32, "<28xI10xHH", "<IIIIIIII", (0, 1, 2, 4), "<iI"),
    2: _Format(64, "<32xQ14xHH", "<IIQQQQQQ", (0, 2, 3, 5), "<qQ"),
}


@value
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def identify(read_at: ReadAt) -> ElfIdentity | None:
    """Identify a little-endian ELF file by pread-like reads; None for anything else, damaged files included."""
    header = read_at(_HEADER_BYTES, 0)
    if len(header) < _HEADER_BYTES or header[:4] != b"\x7fELF" or header[5] != 1:
        return None
    file_format = _FORMATS.get(header[4])
    if file_format is None:
        return None
    machine = int.from_bytes(header[18:20], "little")
    try:
        return ElfIdentity(file_format.elf_class, machine, _soname(read_at, header, file_format))
    except (struct.error, UnicodeDecodeError, OverflowError, OSError):
        return None


def _soname(read_at: ReadAt, header: bytes, file_format: _Format) -> str:
    segments = _segments(read_at, header, file_format)
    name_offset = table_address = None
    for tag, content in _dynamic_entries(read_at, segments, file_format):
        if tag == _DT_SONAME:
            name_offset = content
        elif tag == _DT_STRTAB:
            table_address = content
    if name_offset is None or table_address is None:
        return ""
    for segment in segments:
        inside = table_address - segment.address
        if segment.kind == _PT_LOAD and 0 <= inside < segment.size:
            found = read_at(256, segment.offset + inside + name_offset)
            return found.partition(b"\0")[0].decode("ascii")
    return ""


def _segments(read_at: ReadAt, header: bytes, file_format: _Format) -> list[_Segment]:
    table, size, count = struct.unpack_from(file_format.table, header)
    layout = struct.Struct(file_format.segment)
    if size != layout.size or count > _MAX_SEGMENTS:
        return []
    return [
        _Segment(*(fields[index] for index in file_format.order))
        for fields in layout.iter_unpack(read_at(size * count, table))
    ]


def _dynamic_entries(read_at: ReadAt, segments: list[_Segment], file_format: _Format) -> Iterator[tuple[int, int]]:
    for segment in segments:
        if segment.kind != _PT_DYNAMIC:
            continue
        for tag, content in struct.iter_unpack(
            file_format.dynamic, read_at(min(segment.size, 1 << 16), segment.offset)
        ):
            if tag == _DT_NULL:
                return
            yield tag, content

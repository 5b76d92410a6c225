"""The little of ELF that discovery needs: class, machine and SONAME. Nothing is loaded or executed."""

from __future__ import annotations

import struct

from runtime_hook.values import value

_HEADER_BYTES = 64
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
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
    machine = int.from_bytes(header[18:20], "little")
    if header[4] != 2:  # noqa: PLR2004 - ELFCLASS64
        return ElfIdentity(32, machine, "")
    try:
        return ElfIdentity(64, machine, _soname(read_at, header))
    except (struct.error, UnicodeDecodeError):
        return None


def _soname(read_at: ReadAt, header: bytes) -> str:
    segments = _segments(read_at, header)
    name_offset = table_address = None
    for tag, content in _dynamic_entries(read_at, segments):
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


def _segments(read_at: ReadAt, header: bytes) -> list[_Segment]:
    table, size, count = struct.unpack_from("<32xQ14xHH", header)
    if size != _PROGRAM_HEADER.size:
        return []
    data = read_at(size * count, table)
    found = []
    for kind, _flags, offset, address, _physical, file_size, _memory, _align in _PROGRAM_HEADER.iter_unpack(data):
        found.append(_Segment(kind, offset, address, file_size))
    return found


def _dynamic_entries(read_at: ReadAt, segments: list[_Segment]) -> Iterator[tuple[int, int]]:
    for segment in segments:
        if segment.kind != _PT_DYNAMIC:
            continue
        for tag, content in struct.iter_unpack("<qQ", read_at(min(segment.size, 1 << 16), segment.offset)):
            if tag == _DT_NULL:
                return
            yield tag, content

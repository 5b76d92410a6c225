"""Tiny shared libraries written byte by byte: any class and machine, with sections and notes, in no time."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

X86_64, I386, AARCH64 = 62, 3, 183
SHT_NOTE, SHT_STRTAB = 7, 3
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME = 0, 1, 5, 10, 14


@dataclass(frozen=True)
class Section:
    """A named section of a library."""

    name: str
    kind: int
    content: bytes
    alignment: int = 4


@dataclass(frozen=True)
class Elf:
    """A shared library that loader and ldconfig take for one."""

    soname: str = ""
    machine: int = X86_64
    needed: tuple[str, ...] = ("libc.so.6",)
    sections: tuple[Section, ...] = field(default=())

    @property
    def is_64(self) -> bool:
        return self.machine != I386

    def build(self) -> bytes:
        """Return the file: header, two program headers, strings, dynamic section, sections and their table."""
        header_bytes, program_bytes = (64, 56) if self.is_64 else (52, 32)
        strings_at = header_bytes + 2 * program_bytes
        strings, names = _table(self.needed + ((self.soname,) if self.soname else ()))
        strings += b"\0" * (-len(strings) % 8)
        dynamic_at = strings_at + len(strings)
        tags = [(_DT_NEEDED, names[name]) for name in self.needed]
        tags += [(_DT_SONAME, names[self.soname])] if self.soname else []
        tags += [(_DT_STRTAB, strings_at), (_DT_STRSZ, len(strings)), (_DT_NULL, 0)]
        dynamic = b"".join(struct.pack("<qQ" if self.is_64 else "<iI", *tag) for tag in tags)
        body = strings + dynamic
        contents, headers, count = self._sections(strings_at + len(body))
        table_at = strings_at + len(body) + len(contents)
        whole = table_at + len(headers)
        programs = self._program(_PT_LOAD, 0, whole) + self._program(_PT_DYNAMIC, dynamic_at, len(dynamic))
        return self._header(header_bytes, table_at if count else 0, count) + programs + body + contents + headers

    def _header(self, size: int, table_at: int, count: int) -> bytes:
        identity = b"\x7fELF" + bytes([2 if self.is_64 else 1, 1, 1]) + bytes(9)
        layout = "<HHIQQQIHHHHHH" if self.is_64 else "<HHIIIIIHHHHHH"
        program_bytes, section_bytes = (56, 64) if self.is_64 else (32, 40)
        fields = (3, self.machine, 1, 0, size, table_at, 0, size, program_bytes, 2, section_bytes, count)
        return identity + struct.pack(layout, *fields, max(count - 1, 0))

    def _program(self, kind: int, offset: int, size: int) -> bytes:
        if self.is_64:
            return struct.pack("<IIQQQQQQ", kind, 5, offset, offset, offset, size, size, 8)
        return struct.pack("<IIIIIIII", kind, offset, offset, offset, size, size, 5, 4)

    def _sections(self, at: int) -> tuple[bytes, bytes, int]:
        """Return contents, section headers (a null one first, the names' table last) and how many headers."""
        if not self.sections:
            return b"", b"", 0
        names_content, names = _table((*(section.name for section in self.sections), ".shstrtab"))
        listed = (*self.sections, Section(".shstrtab", SHT_STRTAB, names_content, 1))
        contents, headers = b"", self._section(0, 0, 0, b"", 0)
        for section in listed:
            headers += self._section(
                names[section.name], section.kind, at + len(contents), section.content, section.alignment
            )
            contents += section.content
        return contents, headers, len(listed) + 1

    def _section(self, name: int, kind: int, offset: int, content: bytes, alignment: int) -> bytes:
        layout = "<IIQQQQIIQQ" if self.is_64 else "<IIIIIIIIII"
        return struct.pack(layout, name, kind, 0, 0, offset, len(content), 0, 0, alignment, 0)


def _table(names: tuple[str, ...]) -> tuple[bytes, dict[str, int]]:
    content, places = b"\0", {}
    for name in names:
        places[name] = len(content)
        content += name.encode() + b"\0"
    return content, places


def note(owner: bytes, description: bytes, kind: int = 1, alignment: int = 4) -> bytes:
    """Return an ELF note, name and description padded."""

    def pad(content: bytes) -> bytes:
        return content + b"\0" * (-len(content) % alignment)

    return struct.pack("<III", len(owner) + 1, len(description), kind) + pad(owner + b"\0") + pad(description)

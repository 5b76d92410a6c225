"""glibc's loader cache (``/etc/ld.so.cache``): reading, and merging names in the order that ldconfig would use. Pure.

Format: glibc ``elf/cache.c`` and ``sysdeps/generic/dl-cache.h``. The new format only is written; an old-format part
in front of it is left out (every loader since glibc 2.2 reads the new one). All offsets count from the start of the
new format's header, so they move when entries are added. The image's bytes are hostile: every offset is checked.
"""

from __future__ import annotations

import struct

from runtime_hook.errors import CacheError
from runtime_hook.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MAGIC = b"glibc-ld.so.cache1.1"
CACHE_LIMIT_BYTES = 32 << 20
_OLD_MAGIC = b"ld.so-1.7.0"
_OLD_HEADER = struct.Struct("<12sI")
_OLD_ENTRY_BYTES = 12
_HEADER = struct.Struct("<20sIIB3xI12x")
_ENTRY = struct.Struct("<iIIIQ")
_WORDS_PER_ENTRY = _ENTRY.size // 4
_EXTENSION_MAGIC = 0xEAA42174
_EXTENSION_HEADER = struct.Struct("<II")
_SECTION = struct.Struct("<IIII")
_TAG_GENERATOR = 0
_TAG_HWCAPS = 1
_MAX_SECTIONS = 64
_LITTLE_ENDIAN = 2
_INT32 = 1 << 32


@value
class CacheEntry:
    """A name the loader asks for, and where it is."""

    name: str
    path: str
    flags: int


class LoaderCache:
    """A parsed cache whose offsets have been checked; strings are cut out only where they are compared."""

    def __init__(self, data: bytes) -> None:
        self.data = data[_start_of_new_format(data) :]
        if len(self.data) < _HEADER.size:
            raise CacheError("loader cache is shorter than its header")
        magic, count, strings_bytes, self.endianness, self.extension = _HEADER.unpack_from(self.data)
        if magic != MAGIC:
            raise CacheError("loader cache has an unknown format")
        if self.endianness not in {0, _LITTLE_ENDIAN}:
            raise CacheError("loader cache is not little-endian")
        self.strings_start = _HEADER.size + count * _ENTRY.size
        self.strings_end = self.strings_start + strings_bytes
        if self.strings_end > len(self.data):
            raise CacheError("loader cache is cut short")
        self.words: list[int] = list(struct.unpack_from(f"<{count * _WORDS_PER_ENTRY}I", self.data, _HEADER.size))
        self._check_strings()
        self.sections = _read_extension(self.data, self.extension) if self.extension else {}
        self._check_hwcaps()

    def _check_hwcaps(self) -> None:
        data = self.sections.get(_TAG_HWCAPS, b"")
        if len(data) % 4:
            raise CacheError("loader cache has a torn list of hardware capabilities")
        for (offset,) in struct.iter_unpack("<I", data):
            if not self.strings_start <= offset < self.strings_end:
                raise CacheError("loader cache has a hardware capability outside its strings")

    def _check_strings(self) -> None:
        offsets = self.words[1::_WORDS_PER_ENTRY] + self.words[2::_WORDS_PER_ENTRY]
        if not offsets:
            return
        if min(offsets) < self.strings_start or max(offsets) >= self.strings_end:
            raise CacheError("loader cache has an entry outside its strings")
        if self.data.rfind(b"\0", max(offsets), self.strings_end) < 0:
            raise CacheError("loader cache has a string without end")

    def __len__(self) -> int:
        return len(self.words) // _WORDS_PER_ENTRY

    def string(self, offset: int) -> bytes:
        """Return the string that starts at an offset."""
        return self.data[offset : self.data.index(b"\0", offset, self.strings_end)]

    def name(self, index: int) -> bytes:
        """Return the name of an entry."""
        return self.string(self.words[index * _WORDS_PER_ENTRY + 1])

    def path(self, index: int) -> bytes:
        """Return the path of an entry."""
        return self.string(self.words[index * _WORDS_PER_ENTRY + 2])

    def flags(self, index: int) -> int:
        """Return the flags of an entry (library type and architecture)."""
        return self.words[index * _WORDS_PER_ENTRY]

    def has_hwcap(self, index: int) -> bool:
        """Tell whether an entry is bound to a hardware capability."""
        start = index * _WORDS_PER_ENTRY
        return any(self.words[start + 4 : start + 6])

    def entries(self) -> list[CacheEntry]:
        """Return all entries in their order."""
        found = []
        for index in range(len(self)):
            name, path = (part.decode("utf-8", "replace") for part in (self.name(index), self.path(index)))
            found.append(CacheEntry(name, path, self.flags(index)))
        return found


def _start_of_new_format(data: bytes) -> int:
    """Return where the new format starts: behind an old-format part, aligned to 8 bytes."""
    if not data.startswith(_OLD_MAGIC) or len(data) < _OLD_HEADER.size:
        return 0
    end = _OLD_HEADER.size + _OLD_HEADER.unpack_from(data)[1] * _OLD_ENTRY_BYTES
    return int(end + 7) & ~7


def _read_extension(data: bytes, start: int) -> dict[int, bytes]:
    """Return the content of the sections we know; of others we could not move the offsets, so they are dropped."""
    try:
        magic, count = _EXTENSION_HEADER.unpack_from(data, start)
        if magic != _EXTENSION_MAGIC or count > _MAX_SECTIONS:
            raise CacheError("loader cache has an unknown extension")
        sections = {}
        for index in range(count):
            place = start + _EXTENSION_HEADER.size + index * _SECTION.size
            tag, _flags, offset, size = _SECTION.unpack_from(data, place)
            if offset + size > len(data):
                raise CacheError("loader cache has a section outside the file")
            if tag in {_TAG_GENERATOR, _TAG_HWCAPS}:
                sections[tag] = data[offset : offset + size]
    except struct.error as reason:
        raise CacheError("loader cache has an extension outside the file") from reason
    return sections


def name_key(name: bytes) -> list[tuple[int, int]]:
    """Return a key that sorts names as glibc's ``_dl_cache_libcmp``: runs of digits count as numbers.

    A digit is greater than any other character; characters are signed, numbers wrap at 32 bits, as in C.
    """
    key, position = [], 0
    while position < len(name):
        byte = name[position]
        position += 1
        if not 48 <= byte <= 57:  # noqa: PLR2004 - "0" to "9"
            key.append((0, byte - 256 if byte > 127 else byte))  # noqa: PLR2004 - signed char
            continue
        number = byte - 48
        while position < len(name) and 48 <= name[position] <= 57:  # noqa: PLR2004 - "0" to "9"
            number = number * 10 + name[position] - 48
            position += 1
        key.append((1, (number + _INT32 // 2) % _INT32 - _INT32 // 2))
    return key


def _sort_key(name: bytes, flags: int) -> tuple[list[tuple[int, int]], int]:
    return name_key(name), flags


def _place(cache: LoaderCache, entry: CacheEntry) -> int:
    """Return the index before which an entry belongs: descending order, before its equals without hwcap.

    So what the host gives is found before a stub or an old driver of the same name in the image.
    """
    wanted = _sort_key(entry.name.encode(), entry.flags)
    low, high = 0, len(cache)
    while low < high:
        middle = (low + high) // 2
        if _sort_key(cache.name(middle), cache.flags(middle)) > wanted:
            low = middle + 1
        else:
            high = middle
    while low < len(cache) and cache.has_hwcap(low):
        if _sort_key(cache.name(low), cache.flags(low)) != wanted:
            break
        low += 1
    return low


def merge(cache: LoaderCache | None, entries: Sequence[CacheEntry]) -> bytes:
    """Return a cache with these entries added to the image's; None for an image without a cache.

    An entry of the same name, flags and path is not added again.
    """
    ordered = sorted(entries, key=lambda entry: _sort_key(entry.name.encode(), entry.flags), reverse=True)
    if cache is None:
        return _build(_Parts([], b"", _LITTLE_ENDIAN, {}), ordered, [0] * len(ordered))
    places, wanted = [], []
    for entry in ordered:
        place = _place(cache, entry)
        if not _is_listed(cache, entry, place):
            places.append(place)
            wanted.append(entry)
    strings = cache.data[cache.strings_start : cache.strings_end]
    return _build(_Parts(cache.words, strings, cache.endianness, cache.sections), wanted, places)


def _is_listed(cache: LoaderCache, entry: CacheEntry, place: int) -> bool:
    return (
        place < len(cache)
        and cache.flags(place) == entry.flags
        and cache.name(place) == entry.name.encode()
        and cache.path(place) == entry.path.encode()
    )


@value
class _Parts:
    """What a cache is built from: entries as words, their strings, and the extension's sections."""

    words: list[int]
    strings: bytes
    endianness: int
    sections: dict[int, bytes]


def _build(old: _Parts, added: Sequence[CacheEntry], places: Sequence[int]) -> bytes:
    """Write a cache: the old entries with moved offsets, the added ones at their places (both descending)."""
    shift = len(added) * _ENTRY.size
    table = _moved_entries(old.words, shift)
    count = len(table) // _ENTRY.size + len(added)
    strings_start = _HEADER.size + count * _ENTRY.size
    strings, parts, done = bytearray(old.strings), [], 0
    for position, entry in enumerate(added):
        upto = places[position] * _ENTRY.size
        name_at = strings_start + len(strings)
        path_at = name_at + len(entry.name.encode()) + 1
        strings += f"{entry.name}\0{entry.path}\0".encode()
        parts += [table[done:upto], _ENTRY.pack(entry.flags, name_at, path_at, 0, 0)]
        done = upto
    parts.append(table[done:])
    strings_end = strings_start + len(strings)
    extension_at = (strings_end + 3) & ~3 if old.sections else 0
    header = _HEADER.pack(MAGIC, count, len(strings), old.endianness, extension_at)
    padding = b"\0" * (extension_at - strings_end if extension_at else 0)
    extension = _build_extension(extension_at, old.sections, shift)
    return b"".join([header, *parts, bytes(strings), padding, extension])


def _moved_entries(words: list[int], shift: int) -> bytes:
    moved = list(words)
    for field in (1, 2):
        moved[field::_WORDS_PER_ENTRY] = [offset + shift for offset in words[field::_WORDS_PER_ENTRY]]
    return struct.pack(f"<{len(moved)}I", *moved)


def _build_extension(start: int, sections: dict[int, bytes], shift: int) -> bytes:
    if not sections:
        return b""
    content_at = start + _EXTENSION_HEADER.size + len(sections) * _SECTION.size
    table, content = [], bytearray()
    for tag in sorted(sections, reverse=True):  # hwcaps first: its words stay aligned whatever the generator's length
        data = sections[tag]
        if tag == _TAG_HWCAPS:
            offsets = struct.unpack(f"<{len(data) // 4}I", data)
            data = struct.pack(f"<{len(offsets)}I", *(offset + shift for offset in offsets))
        table.append((tag, _SECTION.pack(tag, 0, content_at + len(content), len(data))))
        content += data
    heads = b"".join(head for _, head in sorted(table))
    return _EXTENSION_HEADER.pack(_EXTENSION_MAGIC, len(sections)) + heads + bytes(content)

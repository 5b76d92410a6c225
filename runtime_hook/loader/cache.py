"""Reads glibc's loader cache (``/etc/ld.so.cache``), and merges names in the order that ldconfig would use. Pure.

Format: glibc ``elf/cache.c`` and ``sysdeps/generic/dl-cache.h``. A file is of the new format, of the old one, or both:
the old first, the new behind it. Offsets of strings count from the start of their part's header, offsets of the
extension from the start of the file. The new format alone is written: every loader since glibc 2.2 reads it. The
image's bytes are hostile: every offset is checked, and what is done to them takes time and memory in proportion.
"""

from __future__ import annotations

import struct

from runtime_hook.base.errors import CacheError
from runtime_hook.base.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    NameKey = list[tuple[int, int]]
    EntryKey = tuple[NameKey, int]

MAGIC = b"glibc-ld.so.cache1.1"
CACHE_LIMIT_BYTES = 4 << 20  # twenty-five times the cache of an image with 1,500 libraries
OLD_MAGIC = b"ld.so-1.7.0"
OLD_HEADER = struct.Struct("<12sI")
OLD_ENTRY = struct.Struct("<III")
HEADER = struct.Struct("<20sIIB3xI12x")
ENTRY = struct.Struct("<iIIIQ")
_WORDS_PER_ENTRY = ENTRY.size // 4
_EXTENSION_MAGIC = 0xEAA42174
_EXTENSION_HEADER = struct.Struct("<II")
_SECTION = struct.Struct("<IIII")
TAG_GENERATOR = 0
TAG_HWCAPS = 1
_MAX_SECTIONS = 64
_LITTLE_ENDIAN = 2
_ENDIANNESS = 3
# Bounds on what a hostile cache may cost: longer strings cannot be opened, so they are compared and shown cut.
_NAME_MAX_BYTES = 255
_PATH_MAX_BYTES = 4095
_MAX_EQUALS = 1024
_INT32 = 1 << 32
_ZERO, _NINE = b"09"
_LARGEST_CHAR = 127  # that is signed
# Where the compiler's char has no sign; of what we run on, x86 has one.
_UNSIGNED_CHAR_MACHINES = {0x0900, 0x0A00}  # arm, aarch64
_MACHINE_MASK = 0xFF00


@value
class CacheEntry:
    """A name the loader asks for, and where it is."""

    name: str
    path: str
    flags: int


class LoaderCache:
    """A parsed cache whose offsets have been checked; strings are cut out only where they are compared."""

    def __init__(self, data: bytes) -> None:
        start = _start_of_new_format(data)
        self.is_plain = start == 0
        self.data = data[start:] if start >= 0 else _modernise(data)
        if len(self.data) < HEADER.size:
            raise CacheError("loader cache is shorter than its header")
        magic, count, strings_bytes, self.endianness, extension = HEADER.unpack_from(self.data)
        if magic != MAGIC:
            raise CacheError("loader cache has an unknown format")
        if self.endianness and self.endianness & _ENDIANNESS != _LITTLE_ENDIAN:
            raise CacheError("loader cache is not little-endian")
        self.strings_start = HEADER.size + count * ENTRY.size
        self.strings_end = self.strings_start + strings_bytes
        if self.strings_end > len(self.data):
            raise CacheError("loader cache is cut short")
        self.words = memoryview(self.data)[HEADER.size : self.strings_start].cast("I")
        self._check_strings()
        self.sections = _read_extension(data, extension) if extension else {}
        self._check_hwcaps()

    def _check_strings(self) -> None:
        if not self.words:
            return
        columns = self.words[1::_WORDS_PER_ENTRY], self.words[2::_WORDS_PER_ENTRY]
        first, last = min(map(min, columns)), max(map(max, columns))
        if first < self.strings_start or last >= self.strings_end:
            raise CacheError("loader cache has an entry outside its strings")
        if self.data.rfind(b"\0", last, self.strings_end) < 0:
            raise CacheError("loader cache has a string without end")

    def _check_hwcaps(self) -> None:
        """Drop a list of hardware capabilities that the loader would not use either."""
        data = self.sections.get(TAG_HWCAPS)
        if data is None:
            return
        inside = range(self.strings_start, self.strings_end)
        if len(data) % 4 or any(offset not in inside for (offset,) in struct.iter_unpack("<I", data)):
            del self.sections[TAG_HWCAPS]

    def __len__(self) -> int:
        return len(self.words) // _WORDS_PER_ENTRY

    def string(self, offset: int, limit: int = _PATH_MAX_BYTES) -> bytes:
        """Return the string that starts at an offset, cut at the limit."""
        end = self.data.find(b"\0", offset, min(offset + limit, self.strings_end))
        return self.data[offset : end if end >= 0 else offset + limit]

    def name(self, index: int) -> bytes:
        """Return the name of an entry."""
        return self.string(self.words[index * _WORDS_PER_ENTRY + 1], _NAME_MAX_BYTES)

    def path(self, index: int) -> bytes:
        """Return the path of an entry."""
        return self.string(self.words[index * _WORDS_PER_ENTRY + 2])

    def flags(self, index: int) -> int:
        """Return the flags of an entry (library type and architecture)."""
        return self.words[index * _WORDS_PER_ENTRY]

    def has_hwcap(self, index: int) -> bool:
        """Tell whether an entry is bound to a hardware capability."""
        start = index * _WORDS_PER_ENTRY
        return bool(self.words[start + 4] or self.words[start + 5])

    def key(self, index: int) -> EntryKey:
        """Return what an entry is ordered by."""
        return entry_key(self.name(index), self.flags(index))

    def entries(self) -> list[CacheEntry]:
        """Return all entries in their order."""
        found = []
        for index in range(len(self)):
            name, path = (part.decode("utf-8", "replace") for part in (self.name(index), self.path(index)))
            found.append(CacheEntry(name, path, self.flags(index)))
        return found


def _start_of_new_format(data: bytes) -> int:
    """Return where the new format starts, as the loader finds it; -1 for a file of the old format alone.

    An old part comes first, and the new one is aligned to 8 bytes behind its entries.
    """
    if not data.startswith(OLD_MAGIC) or len(data) < OLD_HEADER.size:
        return 0
    end = OLD_HEADER.size + OLD_HEADER.unpack_from(data)[1] * OLD_ENTRY.size
    if end > len(data):
        raise CacheError("loader cache of the old format is cut short")
    start = (end + 7) & ~7
    return start if data.startswith(MAGIC, start) else -1


def _modernise(data: bytes) -> bytes:
    """Return a file of the old format in the new one; offsets of the old count from behind its entries."""
    count = OLD_HEADER.unpack_from(data)[1]
    old_strings = OLD_HEADER.size + count * OLD_ENTRY.size
    strings, strings_start = data[old_strings:], HEADER.size + count * ENTRY.size
    rows = bytearray()
    for flags, name, path in OLD_ENTRY.iter_unpack(data[OLD_HEADER.size : old_strings]):
        if max(name, path) >= len(strings):
            raise CacheError("loader cache has an entry outside its strings")
        rows += struct.pack("<IIIIQ", flags, strings_start + name, strings_start + path, 0, 0)
    return HEADER.pack(MAGIC, count, len(strings), _LITTLE_ENDIAN, 0) + bytes(rows) + strings


def _read_extension(data: bytes, start: int) -> dict[int, bytes]:
    """Return the content of the sections we know; of others we could not move the offsets.

    A damaged extension counts as none, as for the loader (``cache_extension_load``).
    """
    sections = {}
    try:
        magic, count = _EXTENSION_HEADER.unpack_from(data, start)
        if magic != _EXTENSION_MAGIC or start % 4 or count > _MAX_SECTIONS:
            return {}
        for index in range(count):
            place = start + _EXTENSION_HEADER.size + index * _SECTION.size
            tag, _flags, offset, size = _SECTION.unpack_from(data, place)
            if offset + size > len(data):
                return {}
            if tag in {TAG_GENERATOR, TAG_HWCAPS}:
                sections[tag] = data[offset : offset + size]
    except struct.error:
        return {}
    return sections


def name_key(name: bytes, *, is_char_signed: bool = True) -> NameKey:
    """Return a key that sorts names as the loader does (``_dl_cache_libcmp``): runs of digits count as numbers.

    A digit is greater than any other character; numbers wrap at 32 bits, as in C.
    """
    key, position, end = [], 0, len(name)
    while position < end:
        byte = name[position]
        position += 1
        if not _ZERO <= byte <= _NINE:
            key.append((0, byte - 256 if byte > _LARGEST_CHAR and is_char_signed else byte))
            continue
        number = byte - _ZERO
        while position < end and _ZERO <= name[position] <= _NINE:
            number = (number * 10 + name[position] - _ZERO) % _INT32
            position += 1
        key.append((1, (number + _INT32 // 2) % _INT32 - _INT32 // 2))
    return key


def entry_key(name: bytes, flags: int) -> EntryKey:
    """Return what a cache's entries are ordered by, descending: name, then flags (``compare`` in ``elf/cache.c``).

    The end of a name counts as its character 0.
    """
    key = name_key(name, is_char_signed=flags & _MACHINE_MASK not in _UNSIGNED_CHAR_MACHINES)
    key.append((0, 0))
    return key, flags


def merge(cache: LoaderCache | None, entries: Sequence[CacheEntry]) -> bytes:
    """Return a cache with these entries added to the image's; None for an image without a cache.

    Descending order. Of one name and one kind of library, entries of a hardware capability come first, because the
    loader stops at the first without one; then these, in the order given; then the image's. So what the host gives
    is found before a stub or an old driver of the image. An entry that the image has already is moved, not repeated.
    """
    if cache is None:
        cache = LoaderCache(HEADER.pack(MAGIC, 0, 0, _LITTLE_ENDIAN, 0))
    changes, low = [], 0
    for key, group in _grouped(entries):
        change = _change(cache, key, group, low)
        low = change.end
        if change.rows != list(range(change.start, change.end)):
            changes.append(change)
    if not changes and cache.is_plain:
        return cache.data
    return _build(cache, changes)


def _grouped(entries: Sequence[CacheEntry]) -> list[tuple[EntryKey, list[CacheEntry]]]:
    groups: dict[tuple[str, int], dict[str, CacheEntry]] = {}
    for entry in entries:
        groups.setdefault((entry.name, entry.flags), {}).setdefault(entry.path, entry)
    keyed = [(entry_key(name.encode(), flags), list(group.values())) for (name, flags), group in groups.items()]
    keyed.sort(key=lambda pair: pair[0], reverse=True)
    return keyed


@value
class _Change:
    """What stands in the place of the image's entries start..end: indices of the image's, or new entries."""

    start: int
    end: int
    rows: list[int | CacheEntry]


def _change(cache: LoaderCache, key: EntryKey, group: list[CacheEntry], low: int) -> _Change:
    start = _place(cache, key, low)
    limit = min(len(cache), start + _MAX_EQUALS)
    while start < limit and cache.has_hwcap(start) and cache.key(start) == key:
        start += 1
    end = start
    listed: dict[tuple[bytes, bytes], int] = {}
    others: list[int | CacheEntry] = []
    ours = {(entry.name.encode(), entry.path.encode()): entry for entry in group}
    while end < limit and cache.key(end) == key:
        identity = cache.name(end), cache.path(end)
        if identity in ours:
            listed[identity] = end
        else:
            others.append(end)
        end += 1
    rows: list[int | CacheEntry] = [listed.get(identity, entry) for identity, entry in ours.items()]
    return _Change(start, end, rows + others)


def _place(cache: LoaderCache, key: EntryKey, low: int) -> int:
    """Return the index of the first entry that is not greater; what is looked for is mostly near the last place."""
    step = 1
    while low + step <= len(cache) and cache.key(low + step - 1) > key:
        low += step
        step *= 2
    high = min(low + step - 1, len(cache))
    while low < high:
        middle = (low + high) // 2
        if cache.key(middle) > key:
            low = middle + 1
        else:
            high = middle
    return low


def _build(cache: LoaderCache, changes: list[_Change]) -> bytes:
    """Write a cache: the image's entries with moved offsets, the changed ones in their places."""
    count = len(cache) + sum(len(change.rows) - (change.end - change.start) for change in changes)
    shift = (count - len(cache)) * ENTRY.size
    table = _moved_entries(cache, shift)
    strings = bytearray(cache.data[cache.strings_start : cache.strings_end])
    strings_start = cache.strings_start + shift
    parts, done = [], 0
    for change in changes:
        parts.append(table[done * ENTRY.size : change.start * ENTRY.size])
        for row in change.rows:
            if isinstance(row, int):
                parts.append(table[row * ENTRY.size : (row + 1) * ENTRY.size])
            else:
                parts.append(_new_row(row, strings, strings_start))
        done = change.end
    parts.append(table[done * ENTRY.size :])
    strings_end = strings_start + len(strings)
    extension_at = (strings_end + 3) & ~3 if cache.sections else 0
    header = HEADER.pack(MAGIC, count, len(strings), cache.endianness, extension_at)
    padding = b"\0" * (extension_at - strings_end if extension_at else 0)
    extension = _build_extension(extension_at, cache.sections, shift)
    return b"".join([header, *parts, strings, padding, extension])


def _new_row(entry: CacheEntry, strings: bytearray, strings_start: int) -> bytes:
    """Return an entry and add its strings; a name that ends its path is not written twice."""
    path_at, path, name = strings_start + len(strings), entry.path.encode(), entry.name.encode()
    strings += path + b"\0"
    if path.endswith(name):
        return ENTRY.pack(entry.flags, path_at + len(path) - len(name), path_at, 0, 0)
    strings += name + b"\0"
    return ENTRY.pack(entry.flags, path_at + len(path) + 1, path_at, 0, 0)


def _moved_entries(cache: LoaderCache, shift: int) -> bytes:
    """Return the entries with both offsets moved: one addition of long numbers, a third of the cost of a loop.

    No carry leaves its word: checked offsets are far below 2**32.
    """
    rows = cache.data[HEADER.size : cache.strings_start]
    ones = ENTRY.pack(0, 1, 1, 0, 0) * len(cache)
    total = int.from_bytes(rows, "little") + shift * int.from_bytes(ones, "little")
    return total.to_bytes(len(rows), "little")


def _build_extension(start: int, sections: dict[int, bytes], shift: int) -> bytes:
    if not sections:
        return b""
    content_at = start + _EXTENSION_HEADER.size + len(sections) * _SECTION.size
    table, content = [], bytearray()
    for tag in sorted(sections, reverse=True):  # hwcaps first: its words stay aligned whatever the generator's length
        data = sections[tag]
        if tag == TAG_HWCAPS:
            offsets = struct.unpack(f"<{len(data) // 4}I", data)
            data = struct.pack(f"<{len(offsets)}I", *(offset + shift for offset in offsets))
        table.append((tag, _SECTION.pack(tag, 0, content_at + len(content), len(data))))
        content += data
    heads = b"".join(head for _, head in sorted(table))
    return _EXTENSION_HEADER.pack(_EXTENSION_MAGIC, len(sections)) + heads + bytes(content)

"""The order of a loader cache: glibc's comparison of names (``_dl_cache_libcmp``, ``elf/dl-cache.c``). Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    NameKey = list[tuple[int, int]]
    EntryKey = tuple[NameKey, int]

_INT32 = 1 << 32
# Where the compiler's char has no sign; of what we run on, x86 has one.
_UNSIGNED_CHAR_MACHINES = {0x0900, 0x0A00}  # arm, aarch64
_MACHINE_MASK = 0xFF00


def name_key(name: bytes, *, is_char_signed: bool = True) -> NameKey:
    """Return a key that sorts names as the loader does: runs of digits count as numbers.

    A digit is greater than any other character, the end counts as character 0; numbers wrap at 32 bits, as in C.
    """
    key, position, end = [], 0, len(name)
    while position < end:
        byte = name[position]
        position += 1
        if not 48 <= byte <= 57:  # noqa: PLR2004 - "0" to "9"
            key.append((0, byte - 256 if byte > 127 and is_char_signed else byte))  # noqa: PLR2004 - signed char
            continue
        number = byte - 48
        while position < end and 48 <= name[position] <= 57:  # noqa: PLR2004 - "0" to "9"
            number = number * 10 + name[position] - 48
            position += 1
        key.append((1, (number + _INT32 // 2) % _INT32 - _INT32 // 2))
    key.append((0, 0))
    return key


def entry_key(name: bytes, flags: int) -> EntryKey:
    """Return what a cache's entries are ordered by, descending: name, then flags (``compare`` in ``elf/cache.c``)."""
    return name_key(name, is_char_signed=flags & _MACHINE_MASK not in _UNSIGNED_CHAR_MACHINES), flags

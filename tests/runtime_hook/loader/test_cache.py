"""Loader caches of every format, and of none: what is read, what is refused, and nothing trusted."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from runtime_hook.base.errors import CacheError
from runtime_hook.loader.cache import (
    MAGIC,
    TAG_HWCAPS,
    CacheEntry,
    LoaderCache,
    entry_key,
    merge,
    name_key,
)
from tests.runtime_hook.loader.oracle import HWCAPS, Placed, hwcap_name, listed, run_ldconfig

if TYPE_CHECKING:
    from pathlib import Path

FLAG = 0x0303
ENTRIES = [CacheEntry(f"lib{name}.so.1", f"/opt/lib{name}.so.1", FLAG) for name in ("a", "b", "cuda")]
MORE = [CacheEntry("libnvidia-ml.so.1", "/usr/lib64/libnvidia-ml.so.1", FLAG)]
HOSTED = [Placed("/opt/lib", "liba.so.1"), *(Placed(f"/opt/lib/{HWCAPS}x86-64-v{n}", "liba.so.1") for n in (2, 3))]


def old_format(entries: list[CacheEntry], count: int | None = None) -> bytes:
    strings, rows = b"", b""
    for entry in entries:
        rows += struct.pack("<III", entry.flags, len(strings), len(strings) + len(entry.name) + 1)
        strings += f"{entry.name}\0{entry.path}\0".encode()
    return struct.pack("<12sI", b"ld.so-1.7.0", len(entries) if count is None else count) + rows + strings


def test_the_old_format_alone_gives_every_entry() -> None:
    assert LoaderCache(old_format(ENTRIES)).entries() == ENTRIES
    assert LoaderCache(old_format([])).entries() == []


def test_behind_an_old_part_the_new_one_counts() -> None:
    old, new = old_format(ENTRIES[:1]), merge(None, ENTRIES)
    both = old[:28] + bytes(-28 % 8) + new
    assert merge(LoaderCache(both), []) == new


def test_an_old_part_without_a_new_one_behind_it_counts_itself() -> None:
    data = old_format(ENTRIES)
    assert LoaderCache(data + bytes(64)).entries() == ENTRIES


@pytest.mark.parametrize("cache_format", ["new", "compat"])
def test_hardware_capabilities_keep_their_names_when_offsets_move(tmp_path: Path, cache_format: str) -> None:
    """Of a file of both formats, the extension was looked for behind the wrong header and the names were lost."""
    before = run_ldconfig(tmp_path, HOSTED, cache_format)
    merged = LoaderCache(merge(LoaderCache(before), MORE))
    names = [hwcap_name(merged, index) for index in range(len(merged)) if merged.name(index) == b"liba.so.1"]
    assert names == ["x86-64-v2", "x86-64-v3", ""]
    assert merged.sections[0] == LoaderCache(before).sections[0]


def test_an_entry_of_a_hardware_capability_stays_before_ours(tmp_path: Path) -> None:
    ours = CacheEntry("liba.so.1", "/usr/lib64/liba.so.1", FLAG)
    merged = listed(merge(LoaderCache(run_ldconfig(tmp_path, HOSTED)), [ours]))
    assert [(entry.path.partition("/liba")[0], hwcap) for entry, hwcap in merged] == [
        (f"/opt/lib/{HWCAPS}x86-64-v2", "x86-64-v2"),
        (f"/opt/lib/{HWCAPS}x86-64-v3", "x86-64-v3"),
        ("/usr/lib64", ""),
        ("/opt/lib", ""),
    ]


def changed_word(data: bytes, place: int, word: int) -> bytes:
    return data[:place] + struct.pack("<I", word) + data[place + 4 :]


@pytest.mark.parametrize(
    ("place", "word"),
    [
        pytest.param(0, 0, id="magic"),
        pytest.param(4, 0xFFFFFFFF, id="number of sections"),
        pytest.param(8 + 16 + 8, 0xFFFFFFF0, id="place of the list"),
        pytest.param(8 + 16 + 12, 7, id="length of the list"),
    ],
)
def test_of_a_damaged_extension_the_entries_are_kept(tmp_path: Path, place: int, word: int) -> None:
    """The loader ignores such an extension; the whole cache used to be written afresh."""
    data = run_ldconfig(tmp_path, HOSTED)
    extension = struct.unpack_from("<I", data, 32)[0]
    cache = LoaderCache(changed_word(data, extension + place, word))
    assert len(cache) == len(HOSTED)
    assert TAG_HWCAPS not in cache.sections
    assert len(LoaderCache(merge(cache, MORE))) == len(HOSTED) + 1


def test_sections_of_a_later_format_are_left_out(tmp_path: Path) -> None:
    data = run_ldconfig(tmp_path, HOSTED)
    extension = struct.unpack_from("<I", data, 32)[0]
    cache = LoaderCache(changed_word(data, extension + 8, 77))
    assert list(cache.sections) == [TAG_HWCAPS]
    assert list(LoaderCache(merge(cache, MORE)).sections) == [TAG_HWCAPS]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "shorter than its header"),
        (b"not a cache at all, but long enough for its header to be read", "unknown format"),
        (changed_word(merge(None, ENTRIES), 20, 0xFFFFFFFF), "cut short"),
        (changed_word(merge(None, ENTRIES), 28, 3), "not little-endian"),
        (changed_word(merge(None, ENTRIES), 48 + 4, 8), "outside its strings"),
        (changed_word(merge(None, ENTRIES), 48 + 8, 1 << 30), "outside its strings"),
        (merge(None, ENTRIES)[:-1] + b"x", "without end"),
        (old_format(ENTRIES, count=1 << 31), "old format is cut short"),
        (changed_word(old_format(ENTRIES), 16 + 4, 1 << 31), "outside its strings"),
    ],
)
def test_what_is_no_cache_is_refused_by_name(data: bytes, message: str) -> None:
    with pytest.raises(CacheError, match=message):
        LoaderCache(data)


def whole_caches(folder: Path) -> list[bytes]:
    formats = [run_ldconfig(folder / name, HOSTED, name) for name in ("new", "compat", "old")]
    return [*formats, merge(None, ENTRIES), old_format(ENTRIES)]


def test_every_cut_of_a_cache_is_refused_or_read(tmp_path: Path) -> None:
    for data in whole_caches(tmp_path):
        for length in range(0, len(data) - 1, 3):
            accept_or_refuse(data[:length])


@pytest.mark.slow
@pytest.mark.parametrize("word", [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_every_changed_word_is_refused_or_read(tmp_path: Path, word: int) -> None:
    for data in whole_caches(tmp_path):
        for place in range(0, len(data) - 4, 4):
            accept_or_refuse(changed_word(data, place, word))


def accept_or_refuse(data: bytes) -> None:
    try:
        cache = LoaderCache(data)
    except CacheError:
        return
    merged = LoaderCache(merge(cache, MORE))
    assert MORE[0] in merged.entries()
    assert len(merged) in {len(cache), len(cache) + 1}


def test_strings_that_no_path_can_have_are_cut() -> None:
    strings = b"9" * 100_000 + b"\0"
    data = struct.pack("<20sIIB3xI12x", MAGIC, 1, len(strings), 2, 0)
    data += struct.pack("<iIIIQ", FLAG, 72, 72, 0, 0) + strings
    (entry,) = LoaderCache(data).entries()
    assert (len(entry.name), len(entry.path)) == (255, 4095)


@pytest.mark.parametrize(
    ("smaller", "greater"),
    [
        pytest.param(b"libfoo.so.9", b"libfoo.so.10", id="digits are a number"),
        pytest.param(b"liba.so", b"liba1.so", id="a digit is greater than a sign"),
        pytest.param(b"libA", b"liba", id="capitals first"),
        pytest.param(b"lib\xff", b"liba", id="beyond ASCII is negative"),
        pytest.param(b"lib\xff", b"lib", id="and less than the end"),
        pytest.param(b"lib", b"liba", id="the end is less than a letter"),
        pytest.param(b"lib2147483648", b"lib0", id="numbers wrap"),
    ],
)
def test_names_compare_as_the_loader_compares_them(smaller: bytes, greater: bytes) -> None:
    assert entry_key(smaller, FLAG) < entry_key(greater, FLAG)


def test_a_number_of_any_length_wraps() -> None:
    assert name_key(b"9" * 200_000) == name_key(b"4294967295")


def test_where_characters_have_no_sign_they_are_greater() -> None:
    assert entry_key(b"lib\xff", 0x0A03) > entry_key(b"liba", 0x0A03)
    assert entry_key(b"lib\xff", 0x0303) < entry_key(b"liba", 0x0303)

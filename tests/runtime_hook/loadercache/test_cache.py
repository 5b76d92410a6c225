"""The loader cache against the real ldconfig: same order, same content, and nothing trusted."""

from __future__ import annotations

import struct
import subprocess
from typing import TYPE_CHECKING

import pytest

from runtime_hook.errors import CacheError
from runtime_hook.host.platforms import this_platform
from runtime_hook.loadercache.cache import MAGIC, CacheEntry, LoaderCache, merge, name_key
from tests.runtime_hook.drivertree import compile_library

if TYPE_CHECKING:
    from pathlib import Path

FLAGS = this_platform().cache_flags
IMAGE = [
    "libz.so.1",
    "libA.so.1",
    "liba-10.so.2",
    "liba-9.so.2",
    "libfoo.so.10",
    "libfoo.so.9",
    "libm_1.so",
    "libm+.so",
]
OURS = [
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-gpucomp.so.550.163.01",
    "libnvidia-gpucomp.so.550.54",
    "libzz.so",
]


def by_ldconfig(root: Path, names: list[str], compiled: Path) -> bytes:
    folder = root / "usr/lib64"
    folder.mkdir(parents=True, exist_ok=True)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/ld.so.conf").write_text("/usr/lib64\n")
    for name in names:
        target = compiled / name
        if not target.exists():
            compile_library(target, name)
        (folder / name).write_bytes(target.read_bytes())
    subprocess.run(["/sbin/ldconfig", "-r", str(root)], check=True, capture_output=True)
    return (root / "etc/ld.so.cache").read_bytes()


def entries_for(names: list[str]) -> list[CacheEntry]:
    return [CacheEntry(name, f"/usr/lib64/{name}", FLAGS) for name in names]


def test_a_merged_cache_has_the_order_of_ldconfig(tmp_path: Path) -> None:
    image = by_ldconfig(tmp_path / "image", IMAGE, tmp_path)
    both = by_ldconfig(tmp_path / "both", IMAGE + OURS, tmp_path)
    merged = merge(LoaderCache(image), entries_for(OURS))
    assert LoaderCache(merged).entries() == LoaderCache(both).entries()
    assert LoaderCache(merged).sections == LoaderCache(both).sections


def test_a_fresh_cache_has_the_order_of_ldconfig(tmp_path: Path) -> None:
    cache = by_ldconfig(tmp_path / "both", IMAGE + OURS, tmp_path)
    assert LoaderCache(merge(None, entries_for(OURS + IMAGE))).entries() == LoaderCache(cache).entries()


def test_merging_twice_changes_nothing() -> None:
    once = merge(None, entries_for(IMAGE + OURS))
    assert merge(LoaderCache(once), entries_for(OURS)) == once


def with_hwcaps(data: bytes, names: list[bytes]) -> bytes:
    """Append strings and an extension with generator and glibc-hwcaps sections to a cache that has none."""
    cache = LoaderCache(data)
    strings = data[cache.strings_start : cache.strings_end] + b"".join(name + b"\0" for name in names)
    offsets = [cache.strings_end + sum(len(name) + 1 for name in names[:index]) for index in range(len(names))]
    strings_end = cache.strings_start + len(strings)
    start = (strings_end + 3) & ~3
    sections_at = start + 8 + 32
    hwcaps, generator = struct.pack(f"<{len(offsets)}I", *offsets), b"a generator"
    extension = struct.pack("<II", 0xEAA42174, 2)
    extension += struct.pack("<IIII", 0, 0, sections_at + len(hwcaps), len(generator))
    extension += struct.pack("<IIII", 1, 0, sections_at, len(hwcaps)) + hwcaps + generator
    header: bytes = struct.pack("<20sIIB3xI12x", MAGIC, len(cache), len(strings), 2, start)
    return b"".join([header, data[48 : cache.strings_start], strings, bytes(start - strings_end), extension])


def test_hwcaps_keep_their_names_when_offsets_move() -> None:
    names = [b"x86-64-v2", b"x86-64-v3"]
    merged = LoaderCache(merge(LoaderCache(with_hwcaps(merge(None, entries_for(IMAGE)), names)), entries_for(OURS)))
    offsets = struct.unpack("<2I", merged.sections[1])
    assert [merged.string(offset) for offset in offsets] == names
    assert merged.sections[0] == b"a generator"


def test_an_entry_of_a_hardware_capability_stays_before_ours() -> None:
    data = bytearray(with_hwcaps(merge(None, [CacheEntry("libcuda.so.1", "/hw/libcuda.so.1", FLAGS)]), [b"x86-64-v3"]))
    struct.pack_into("<Q", data, 48 + 16, 1 << 62)
    merged = LoaderCache(merge(LoaderCache(bytes(data)), entries_for(["libcuda.so.1"])))
    assert [entry.path for entry in merged.entries()] == ["/hw/libcuda.so.1", "/usr/lib64/libcuda.so.1"]


def test_an_old_format_part_is_left_out() -> None:
    new = merge(None, entries_for(IMAGE))
    old = struct.pack("<12sI", b"ld.so-1.7.0\0", 1) + b"\0" * 12
    old += b"\0" * (-len(old) % 8)
    assert merge(LoaderCache(old + new), []) == new


def test_every_cut_of_a_cache_is_refused_or_read() -> None:
    data = with_hwcaps(merge(None, entries_for(IMAGE)), [b"x86-64-v3"])
    for length in range(0, len(data) - 1, 7):
        try:
            merge(LoaderCache(data[:length]), entries_for(OURS))
        except CacheError as reason:
            assert str(reason).startswith("loader cache")  # noqa: PT017 - a cut may also be readable


def test_every_flipped_word_is_refused_or_read() -> None:
    data = with_hwcaps(merge(None, entries_for(IMAGE)), [b"x86-64-v3"])
    for place in range(20, len(data) - 4, 4):
        try:
            merge(LoaderCache(data[:place] + b"\xff\xff\xff\xff" + data[place + 4 :]), entries_for(OURS))
        except CacheError as reason:
            assert str(reason).startswith("loader cache")  # noqa: PT017 - some words do not matter


@pytest.mark.parametrize(
    ("smaller", "greater"),
    [
        (b"libfoo.so.9", b"libfoo.so.10"),
        (b"liba.so", b"liba1.so"),
        (b"libA", b"liba"),
        (b"lib\xff", b"liba"),
        (b"lib", b"liba"),
    ],
)
def test_names_compare_as_the_loader_compares_them(smaller: bytes, greater: bytes) -> None:
    assert name_key(smaller) < name_key(greater)

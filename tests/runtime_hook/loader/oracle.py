"""The real ldconfig as a reference: roots of tiny libraries, and what it writes for them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runtime_hook.loader.cache import CacheEntry, LoaderCache
from tests.runtime_hook.elfmaker import I386, X86_64, Elf

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

HWCAPS = "glibc-hwcaps/"
FLAGS = {X86_64: 0x0303, I386: 0x0003}


@dataclass(frozen=True)
class Placed:
    """A library in a folder of a root."""

    folder: str
    name: str
    machine: int = X86_64

    def entry(self) -> CacheEntry:
        return CacheEntry(self.name, f"{self.folder}/{self.name}", FLAGS[self.machine])


def run_ldconfig(root: Path, placed: Iterable[Placed], cache_format: str = "new") -> bytes:
    """Make a root with these libraries and return the cache that ldconfig writes: folders in the order given."""
    folders: dict[str, None] = {}
    (root / "etc").mkdir(parents=True, exist_ok=True)
    for library in placed:
        folder = root / library.folder.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / library.name).write_bytes(Elf(library.name, library.machine).build())
        folders[library.folder.partition(f"/{HWCAPS}")[0]] = None
    (root / "etc/ld.so.conf").write_text("".join(f"{folder}\n" for folder in folders))
    argv = ["/sbin/ldconfig", "-c", cache_format, "-r", str(root)]
    subprocess.run(argv, check=True, capture_output=True)
    return (root / "etc/ld.so.cache").read_bytes()


def print_cache(path: Path) -> list[tuple[str, str]]:
    """Return name and path of each entry as ``ldconfig -p`` reads them."""
    argv = ["/sbin/ldconfig", "-p", "-C", str(path)]
    printed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    pairs = (line.split(" => ") for line in printed.splitlines() if " => " in line)
    return [(left.split()[0], right) for left, right in pairs]


def listed(data: bytes) -> list[tuple[CacheEntry, str]]:
    """Return each entry with the name of the hardware capability it is bound to."""
    cache = LoaderCache(data)
    return [(entry, hwcap_name(cache, index)) for index, entry in enumerate(cache.entries())]


def hwcap_name(cache: LoaderCache, index: int) -> str:
    if not cache.has_hwcap(index):
        return ""
    number = cache.words[index * 6 + 4]
    offset = int.from_bytes(cache.sections[1][4 * number : 4 * number + 4], "little")
    return cache.string(offset).decode()

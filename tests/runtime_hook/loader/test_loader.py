"""The real loader agrees: what LD_DEBUG says it tries first is what a merged cache lists first."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from runtime_hook.loader.cache import CacheEntry, LoaderCache, merge
from runtime_hook.loader.platforms import this_platform
from tests.runtime_hook.drivertree import compile_library
from tests.runtime_hook.loader.oracle import print_cache

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.functional
FLAGS = this_platform().cache_flags
IMAGE = {"/opt/stubs": ["libcuda.so.1", "libz9.so.1", "libz10.so.1"], "/opt/b": ["libz10.so.1", "libB.so.1", "lib+.so"]}
OURS = {"/opt/compat": ["libcuda.so.1"], "/opt/driver": ["libcuda.so.1", "libnvidia-ml.so.1"]}
# Every x86-64 machine of the last fifteen years has v2; other machines have no folder of that name.
HWCAPS = {"/opt/b/glibc-hwcaps/x86-64-v2": ["libB.so.1", "lib+.so"]} if os.uname().machine == "x86_64" else {}
FOUND = {
    "libcuda.so.1": "/opt/compat",
    "libnvidia-ml.so.1": "/opt/driver",
    "libz9.so.1": "/opt/stubs",
    "libz10.so.1": "/opt/stubs",
    "libB.so.1": "/opt/b",
    "lib+.so": "/opt/b",
    **{name: folder for folder, names in HWCAPS.items() for name in names},
}


def give_libraries(root: Path, folders: dict[str, list[str]]) -> list[CacheEntry]:
    for folder, names in folders.items():
        (root / folder.lstrip("/")).mkdir(parents=True)
        for name in names:
            compile_library(root / folder.lstrip("/") / name, name)
    return [CacheEntry(name, f"{folder}/{name}", FLAGS) for folder, names in folders.items() for name in names]


def first_tries(root: Path) -> dict[str, str]:
    """Return for each library the first file that the loader tries after it has searched the cache."""
    argv = ["/usr/sbin/chroot", str(root), "/bin/probe", *FOUND]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, env={"LD_DEBUG": "libs"})
    tries: dict[str, str] = {}
    name = ""
    for line in done.stderr.splitlines():
        if "find library=" in line:
            name = line.partition("find library=")[2].split()[0]
        elif "trying file=" in line:
            tries.setdefault(name, line.partition("trying file=")[2].strip())
    assert all(line.endswith(" 42") for line in done.stdout.splitlines()), done.stdout
    return {name: path for name, path in tries.items() if name in FOUND}


@pytest.mark.parametrize("cache_format", ["new", "compat", "old"])
def test_the_loader_finds_what_the_cache_lists_first(root: Path, cache_format: str) -> None:
    image = give_libraries(root, {**IMAGE, **HWCAPS})
    (root / "etc/ld.so.conf").write_text("".join(f"{folder}\n" for folder in IMAGE))
    subprocess.run(["/sbin/ldconfig", "-c", cache_format, "-r", str(root)], check=True, capture_output=True)
    cache = root / "etc/ld.so.cache"
    cache.write_bytes(merge(LoaderCache(cache.read_bytes()), give_libraries(root, OURS)))
    assert first_tries(root) == {name: f"{folder}/{name}" for name, folder in FOUND.items()}
    printed = print_cache(cache)
    assert {(entry.name, entry.path) for entry in image} <= set(printed)

"""Files of the image that the hook reads: whatever they are, the container starts or is refused, and nothing leaks."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from tests.runtime_hook.attack.naive import COMPAT
from tests.runtime_hook.attack.rounds import Scene, breaches
from tests.runtime_hook.attack.watch import mounts_below
from tests.runtime_hook.containers import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.runtime_hook.attack.rounds import Ground
    from tests.runtime_hook.containers import Container

pytestmark = pytest.mark.functional

ALLOCATED = [("/dev/nvidiactl", 62), ("/dev/nvidia-uvm", 60), ("/dev/nvidia0", 16)]
NEW_LIBRARY = f"{COMPAT}/libcuda.so.999.1"
CACHE = "etc/ld.so.cache"
HEADER, ENTRY = struct.Struct("<20sIIB3xI12x"), struct.Struct("<iIIIQ")
MAGIC = b"glibc-ld.so.cache1.1"


def elf(*, sections: int = 0, segments: int = 0, at: int = 64, size: int = 64) -> bytes:
    """An ELF header that promises tables which are not there."""
    header = bytearray(64)
    header[:6], header[18:20] = b"\x7fELF\x02\x01", b"\x3e\0"
    struct.pack_into("<QQ", header, 32, at, at)
    struct.pack_into("<HHHHH", header, 54, 56, segments, size, sections, max(sections - 1, 0))
    return bytes(header)


def cache(count: int, strings: bytes, offset: int, extension: int = 0) -> bytes:
    start = HEADER.size + count * ENTRY.size
    head = HEADER.pack(MAGIC, count, len(strings), 2, extension)
    return head + ENTRY.pack(0x303, start + offset, start + offset, 0, 0) * count + strings


CACHES = {
    "an empty one": b"",
    "its magic alone": MAGIC,
    "more entries than bytes": HEADER.pack(MAGIC, 0xFFFFFFFF, 0, 2, 0),
    "strings beyond its end": HEADER.pack(MAGIC, 0, 0xFFFFFFFF, 2, 0),
    "an entry outside its strings": cache(1, b"x\0", 1000),
    "a string without end": cache(1, b"xxxx", 0),
    "an extension outside": cache(1, b"x\0", 0, extension=0xFFFFFFF0),
    "an extension in its own header": cache(1, b"x\0", 0, extension=4),
    "names that are no text": cache(3, b"\xff\xfe\x80\0", 0),
    "entries without a name": cache(500, b"\0", 0),
    "the big-endian order": HEADER.pack(MAGIC, 0, 0, 3, 0),
    "the old format, endless": b"ld.so-1.7.0\0" + b"\xff" * 400,
    "a hundred thousand entries": cache(100_000, b"libz.so.1\0", 0),
    "eight mebibytes of zeros": bytes(8 << 20),
    "a name of a mebibyte": cache(1, b"l" * (1 << 20) + b"\0", 0),
}
LIBRARIES = {
    "empty": b"",
    "no library": b"#!/bin/sh\n",
    "cut short": b"\x7fELF\x02\x01",
    "sections without end": elf(sections=0xFFFF),
    "segments without end": elf(segments=0xFFFF),
    "tables beyond the file": elf(sections=10, segments=10, at=2**64 - 1),
    "tables of another size": elf(sections=10, segments=10, size=7),
    "tables in their own header": elf(sections=9, segments=9, at=0),
    "ones": b"\x7fELF\x02\x01" + b"\xff" * 100_000,
}


@pytest.mark.parametrize("name", CACHES)
def test_a_malformed_cache_breaks_nothing(container: Callable[..., Container], root: Path, name: str) -> None:
    (root / CACHE).write_bytes(CACHES[name])
    done = container(["/bin/probe", "libcuda.so.1"], devices=ALLOCATED).run()
    if done.returncode:
        assert "grapnel-hook: cannot merge" in done.stderr, done.stderr
    else:
        assert done.stdout == "libcuda.so.1 42\n"


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_malformed_library_of_the_image_is_not_used(
    container: Callable[..., Container], root: Path, name: str
) -> None:
    (root / COMPAT).mkdir(parents=True)
    (root / NEW_LIBRARY).write_bytes(LIBRARIES[name])
    done = container(["/bin/probe", "libcuda.so.1"], devices=ALLOCATED).run()
    assert (done.returncode, done.stdout) == (0, "libcuda.so.1 42\n"), done.stderr


@pytest.mark.parametrize(
    "kind", ["a fifo", "a socket", "a device", "a full folder", "a loop", "a link to the host's root"]
)
def test_whatever_is_called_a_library_in_the_compat_folder_does_not_hold_the_hook_up(ground: Ground, kind: str) -> None:
    played = ground.play(Scene(kind, NEW_LIBRARY, kind))
    assert (played[0].outcome, breaches(played)) == ("done", []), played[0].text


def test_a_compat_folder_with_thousands_of_names_does_not_hold_the_hook_up(
    container: Callable[..., Container], root: Path
) -> None:
    (root / COMPAT).mkdir(parents=True)
    for number in range(5000):
        (root / COMPAT / f"libcuda.so.999.{number}").touch()
    (root / COMPAT / ("lib" + "x" * 240 + ".so.1")).touch()
    done = container(["/bin/probe", "libcuda.so.1"], devices=ALLOCATED).run()
    assert (done.returncode, done.stdout) == (0, "libcuda.so.1 42\n"), done.stderr


@pytest.mark.parametrize("propagation", ["shared", "rshared", "slave", "unbindable"])
def test_no_mount_reaches_the_host_whatever_propagates(
    container: Callable[..., Container], tmp_path: Path, propagation: str
) -> None:
    """A volume that shares its mounts with the host lies over the place where the libraries would go."""
    volume = tmp_path / "volume"
    (volume / "x86_64-linux-gnu").mkdir(parents=True)
    made = container(["/bin/busybox", "true"], devices=ALLOCATED)
    shared = {"destination": "/usr/bin", "type": "bind", "source": str(volume), "options": ["rbind", propagation]}
    linux = {**made.config()["linux"], "rootfsPropagation": "shared" if propagation == "rshared" else "slave"}
    made.changes = {"mounts": [*made.config()["mounts"], shared], "linux": linux}
    files, mounts = snapshot(volume), mounts_below(tmp_path)
    made.run()
    assert (snapshot(volume), mounts_below(tmp_path)) == (files, mounts)

"""Compiling the simulated library, and putting it where a driver would have put the real one."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab.machine.command import run
from lab.machine.folders import cache_dir, content_key
from lab.nvml import state

if TYPE_CHECKING:
    from lab.nvml.machine import Machine

SONAME = "libnvidia-ml.so.1"
_SOURCES = Path(__file__).parent / "src"
_FLAGS = (
    *("-std=gnu11", "-O1", "-g0", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread"),
    *("-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wl,-z,defs", f"-Wl,-soname,{SONAME}"),
)
_PAGE = 4096
_BUILD_TIMEOUT_S = 120


def build(*, extra_flags: tuple[str, ...] = ()) -> Path:
    """Return the compiled library, from the cache when sources and flags are the same.

    Its state is empty: `install` makes copies that describe a machine.
    """
    sources = sorted(_SOURCES.glob("*.[ch]"))
    flags = (*_FLAGS, *extra_flags)
    key = content_key(*flags, *(part for source in sources for part in (source.name, source.read_bytes())))
    target = cache_dir() / "nvml" / key / SONAME
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        _compile(target, flags)
    return target


def install(folder: Path, version: str, machine: Machine) -> Path:
    """Put the library into a folder as version `version` of a driver does; return the file that carries the machine.

    Makes `libnvidia-ml.so.<version>` and the link `libnvidia-ml.so.1` to it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"libnvidia-ml.so.{version}"
    partial = folder / f".{library.name}.{os.getpid()}"
    shutil.copyfile(build(), partial)
    state.write(partial, machine)
    partial.replace(library)  # processes that have the old file mapped keep it
    link = folder / SONAME
    link.unlink(missing_ok=True)
    link.symlink_to(library.name)
    return library


def _compile(target: Path, flags: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / SONAME
        run(["gcc", *flags, "-o", str(made), *map(str, sorted(_SOURCES.glob("*.c")))], timeout_s=_BUILD_TIMEOUT_S)
        _append_state(made)
        made.replace(target)


def _append_state(library: Path) -> None:
    """Make room for a machine after the ELF image, on pages of its own."""
    size = library.stat().st_size
    os.truncate(library, -(-size // _PAGE) * _PAGE + state.STATE_SIZE)

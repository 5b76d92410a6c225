"""Compiling the simulated library, and putting it where a driver would have put the real one."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab.nvml import state
from lab.nvml.errors import BuildError

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


def cache_dir() -> Path:
    """Return the folder for what is built once: below the user's XDG cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "grapnel"


def build(*, extra_flags: tuple[str, ...] = ()) -> Path:
    """Return the compiled library, from the cache when the sources and flags are the same. Raises BuildError.

    Its state is empty: `install` makes copies that describe a machine.
    """
    sources = sorted(_SOURCES.glob("*.[ch]"))
    flags = (*_FLAGS, *extra_flags)
    digest = hashlib.sha256("\0".join(flags).encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    target = cache_dir() / "nvml" / digest.hexdigest()[:16] / SONAME
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
    shutil.copyfile(build(), library)
    state.write(library, machine)
    link = folder / SONAME
    link.unlink(missing_ok=True)
    link.symlink_to(library.name)
    return library


def _compile(target: Path, flags: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / SONAME
        command = ["gcc", *flags, "-o", str(made), *map(str, sorted(_SOURCES.glob("*.c")))]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S)
        except FileNotFoundError as error:
            raise BuildError("cannot compile the simulated NVML: no gcc", hint="install gcc and libc6-dev") from error
        except subprocess.CalledProcessError as error:
            raise BuildError(f"cannot compile the simulated NVML: {error.stderr.strip()}") from error
        _append_state(made)
        made.replace(target)


def _append_state(library: Path) -> None:
    """Make room for a machine after the ELF image, on pages of its own."""
    size = library.stat().st_size
    os.truncate(library, -(-size // _PAGE) * _PAGE + state.STATE_SIZE)

"""Compiles the simulated libraries and installs them where a driver would put the real ones."""

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
CUDA_SONAME = "libcuda.so.1"
COMPILER = "gcc"  # for this machine; Debian has others under names such as "aarch64-linux-gnu-gcc"
_HERE = Path(__file__).parent
_FLAGS = (
    *("-std=gnu11", "-O1", "-g0", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread"),
    *("-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wl,-z,defs"),
)
_SHARED = ("cgroup.c", "driver.c", "machine.c", "state.c", "usage.c")  # NVML sources that the CUDA library uses as well
_PAGE = 4096
_BUILD_TIMEOUT_S = 120


def build(*, extra_flags: tuple[str, ...] = (), compiler: str = COMPILER) -> Path:
    """Return the compiled library, from the cache if sources, flags and compiler are unchanged.

    Its state is empty: `install` makes copies that describe a machine.
    """
    return _build(SONAME, sorted((_HERE / "src").glob("*.c")), extra_flags, compiler)


def build_cuda(*, extra_flags: tuple[str, ...] = ()) -> Path:
    """Return the compiled `libcuda.so.1`: it answers for the machine of the simulated NVML in its own folder."""
    own = sorted((_HERE / "cuda").glob("*.c"))
    return _build(CUDA_SONAME, [*own, *(_HERE / "src" / name for name in _SHARED)], extra_flags)


def install(folder: Path, version: str, machine: Machine, *, compiler: str = COMPILER) -> Path:
    """Install the library into a folder like driver version `version`; return the file that contains the machine.

    Makes `libnvidia-ml.so.<version>` and the link `libnvidia-ml.so.1` to it, for what the compiler compiles for.
    """
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"libnvidia-ml.so.{version}"
    partial = folder / f".{library.name}.{os.getpid()}"
    shutil.copyfile(build(compiler=compiler), partial)
    state.write(partial, machine)
    partial.replace(library)  # processes that map the old file keep it
    _link(folder / SONAME, library)
    return library


def install_cuda(folder: Path, version: str) -> Path:
    """Install `libcuda.so.<version>`, and the link `libcuda.so.1` to it, next to the simulated NVML of that version."""
    library = folder / f"libcuda.so.{version}"
    shutil.copyfile(build_cuda(), library)
    _link(folder / CUDA_SONAME, library)
    return library


def _link(link: Path, library: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(library.name)


def _build(soname: str, sources: list[Path], extra_flags: tuple[str, ...], compiler: str = COMPILER) -> Path:
    flags = (*_FLAGS, f"-Wl,-soname,{soname}", *extra_flags)
    read = [*sources, *sorted((_HERE / "src").glob("*.h")), *sorted((_HERE / "cuda").glob("*.h"))]
    key = content_key(compiler, *flags, *(part for file in read for part in (file.name, file.read_bytes())))
    target = cache_dir() / "nvml" / key / soname
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        _compile(target, sources, (compiler, *flags))
    return target


def _compile(target: Path, sources: list[Path], command: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / target.name
        run([*command, "-o", str(made), *map(str, sources)], timeout_s=_BUILD_TIMEOUT_S)
        if target.name == SONAME:
            _append_state(made)
        made.replace(target)


def _append_state(library: Path) -> None:
    """Append page-aligned space for a machine to the ELF image."""
    size = library.stat().st_size
    os.truncate(library, -(-size // _PAGE) * _PAGE + state.STATE_SIZE)

"""Builds a program once and caches it: all or nothing, one build at a time; a killed build can be resumed.

In the cache: ``golang/PROGRAM-VERSION-KEY`` is a finished build, ``golang/.gocache-PROGRAM-VERSION`` Go's cache of an
unfinished one (3 GB, removed afterwards), ``golang/.build-*`` a build folder.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab.golang.compiler import MADE, Compiler
from lab.golang.errors import GolangError
from lab.golang.toolchain import find_toolchain
from lab.machine.command import run
from lab.machine.errors import BusyError, CommandError
from lab.machine.folders import cache_dir, content_key
from lab.machine.lock import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.golang.programs import Program
    from lab.golang.toolchain import Toolchain

BUILD_TIMEOUT_S = 3600.0
PROBE_TIMEOUT_S = 60.0
MEMORY = Path("/proc/meminfo")


def ensure(program: Program, say: Callable[[str], None]) -> Path:
    """Return the folder with the program's files and links, building them if not in the cache. Raises GolangError."""
    toolchain = find_toolchain(program, program.sources[-1].parent)
    home = cache_dir() / "golang"
    folder = home / f"{program.name}-{program.version}-{key(program, toolchain)}"
    compiled = home / f".gocache-{program.name}-{program.version}"
    if folder.is_dir() and not compiled.exists():
        return folder
    with _alone(home / "build.lock", say):
        if not folder.is_dir():
            _build(program, toolchain, folder, compiled, say)
        shutil.rmtree(compiled, ignore_errors=True)  # including leftovers of a build that was killed after its rename
    return folder


def key(program: Program, toolchain: Toolchain) -> str:
    """Digest of all inputs of the build."""
    texts = [part for source in program.sources for part in (source.name, source.read_bytes())]
    how = (toolchain.version, toolchain.architecture, program.target, *program.flags, *program.files, *program.links)
    how += tuple(part for made in program.beside for part in made)
    return content_key(*how, *texts)


@contextlib.contextmanager
def _alone(lock: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock for Go builds: two at once would need twice the memory."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(locked(lock, wait_s=0))
        except BusyError as error:
            say(f"waiting for another build ({error.args[0]})")
            held.enter_context(locked(lock, wait_s=BUILD_TIMEOUT_S))
        yield


def _build(program: Program, toolchain: Toolchain, folder: Path, compiled: Path, say: Callable[[str], None]) -> None:
    """Build into a temporary folder, check the result, and rename it."""
    home = folder.parent
    for left_over in home.glob(".build-*"):  # left by killed builds: we hold the lock
        shutil.rmtree(left_over, ignore_errors=True)
    require_room(program, home, compiled)
    scratch = Path(tempfile.mkdtemp(prefix=".build-", dir=home))
    try:
        _compile(Compiler(program, toolchain, scratch, compiled, say))
        _finish(program, scratch / MADE)
        (scratch / MADE).rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    say(f"{program.title} is in {folder}")


def _compile(compiler: Compiler) -> None:
    title = compiler.program.title
    compiler.prepare()
    try:
        packages = compiler.download()
    except CommandError as error:
        what = f"the modules of {title} cannot be downloaded (`go env GOPROXY` shows from where)"
        raise GolangError(what, hint=error.hint) from error
    try:
        compiler.build(packages)
    except CommandError as error:
        raise GolangError(f"{title} was not built (run it again to continue)", hint=error.hint) from error


def _finish(program: Program, made: Path) -> None:
    """Add the links, check that the program reports its version, and sync everything to disk before the rename."""
    for name in program.links:
        (made / name).symlink_to(program.files[0])
    command = [str(made / program.probe[0]), *program.probe[1:]]
    answer = run(command, timeout_s=PROBE_TIMEOUT_S).stdout
    if program.answer not in answer.split():
        raise GolangError(f"{program.title} was built but reports version {answer.strip()!r}", hint=shlex.join(command))
    for name in program.files:
        with (made / name).open("rb") as file:
            os.fsync(file.fileno())


def require_room(program: Program, home: Path, compiled: Path) -> None:
    """Raise GolangError if memory or disk would not suffice; an earlier attempt's compiled packages are reused."""
    home.mkdir(parents=True, exist_ok=True)
    already = sum(file.lstat().st_size for file in compiled.rglob("*")) if compiled.is_dir() else 0
    disk, memory = shutil.disk_usage(home).free + already, available_memory(MEMORY.read_text())
    if disk < program.disk_bytes:
        free = f"{disk / 2**30:.1f} GiB of disk are free"
        need = f"building {program.title} needs {program.disk_bytes / 2**30:.0f}, most of it only during the build"
        raise GolangError(f"{home}: {free}", hint=need)
    if memory < program.memory_bytes:
        free = f"{memory / 2**30:.1f} GiB of memory are available"
        need = f"linking {program.title} needs {program.memory_bytes / 2**30:.0f}: end other programs, or add swap"
        raise GolangError(free, hint=need)


def available_memory(meminfo: str) -> int:
    """Return the available memory including free swap, in bytes, from ``/proc/meminfo``."""
    fields = dict(line.split(":", 1) for line in meminfo.splitlines() if ":" in line)
    return sum(int(fields.get(name, "0 kB").split()[0]) * 1024 for name in ("MemAvailable", "SwapFree"))

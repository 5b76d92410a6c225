"""Hooks as they should not be: each does one of the things that made a published hole. They prove that a check sees it.

Never used by anything but the tests, and only inside the arena's own mount namespace.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.runtime_hook.attack.hostile import MS_BIND, libc
from tests.runtime_hook.containers import MULTIARCH

if TYPE_CHECKING:
    from collections.abc import Callable

COMPAT = "usr/local/cuda/compat"
LIBRARY = "libcuda.so.1"
_CLONE_NEWNS = 0x20000
_PAUSE_S = 0.002  # between a check and the use of what it said: real hooks do other work there
_STEAL_S = 0.3


def inject(sin: str, process: int, root: Path, driver: Path) -> None:
    """Go into the container's mount namespace and do it the naive way."""
    ldconfig = os.open(driver / "sbin/ldconfig", os.O_RDONLY) if sin == "run the host's ldconfig" else -1
    namespace = os.open(f"/proc/{process}/ns/mnt", os.O_RDONLY)
    if libc.setns(namespace, _CLONE_NEWNS):
        raise OSError("setns")
    if ldconfig >= 0:
        _run_in(root, lambda: os.execve(ldconfig, ["sleep", "0.1"], {}))
        time.sleep(_STEAL_S)
        return
    SINS[sin](root)


def _bind_libraries_of_the_image(root: Path) -> None:
    for path in sorted((root / COMPAT).glob("lib*.so.*")):
        _bind(path, root / MULTIARCH / path.name)


def _check_then_bind(root: Path) -> None:
    path = root / COMPAT / "libcuda.so.999.1"
    if path.is_symlink() or path.is_dir():
        return
    time.sleep(_PAUSE_S)
    with contextlib.suppress(FileNotFoundError):
        _bind(path, root / MULTIARCH / path.name)


def _bind(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch()
    libc.mount(os.fsencode(source), os.fsencode(target), None, MS_BIND, None)


def _make_targets_by_path(root: Path) -> None:
    (root / MULTIARCH / "libcuda.so.550.163.01").open("a").close()


def _make_links_by_path(root: Path) -> None:
    (root / MULTIARCH / "libcuda.so").symlink_to(LIBRARY)


def _check_then_link(root: Path) -> None:
    folder = root / MULTIARCH
    if not folder.resolve().is_relative_to(root):
        return
    time.sleep(_PAUSE_S)
    with contextlib.suppress(FileNotFoundError, FileExistsError):
        (folder / "libcuda.so").symlink_to(LIBRARY)


def _write_the_cache_by_path(root: Path) -> None:
    (root / "etc/ld.so.cache").write_bytes(b"glibc-ld.so.cache1.1")


def _run_the_images_ldconfig(root: Path) -> None:
    _run_in(root, lambda: os.execv("/sbin/ldconfig", ["ldconfig"]))


SINS: dict[str, Callable[[Path], None]] = {
    "bind libraries of the image": _bind_libraries_of_the_image,
    "check, then bind": _check_then_bind,
    "make targets by path": _make_targets_by_path,
    "make links by path": _make_links_by_path,
    "check, then link": _check_then_link,
    "write the cache by path": _write_the_cache_by_path,
    "run the image's ldconfig": _run_the_images_ldconfig,
}


def _run_in(root: Path, execute: Callable[[], object]) -> None:
    child = os.fork()
    if child == 0:
        try:
            os.chroot(root)
            os.chdir("/")
            execute()
        finally:
            os._exit(1)
    os.waitpid(child, 0)


def steal_programs(driver: Path) -> None:
    """Wait for a program of the host to run beside us, keep a handle on it, and write to it when it has ended."""
    wanted = (driver / "sbin/ldconfig").stat()
    while True:
        for program in Path("/proc").glob("[0-9]*/exe"):
            with contextlib.suppress(OSError):
                if os.path.samestat(program.stat(), wanted):
                    _overwrite(os.open(program, os.O_PATH))


def _overwrite(handle: int) -> None:
    while True:
        with contextlib.suppress(OSError):  # "text file busy" until it has ended
            descriptor = os.open(f"/proc/self/fd/{handle}", os.O_WRONLY | os.O_APPEND)
            os.write(descriptor, b"owned")
            os.close(descriptor)
            return

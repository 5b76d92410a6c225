"""Defines the content of the images.

`pause` is the sandbox of pods. `gpu-shell` is a shell and a C library: enough to run what a GPU runtime injects,
without any GPU software. `greedy` has the same files, and requests every GPU through its environment, as CUDA images
do. `gpu-test` adds a program that uses GPUs, reports what it sees of them, and holds them while it runs.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.images import content
from lab.machine.command import run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lab.images.content import Entry

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_SOURCES = Path(__file__).parent
_COMPILE_TIMEOUT_S = 60
_APPLETS = (
    *("[", "awk", "basename", "cat", "chmod", "cp", "cut", "date", "dd", "df", "dirname", "echo", "env", "expr"),
    *("false", "find", "grep", "head", "hostname", "id", "kill", "ln", "ls", "md5sum", "mkdir", "mknod", "mount"),
    *("mv", "od", "printf", "ps", "pwd", "readlink", "realpath", "rm", "rmdir", "sed", "seq", "sh", "sleep", "sort"),
    *("stat", "tail", "tee", "test", "time", "timeout", "touch", "tr", "true", "umount", "uname", "uniq", "wc"),
    *("which", "xargs", "yes"),
)


@dataclass(frozen=True)
class Recipe:
    """An image: its packages (from the bundle), the files taken from them, and its configuration."""

    packages: tuple[str, ...]
    files: Callable[[Mapping[str, Path]], Mapping[str, Entry]]
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: tuple[str, ...] = (f"PATH={PATH}",)


def compiled(name: str, *flags: str) -> Entry:
    """Return the compiled ``NAME.c``, reproducible with the same compiler."""
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / name
        common = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Os", "-s", "-Wl,--build-id=none"]
        source = str(_SOURCES / f"{name}.c")
        run(["gcc", *common, *flags, "-o", str(program), source], timeout_s=_COMPILE_TIMEOUT_S)
        return content.file(program.read_bytes(), 0o755)


def _pause(packages: Mapping[str, Path]) -> dict[str, Entry]:
    del packages
    return {"pause": compiled("pause", "-static")}


def _gpu_test(packages: Mapping[str, Path]) -> dict[str, Entry]:
    """Linked dynamically, so that injected libraries are found through the image's own loader and its cache."""
    return {**_shell(packages), "usr/bin/gpu-test": compiled("gpu-test")}


def _shell(packages: Mapping[str, Path]) -> dict[str, Entry]:
    libraries = content.from_package(packages["libc6"], _is_library)
    busybox = content.from_package(packages["busybox-static"], lambda path: path == "usr/bin/busybox")
    applets = {f"usr/bin/{name}": content.link("busybox") for name in _APPLETS}
    return {**_skeleton(), **libraries, **busybox, **applets}


def _is_library(path: str) -> bool:
    return path.startswith(("usr/lib64/", "etc/ld.so.conf.d/")) or (
        path.startswith("usr/lib/x86_64-linux-gnu/") and path.count("/") == _DEPTH_OF_LIBRARIES
    )


_DEPTH_OF_LIBRARIES = 3  # usr/lib/x86_64-linux-gnu/libc.so.6, but not the character sets below gconv


def _skeleton() -> dict[str, Entry]:
    """Return the non-program files of Debian's base system, and the runtime's mount points."""
    merged = {name: content.link(f"usr/{name}") for name in ("bin", "sbin", "lib", "lib64")}
    return {
        **merged,
        **{name: content.directory() for name in ("dev", "proc", "run", "sys", "usr/sbin", "var/lib")},
        "root": content.directory(0o700),
        "tmp": content.directory(0o1777),
        "etc/debian_version": content.file(b"13.0\n"),
        "etc/passwd": content.file(b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
        "etc/group": content.file(b"root:x:0:\nnogroup:x:65534:\n"),
        "etc/ld.so.conf": content.file(b"include /etc/ld.so.conf.d/*.conf\n"),
    }


_SHELL = Recipe(packages=("libc6", "busybox-static"), files=_shell, command=("/bin/sh",))

RECIPES: dict[str, Recipe] = {
    "pause": Recipe(packages=(), files=_pause, entrypoint=("/pause",)),
    "gpu-shell": _SHELL,
    "greedy": Recipe(
        packages=_SHELL.packages,
        files=_SHELL.files,
        command=_SHELL.command,
        env=(*_SHELL.env, "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=all"),
    ),
    "gpu-test": Recipe(packages=_SHELL.packages, files=_gpu_test, command=("gpu-test", "hold")),
}

"""Installs the pinned Python packages and grapnel's wheel, for the Python of the image, and compiles them."""

from __future__ import annotations

import csv
import io
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.machine.command import run
from lab.machine.folders import cache_dir, content_key
from lab.machine.lock import locked
from provision.planning.architecture import AARCH64, ARCHITECTURES, X86_64
from tasks.image.packages import PYTHON

if TYPE_CHECKING:
    from provision.planning.architecture import Architecture

TIMEOUT_S: Final = 900.0
SEEN_AS: Final = "/opt/grapnel/lib"
# Never imported: a second client (41 MB), Ansible's tests of collections, a former API of a dependency, manual pages.
_LEFT_OUT: Final = ("kubernetes/aio", "ansible_test", "pydantic/v1", "share")
_OF_THE_BUILD: Final = ("direct_url.json", "uv_cache.json", "REQUESTED")
OF_THIS_MACHINE: Final = ARCHITECTURES.get(os.uname().machine, X86_64)
_LOADERS: Final = {X86_64: "usr/lib64/ld-linux-x86-64.so.2", AARCH64: "usr/lib/ld-linux-aarch64.so.1"}


def key(requirements: Path, architecture: Architecture) -> str:
    """Return the digest of what the packages depend on."""
    return content_key(PYTHON, architecture.name, Path(__file__).read_bytes(), requirements.read_bytes())


def ensure(runner: Path, requirements: Path, uv: Path, architecture: Architecture) -> Path:
    """Return the folder of the pinned packages, their hashes checked, from the cache where it is there (150 MB).

    ``runner`` is the tree whose Python compiles them: that of this machine's architecture.
    """
    home = cache_dir() / "images"
    made = home / f"python-{key(requirements, architecture)}"
    if made.is_dir():
        return made
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / "python.lock", wait_s=TIMEOUT_S):
        if not made.is_dir():
            partial = home / f".{made.name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            _install(partial, uv, architecture, "--require-hashes", "-r", str(requirements))
            compile_all(runner, partial, SEEN_AS)
            partial.rename(made)
    return made


def install_wheel(folder: Path, runner: Path, wheel: Path, uv: Path) -> None:
    """Install grapnel alone into a new folder; it is the same for all architectures."""
    _install(folder, uv, OF_THIS_MACHINE, "--no-deps", str(wheel))
    compile_all(runner, folder, SEEN_AS)


def _install(folder: Path, uv: Path, architecture: Architecture, *what: str) -> None:
    # copies: programs are changed below, and what uv keeps in its cache is not
    words = ["pip", "install", "--quiet", "--no-build", "--link-mode", "copy", "--target", str(folder)]
    words += ["--python-version", PYTHON, "--python-platform", f"{architecture.name}-unknown-linux-gnu"]
    run([str(uv), *words, *what], timeout_s=TIMEOUT_S)
    for name in _LEFT_OUT:
        shutil.rmtree(folder / name, ignore_errors=True)
    folder.joinpath(".lock").unlink(missing_ok=True)
    for program in folder.glob("bin/*"):  # they name the Python that uv ran with
        _, _, rest = program.read_bytes().partition(b"\n")
        program.write_bytes(b"#!/usr/bin/python3\n" + rest)
    for about in folder.glob("*.dist-info"):
        for name in _OF_THE_BUILD:
            about.joinpath(name).unlink(missing_ok=True)
        _correct(about / "RECORD")


def _correct(record: Path) -> None:
    """Take from the record of a package what was taken from it, and the digests of programs that were changed."""
    text = io.StringIO()
    written = csv.writer(text, lineterminator="\n")
    for name, digest, size in csv.reader(record.read_text().splitlines()):
        if record.parents[1].joinpath(name).exists():
            written.writerow((name, "", "") if name.startswith("bin/") else (name, digest, size))
    record.write_text(text.getvalue())


def compile_all(runner: Path, folder: Path, seen_as: str) -> None:
    """Compile the modules below a folder with the image's Python: the root of a container is read-only.

    Bytecode is the same on every architecture, so that the Python of a tree of this machine's does it for all.
    Without it every Job would compile Ansible first. Compiled files name their sources by ``seen_as`` and carry no
    times, so that the same sources give the same files; the hash seed decides the order of sets in them.
    """
    libraries = str(runner / "usr/lib" / OF_THIS_MACHINE.multiarch)
    loader = [str(runner / _LOADERS[OF_THIS_MACHINE]), "--library-path", libraries]
    words = ["-m", "compileall", "-q", "-j", "1", "--invalidation-mode", "unchecked-hash"]
    argv = [*loader, str(runner / "usr/bin" / f"python{PYTHON}"), "-sSP", *words, "-s", str(folder), "-p", seen_as]
    environment = ["env", f"PYTHONHOME={runner / 'usr'}", "PYTHONHASHSEED=0"]
    # What cannot be compiled is not meant to be: templates, and files for other versions of Python.
    run([*environment, *argv, str(folder)], timeout_s=TIMEOUT_S, check=False)

"""Installs the pinned Python packages and grapnel's wheel, for the Python of the image, and compiles them."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path
from typing import Final

from lab.machine.command import run
from lab.machine.folders import cache_dir, content_key
from lab.machine.lock import locked
from tasks.image.packages import PYTHON

TIMEOUT_S: Final = 900.0
SEEN_AS: Final = "/opt/grapnel/lib"
# Never imported: a second client (41 MB), Ansible's tests of collections, a former API of a dependency, manual pages.
_LEFT_OUT: Final = ("kubernetes/aio", "ansible_test", "pydantic/v1", "share")
_OF_THIS_MACHINE: Final = ("direct_url.json", "uv_cache.json", "REQUESTED")
_TARGET: Final = ("--python-version", PYTHON, "--python-platform", "x86_64-unknown-linux-gnu")


def key(requirements: Path) -> str:
    """Return the digest of what the packages depend on."""
    return content_key(PYTHON, Path(__file__).read_bytes(), requirements.read_bytes())


def ensure(tree: Path, requirements: Path, uv: Path) -> Path:
    """Return the folder of the pinned packages, their hashes checked, from the cache where it is there (150 MB)."""
    home = cache_dir() / "images"
    made = home / f"python-{key(requirements)}"
    if made.is_dir():
        return made
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / "python.lock", wait_s=TIMEOUT_S):
        if not made.is_dir():
            partial = home / f".{made.name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            _install(partial, uv, "--require-hashes", "-r", str(requirements))
            compile_all(tree, partial, SEEN_AS)
            partial.rename(made)
    return made


def install_wheel(folder: Path, tree: Path, wheel: Path, uv: Path) -> None:
    """Install grapnel alone into a new folder."""
    _install(folder, uv, "--no-deps", str(wheel))
    compile_all(tree, folder, SEEN_AS)


def _install(folder: Path, uv: Path, *what: str) -> None:
    # copies: programs are changed below, and what uv keeps in its cache is not
    words = ["pip", "install", "--quiet", "--no-build", "--link-mode", "copy", *_TARGET, "--target", str(folder)]
    run([str(uv), *words, *what], timeout_s=TIMEOUT_S)
    for name in _LEFT_OUT:
        shutil.rmtree(folder / name, ignore_errors=True)
    folder.joinpath(".lock").unlink(missing_ok=True)
    for program in folder.glob("bin/*"):  # they name the Python that uv ran with
        _, _, rest = program.read_bytes().partition(b"\n")
        program.write_bytes(b"#!/usr/bin/python3\n" + rest)
    for about in folder.glob("*.dist-info"):
        for name in _OF_THIS_MACHINE:
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


def compile_all(tree: Path, folder: Path, seen_as: str) -> None:
    """Compile the modules below a folder with the Python of the image's tree: the root of a container is read-only.

    Without it every Job would compile Ansible first. Compiled files name their sources by ``seen_as`` and carry no
    times, so that the same sources give the same files; the hash seed decides the order of sets in them.
    """
    loader = [str(tree / "usr/lib64/ld-linux-x86-64.so.2"), "--library-path", str(tree / "usr/lib/x86_64-linux-gnu")]
    words = ["-m", "compileall", "-q", "-j", "1", "--invalidation-mode", "unchecked-hash"]
    argv = [*loader, str(tree / "usr/bin" / f"python{PYTHON}"), "-sSP", *words, "-s", str(folder), "-p", seen_as]
    # What cannot be compiled is not meant to be: templates, and files for other versions of Python.
    run(["env", f"PYTHONHOME={tree / 'usr'}", "PYTHONHASHSEED=0", *argv, str(folder)], timeout_s=TIMEOUT_S, check=False)

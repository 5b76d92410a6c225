"""Keeps the archives that Ansible makes of this collection's modules, for the next run of Ansible on this machine.

Ansible follows every import of a module to put its archive together, and keeps that for as long as it runs: for the
facts it parses and packs 120 files, a tenth of what an apply with nothing to do takes. What is kept stands for the
sources by their names, sizes and times, for Ansible and for Python; it is the user's own, as compiled Python is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import ansible
from ansible import constants
from ansible.release import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PLUGINS = Path(__file__).resolve().parents[1]
_SOURCES = (_PLUGINS / "modules", _PLUGINS / "module_utils", Path(ansible.__file__).parent / "module_utils")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_MOST = 4  # versions of the sources


@contextlib.contextmanager
def kept(module: str) -> Iterator[None]:
    """Have Ansible find the archive of a module, by its last name, or keep what it makes meanwhile.

    Where it cannot be kept, or Ansible looks elsewhere, it is made as it always is.
    """
    place = Path(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache")
    start = f"ansible_collections.grapnel.node.plugins.modules.{module}-"
    folder = None
    if not _named(place, start):
        with contextlib.suppress(OSError):
            folder = _open_folder(os.environ)
            place.mkdir(exist_ok=True)
            _copy(_named(folder, start), place)
    yield
    if folder is not None and not _named(folder, start):
        with contextlib.suppress(OSError):
            _copy(_named(place, start), folder)


def version_of(folders: Iterable[Path]) -> str:
    """Return what stands for all Python files of folders, for this Ansible and this Python."""
    told = [__version__, sys.version]
    for folder in folders:
        told.append(str(folder))
        for place, below, names in os.walk(folder):
            below.sort()
            for name in sorted(name for name in names if name.endswith(".py")):
                found = os.stat(f"{place}/{name}")  # noqa: PTH116 - of hundreds of files, in each run
                told.append(f"{place}/{name} {found.st_size} {found.st_mtime_ns}")
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


def _open_folder(environment: os._Environ[str]) -> Path:
    """Return the folder of these sources, which nobody else can write to; raises OSError."""
    home = Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or "~").expanduser() / ".cache")
    above = home / "grapnel" / "ansible-modules"
    above.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = above.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
        raise PermissionError(f"{above} is not this user's alone")
    folder = above / version_of(_SOURCES)
    if not folder.is_dir():
        folder.mkdir(exist_ok=True, mode=0o700)
        others = sorted(above.iterdir(), key=lambda one: one.stat().st_mtime, reverse=True)
        for old in others[_MOST:]:
            shutil.rmtree(old, ignore_errors=True)
    return folder


def _named(folder: Path, start: str) -> list[Path]:
    """Return the files whose names begin so, but for those that are being written."""
    ends = (".lock", "-part", ".new")
    names = os.listdir(folder) if folder.is_dir() else []
    return [folder / name for name in names if name.startswith(start) and not name.endswith(ends)]


def _copy(files: Iterable[Path], folder: Path) -> None:
    for file in files:
        beside = folder / f"{file.name}.{os.getpid()}.new"
        shutil.copyfile(file, beside)
        beside.replace(folder / file.name)

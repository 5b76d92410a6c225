"""Has modules of archives compiled once on a node, and the code kept until its next boot.

Ansible sends a module as an archive of sources that is deleted at the end, and zipimport compiles each of its files
twice, once to tell its name and once to run it, in every task again. `quick_modules` sends the text of this file with
each module, so it uses the standard library alone.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import os
import stat
import sys
import zipimport
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType

MOST = 2000  # files; more are of many versions
_DIGEST_LENGTH = hashlib.sha256().digest_size


def keep_compiled(home: str = "/usr/lib/grapnel", folder: str = "/run/grapnel-modules", owner: int = 0) -> None:
    """Have what is imported from archives from now on taken from a folder, and kept there.

    It is code that root runs, so root alone may have written it, and not below ``/run/grapnel``, where the node daemon
    writes, which has less than all of root's rights. Nothing is kept where grapnel is not installed (``home``).
    Whatever goes wrong, a module is compiled as it always is.
    """
    if _is_usable(home, folder, owner):
        sys.path_hooks.insert(0, lambda path: KeepingImporter(path, folder))
    else:
        sys.path_hooks.insert(0, NamingImporter)


class NamingImporter(zipimport.zipimporter):
    """Tells the name of a module's file without compiling it."""

    def get_filename(self, fullname: str) -> str:
        """Return the path within the archive."""
        end = "/__init__.py" if self.is_package(fullname) else ".py"
        return f"{self.archive}/{self.prefix}{fullname.rpartition('.')[2]}{end}"


class KeepingImporter(NamingImporter):
    """Takes code from a folder, by a name that stands for the source and the Python: nothing found is out of date."""

    def __init__(self, path: str, folder: str) -> None:
        super().__init__(path)
        self._folder = folder

    def get_code(self, fullname: str) -> CodeType:
        """Return the code that is kept, or compile and keep it."""
        source = self.get_source(fullname)
        if source is None:
            return super().get_code(fullname)
        name = hashlib.sha256(importlib.util.MAGIC_NUMBER + f"{fullname}\0{source}".encode())
        path = f"{self._folder}/{name.hexdigest()}"
        try:
            return _read(path)
        except (OSError, ValueError, EOFError, TypeError):
            code = super().get_code(fullname)
        _write(path, code)
        return code


def _is_usable(home: str, folder: str, owner: int) -> bool:
    try:
        if os.geteuid() != owner or not _is_of(owner, home):
            return False
        if not os.path.lexists(folder):
            os.mkdir(folder, 0o700)  # noqa: PTH102 - pathlib would be one more import on the node
        if not _is_of(owner, folder):
            return False
        names = os.listdir(folder)
        for name in names if len(names) > MOST else ():
            os.unlink(f"{folder}/{name}")  # noqa: PTH108 - see above
    except OSError:
        return False
    return True


def _is_of(owner: int, path: str) -> bool:
    """Tell whether it is a folder that nobody else can write to."""
    found = os.lstat(path)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == owner and not found.st_mode & 0o022


def _read(path: str) -> CodeType:
    with open(path, "rb") as stream:
        kept = stream.read()
    if hashlib.sha256(kept[_DIGEST_LENGTH:]).digest() != kept[:_DIGEST_LENGTH]:
        raise ValueError(path)
    code: CodeType = marshal.loads(kept[_DIGEST_LENGTH:])  # noqa: S302 - written by root, see _is_usable
    return code


def _write(path: str, code: CodeType) -> None:
    content, beside = marshal.dumps(code), f"{path}.{os.getpid()}"
    try:
        with open(beside, "xb") as stream:
            stream.write(hashlib.sha256(content).digest() + content)
        os.replace(beside, path)  # noqa: PTH105 - see above
    except OSError:
        return

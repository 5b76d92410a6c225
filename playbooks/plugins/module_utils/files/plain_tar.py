"""Reads the members of a tar archive whose headers may lie, whoever wrote it.

A header of POSIX.1-2001 ("pax") may give a member another size than the archive has of it, or call it sparse, which
lets a few bytes stand for any number of them; such headers may also be nested, or huge. Sizes are believed
only where they are those of the member's own header: then what a limit counts is what is read.

The same text is in `provision`, for the controller, and in the collection's `module_utils`, for nodes.
"""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

MAX_HEADER_BYTES = 64 * 1024  # of a header that only says something of the next member, such as a long name
_EXTENDED = frozenset(
    (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
)
# Names, owners and times. Whatever else there may be decides about content, or nobody here has a use for it.
_KNOWN_KEYS = frozenset(("path", "linkpath", "uid", "gid", "uname", "gname", "atime", "ctime", "mtime", "comment"))
_BROKEN = (RecursionError, ValueError, OverflowError, MemoryError)


class UnsafeTarError(tarfile.TarError):
    """An archive has headers that nothing is read behind."""


class PlainMember(tarfile.TarInfo):
    """A header that is refused before what belongs to it is read."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> Self:
        """Return the header in a block; raises `UnsafeTarError`."""
        member = super().frombuf(buf, encoding, errors)
        if member.size < 0:
            raise UnsafeTarError("it has a file of an impossible size")
        if member.type in _EXTENDED and member.size > MAX_HEADER_BYTES:
            raise UnsafeTarError("it has a name that is too long")
        return member


def open_plain(name: Any = None, mode: Any = "r", fileobj: Any = None) -> tarfile.TarFile:
    """Open an archive as `tarfile.open` does, for `plain_members`; raises `tarfile.TarError`, OSError."""
    try:
        return tarfile.open(name, mode, fileobj, tarinfo=PlainMember)  # it reads the first header
    except _BROKEN as error:
        raise UnsafeTarError(f"its headers cannot be read: {type(error).__name__}") from error


def plain_members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield what is still to come of an open archive; raises `tarfile.TarError`, also for what only looks like one.

    Of members that are regular files as many bytes can be read as their size says, or an error comes.
    """
    while True:
        try:
            member = archive.next()
        except _BROKEN as error:
            raise UnsafeTarError(f"its headers cannot be read: {type(error).__name__}") from error
        if member is None:
            return
        if member.size < 0 or member.issparse() or set(member.pax_headers) - _KNOWN_KEYS:
            raise UnsafeTarError("it has a header that makes a file another size than it is, or of an unknown kind")
        yield member

"""Edits musl's library path (``/etc/ld-musl-<arch>.path``), which it has in place of a loader cache. Pure.

musl reads the file's folders, divided by colons or line ends, up to its end or a NUL; without the file it searches
``/lib:/usr/local/lib:/usr/lib`` (musl, ``ldso/dynlink.c``).
"""

from __future__ import annotations

DEFAULT_PATH = b"/lib:/usr/local/lib:/usr/lib"
PATH_LIMIT_BYTES = 1 << 16


def add_folder(data: bytes | None, folder: str) -> bytes | None:
    """Return the path file with a folder added at its end, or None where the folder is searched already.

    ``data`` is the image's file, None where it has none. What the image lists stays as it is.
    """
    wanted = folder.encode()
    listed = (DEFAULT_PATH if data is None else data).partition(b"\0")[0]
    if wanted in (path.rstrip(b"/") for path in listed.replace(b"\n", b":").split(b":")):
        return None
    separator = b"" if not listed or listed.endswith((b":", b"\n")) else b"\n"
    return listed + separator + wanted + b"\n"

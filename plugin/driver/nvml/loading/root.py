"""Finds the driver's library below another root, as in a driver container's tree (`nvidiaDriverRoot`)."""

from __future__ import annotations

import _ctypes
import ctypes
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.base.errors import DriverNotReady

if TYPE_CHECKING:
    from collections.abc import Iterator

SONAME = "libnvidia-ml.so.1"
HOST = Path("/")
# Where distributions and driver containers put it, in the order in which NVIDIA's plugin looks.
_FOLDERS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "lib/x86_64-linux-gnu/nvidia/current",
    "lib/aarch64-linux-gnu/nvidia/current",
)


def find_below(root: Path, soname: str) -> Path | None:
    """Return where a library of the driver is below a root, None where it is not."""
    return next((root / folder / soname for folder in _FOLDERS if (root / folder / soname).exists()), None)


@contextmanager
def library_below(root: Path) -> Iterator[None]:
    """Have whoever loads the library by its SONAME meanwhile get the one of this root; raises DriverNotReady.

    The loader takes a library that is mapped under the same SONAME for the one that is asked for. Below the
    host's own root the loader finds it by itself.
    """
    if root == HOST:
        yield
        return
    path = find_below(root, SONAME)
    if path is None:
        raise DriverNotReady(
            f"there is no {SONAME} below {root}", "is nvidiaDriverRoot right, and the driver installed?"
        )
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise DriverNotReady(f"{path} cannot be loaded: {error}", "is it this machine's driver?") from error
    try:
        yield
    finally:
        _ctypes.dlclose(library._handle)

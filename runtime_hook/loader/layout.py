"""Tells where an image keeps its libraries by a few names in its root. Pure: the caller says whether they exist."""

from __future__ import annotations

from runtime_hook.base.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime_hook.loader.compat import Compat
    from runtime_hook.loader.platforms import Platform

COMPAT_FOLDER = "/usr/local/cuda/compat"
_MULTIARCH_32 = "i386-linux-gnu"


@value
class Layout:
    """What a plan has to know of a container's root.

    The machine's platform, the folders of 64-bit and of 32-bit libraries ("" where an image cannot have any), whether
    its only loader is musl's; ``compat`` is the decision on an image that brings CUDA forward compatibility, else None.
    """

    platform: Platform
    library_folder: str
    library_folder_32: str = ""
    is_musl: bool = False
    compat: Compat | None = None


def with_compat(layout: Layout, compat: Compat) -> Layout:
    """Return a layout with the decision on CUDA forward compatibility."""
    return Layout(**{**vars(layout), "compat": compat})


def choose_layout(platform: Platform, has: Callable[[str], bool]) -> Layout:
    """Return the layout of the root in which ``has`` tells whether an absolute path exists.

    Debian's multiarch folder where ``/etc/debian_version`` is, as libnvidia-container decides it, or where the C
    library lies there (images cut down to less than that file); ``/usr/lib`` of an image whose only loader is
    musl's; ``/usr/lib64`` of all others, with ``/usr/lib32`` (Arch) or ``/usr/lib`` for 32 bits. The loader cache
    makes any folder do for glibc; musl has none, and ``/usr/lib`` is on its path without one.
    """
    multiarch = f"/usr/lib/{platform.multiarch}"
    if has("/etc/debian_version") or has(f"{multiarch}/libc.so.6"):
        return Layout(platform, multiarch, f"/usr/lib/{_MULTIARCH_32}")
    machine = platform.multiarch.partition("-")[0]
    if has(f"/lib/ld-musl-{machine}.so.1") and not (has("/usr/lib64/libc.so.6") or has("/lib64/libc.so.6")):
        return Layout(platform, "/usr/lib", is_musl=True)
    return Layout(platform, "/usr/lib64", "/usr/lib32" if has("/usr/lib32") else "/usr/lib")

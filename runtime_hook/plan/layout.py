"""Where a container keeps libraries: decided by a look at three or four names in its root. Pure but for that look."""

from __future__ import annotations

from runtime_hook.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime_hook.host.platforms import Platform

_MULTIARCH_32 = "i386-linux-gnu"


@value
class Layout:
    """The folders of 64-bit and of 32-bit libraries ("" where an image cannot have any), and the kind of loader."""

    library_folder: str
    library_folder_32: str = ""
    is_musl: bool = False


def choose_layout(platform: Platform, has: Callable[[str], bool]) -> Layout:
    """Return the layout of the root in which ``has`` tells whether an absolute path exists.

    Debian's multiarch folder where ``/etc/debian_version`` is, as libnvidia-container decides it, or where the C
    library lies there (images cut down to less than that file); ``/usr/lib`` of an image whose only loader is
    musl's; ``/usr/lib64`` of all others, with ``/usr/lib32`` (Arch) or ``/usr/lib`` for 32 bits. The loader cache
    makes any folder do for glibc; musl has none, and ``/usr/lib`` is on its path without one.
    """
    multiarch = f"/usr/lib/{platform.multiarch}"
    if has("/etc/debian_version") or has(f"{multiarch}/libc.so.6"):
        return Layout(multiarch, f"/usr/lib/{_MULTIARCH_32}")
    machine = platform.multiarch.partition("-")[0]
    if has(f"/lib/ld-musl-{machine}.so.1") and not (has("/usr/lib64/libc.so.6") or has("/lib64/libc.so.6")):
        return Layout("/usr/lib", is_musl=True)
    return Layout("/usr/lib64", "/usr/lib32" if has("/usr/lib32") else "/usr/lib")

"""Lists what differs between processor architectures."""

from __future__ import annotations

import os

from runtime_hook.base.errors import InventoryError
from runtime_hook.base.values import value


@value
class Platform:
    """One architecture: Debian's multiarch folder, flags in a loader cache, e_machine in an ELF header.

    The same again for the 32-bit programs that it runs, too.
    """

    multiarch: str
    cache_flags: int
    elf_machine: int
    multiarch32: str
    cache_flags32: int
    elf_machine32: int


# Sources: glibc, sysdeps/generic/ldconfig.h (FLAG_*); elf.h (EM_*); Debian's multiarch tuples.
PLATFORMS = {
    "x86_64": Platform("x86_64-linux-gnu", 0x0303, 62, "i386-linux-gnu", 0x0003, 3),
    "aarch64": Platform("aarch64-linux-gnu", 0x0A03, 183, "arm-linux-gnueabihf", 0x0903, 40),
}


def this_platform() -> Platform:
    """Return the platform of this machine."""
    machine = os.uname().machine
    if machine not in PLATFORMS:
        raise InventoryError(f"architecture {machine} is not known", f"known are {', '.join(PLATFORMS)}")
    return PLATFORMS[machine]

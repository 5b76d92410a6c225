"""Prints the folder of the virtual machine's system, building what is not in the cache."""

from __future__ import annotations

import sys

from lab.machine.errors import LabError
from lab.nodes.microvm.secureboot import ensure_secure_boot
from lab.nodes.microvm.system import ensure

if __name__ == "__main__":
    try:
        system = ensure()
        ensure_secure_boot(system)
        print(system.folder)
    except LabError as error:
        sys.exit(f"lab: {error}")

"""Prints the folder of the emulated machine's system, building it if it is not in the cache."""

from __future__ import annotations

import sys

from lab.machine.errors import LabError
from lab.nodes.emulated.image import ensure

if __name__ == "__main__":
    try:
        print(ensure().folder)
    except LabError as error:
        sys.exit(f"lab: {error}")

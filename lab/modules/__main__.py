"""``python3 -m lab.modules [SUITE ...]``: builds the archives that tests and demo need, unless the cache has them."""

from __future__ import annotations

import sys

from lab.machine.errors import LabError
from lab.modules.archives import ARCHIVES, ensure


def main() -> int:
    """Print the path of each archive, or of each for the kernels of some suites."""
    suites = sys.argv[1:]
    try:
        for wanted in ARCHIVES:
            if not suites or wanted.suite in suites:
                print(ensure(wanted), flush=True)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

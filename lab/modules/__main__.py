"""``python3 -m lab.modules [SUITE [VERSION]]``: builds the archives that tests need, unless the cache has them."""

from __future__ import annotations

import sys

from lab.machine.errors import LabError
from lab.modules.archives import ARCHIVES, ensure


def main() -> int:
    """Print the path of each archive, or of those for the kernel of a suite, of one version."""
    words = tuple(sys.argv[1:])
    niceness = 0 if words[1:] else 19  # a single one is waited for
    try:
        for wanted in ARCHIVES:
            if words == (wanted.suite, wanted.version)[: len(words)]:
                print(ensure(wanted, niceness=niceness), flush=True)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

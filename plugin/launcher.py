#!/usr/bin/python3 -I
"""The executable `grapnel-node` of the node payload: finds its own release, then runs the command line.

Below `-I` Python looks at neither the working directory nor PYTHONPATH. The release's folder is
resolved once, so that a daemon goes on with its own files after the link to the release was flipped.
"""

import os
import sys

_HERE = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - pathlib costs `--version` 8 ms
sys.path[:0] = [_HERE, os.path.join(_HERE, "site")]  # noqa: PTH118 - pathlib costs `--version` 8 ms

if __name__ == "__main__":
    from plugin.cli import main

    sys.exit(main())

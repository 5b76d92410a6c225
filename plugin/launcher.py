#!/usr/bin/python3 -IS
"""The executable `grapnel-node` of the node payload: finds its own release, then runs the command line.

Below `-I` Python looks at neither the working directory nor PYTHONPATH, and with `-S` it runs nothing of what
others left in the machine's site-packages. The release's folder is resolved once, so that a daemon goes on with
its own files after the link to the release was flipped.
"""

import gc
import os
import sys

# Modules are no garbage: looking for some while they are loaded takes 12 ms. The daemon turns it on.
gc.disable()

_HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [_HERE, os.path.join(_HERE, "site")]

if __name__ == "__main__":
    from plugin.cli import main

    sys.exit(main())

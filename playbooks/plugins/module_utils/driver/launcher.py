#!/usr/bin/python3 -IS
"""Starts the installed program: the executable ``grapnel-driver`` is a copy of this file beside the package tree.

With ``-I`` Python puts neither the script's folder nor the current one on ``sys.path``. This file's own folder is added
by its real path, once, so that a release that is replaced meanwhile is not mixed with the next.
"""

import os
import sys

sys.dont_write_bytecode = True  # a release is compiled where it is installed
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 - before anything else is imported

from ansible_collections.grapnel.node.plugins.module_utils.driver.program import main  # noqa: E402 - found by the above

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

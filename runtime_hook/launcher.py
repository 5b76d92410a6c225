#!/usr/bin/python3 -IS
"""The executable ``grapnel-hook`` as shipped: a copy of this file beside the folder ``runtime_hook/``.

With ``-I`` Python puts neither the script's folder nor the current one on ``sys.path``; this file's own folder is
added by its real path, once, so that a release that is replaced meanwhile is not mixed with the next.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

from runtime_hook.cli import run

run(sys.argv[1:])

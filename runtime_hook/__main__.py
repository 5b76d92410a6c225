#!/usr/bin/python3 -IS
"""Starts the hook when the package's folder is executed as a script (``runtime_hook/__main__.py``).

With ``-I`` Python puts neither the script's folder nor the current one on ``sys.path``; the package's parent is added
by its real path, once, so that a release that is replaced meanwhile is not mixed with the next.
"""

import os
import sys

script = os.readlink(f"/proc/self/fd/{os.open(__file__, os.O_PATH)}")
sys.path.insert(0, script.rsplit("/", 2)[0])

from runtime_hook.cli import run  # noqa: E402 - found by what stands above

run(sys.argv[1:])

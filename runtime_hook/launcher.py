#!/usr/bin/python3 -IS
"""Starts an installed hook: the executable ``grapnel-hook`` is a copy of this file beside ``runtime_hook/``.

With ``-I`` Python puts neither the script's folder nor the current one on ``sys.path``. Where the release was packed
for this interpreter (``runtime_hook.release.packing``), everything comes out of that one file; else this file's own
folder is added by its real path, once, so that a release that is replaced meanwhile is not mixed with the next.

Short, as this is the one file that is compiled at every start.
"""

import gc
import os
import sys
from _frozen_importlib_external import MAGIC_NUMBER
from marshal import loads

HEAD_BYTES = 1 << 14  # runtime_hook.release.packing has the format

gc.disable()  # in 10 ms nothing gathers that is worth looking for: 0.3 ms
sys.dont_write_bytecode = True  # a release is compiled where it is installed, never by a container's start


def use_pack() -> bool:
    """Take modules from the pack; False where there is none that this interpreter can read."""
    try:
        pack = os.open(f"{__file__}.{sys.implementation.cache_tag}", os.O_RDONLY)
        magic, importer, index = loads(os.read(pack, HEAD_BYTES))
    except (OSError, EOFError, ValueError, TypeError):
        return False
    if magic != MAGIC_NUMBER:
        return False
    scope: "dict[str, object]" = {}
    exec(loads(importer), scope)  # it has no way to be imported before it is there
    sys.meta_path.insert(0, scope["PackImporter"](pack, index))  # type: ignore[operator] # the class of the importer
    return True


if not use_pack():
    script = os.readlink(f"/proc/self/fd/{os.open(__file__, os.O_PATH)}")
    sys.path.insert(0, script.rpartition("/")[0])

from runtime_hook.cli import run  # found by what stands above

run(sys.argv[1:])

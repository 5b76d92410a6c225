"""The only place that imports pynvml: turns NVML's answers into snapshots.

Not here: any decision about what an answer means for the kubelet.
"""

from __future__ import annotations

import sys
from types import ModuleType


def _import_pynvml() -> None:
    """Import it without what it imports and never calls: `find_library` would bring 6 ms of modules with it."""
    name = "ctypes.util"
    stand_in = ModuleType(name)
    stand_in.__dict__["find_library"] = None
    if sys.modules.setdefault(name, stand_in) is not stand_in:
        return
    try:
        import pynvml  # noqa: F401, PLC0415 - see above
    finally:
        del sys.modules[name]


_import_pynvml()

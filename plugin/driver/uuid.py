"""What the UUID of a GPU looks like: it names devices, files and resources, so nothing else may pass for one."""

from __future__ import annotations

import re

_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_gpu_uuid(text: str) -> bool:
    """Whether it is the UUID of a whole GPU."""
    return _UUID.fullmatch(text) is not None

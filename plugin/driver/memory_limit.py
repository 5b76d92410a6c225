"""What the driver says of a control group's memory on a GPU: plain values."""

from __future__ import annotations

from typing import NamedTuple


class GroupMemory(NamedTuple):
    """Bytes that the processes of a control group may have together, None without a limit, and that they have."""

    limit_bytes: int | None
    used_bytes: int

"""Names of what tests make on the machine: two workers of a run must not use the same one."""

from __future__ import annotations

import os


def of_this_worker(name: str) -> str:
    """Return ``name``, with the number of this worker where several run beside one another."""
    return name + os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")

"""Names and places of what tests make on the machine: of one worker of a run, or for all of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def of_this_worker(name: str) -> str:
    """Return ``name``, with the number of this worker where several run beside one another."""
    return name + os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")


def of_all_workers(factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all workers of a run have; whoever makes something in it holds a lock meanwhile."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

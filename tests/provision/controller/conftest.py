"""A real API server that knows GpuStacks, and a part of its nodes for each test."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.provision.controller.fleet import World, remove_stacks
from tests.provision.stacks.conftest import stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.provision.cluster.stage import Stage

__all__ = ["stage"]
_NUMBERS = itertools.count(1)


@pytest.fixture
def world(stage: Stage) -> Iterator[World]:
    made = World(stage, f"pool-{next(_NUMBERS)}")
    yield made
    made.machines.stops.clear()
    remove_stacks(stage)

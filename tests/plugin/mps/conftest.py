"""A node whose GPUs can be shared through MPS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.plugin.mps.node import Node, made_node

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def node() -> Iterator[Node]:
    with made_node() as made:
        yield made

"""A real API server for the package, and a Node of each test's own."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from lab.cluster import ControlPlane
from tests.plugin.node_object.real_cluster import register

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMBERS = itertools.count(1)


@pytest.fixture(scope="package")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("control-plane")).running() as made:
        yield made


@pytest.fixture
def node(control_plane: ControlPlane) -> Iterator[str]:
    """A Node of this test's own, as a kubelet would have registered it."""
    name = f"claims-{next(NUMBERS)}"
    register(control_plane, name)
    yield name
    control_plane.kubectl(["delete", "node", name, "--ignore-not-found"])

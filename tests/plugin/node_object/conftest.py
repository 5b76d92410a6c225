"""Certificates of one authority, made once, and an API server for each test; a real one for those that ask for it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from lab.cluster import ControlPlane
from lab.cluster.certificates import Certificates
from tests.plugin.node_object.api_server import ApiServer
from tests.plugin.node_object.real_cluster import register

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates") / "pki")
    made.prepare("127.0.0.1")
    return made


@pytest.fixture
def server(certificates: Certificates) -> Iterator[ApiServer]:
    with ApiServer(certificates) as served:
        yield served


@pytest.fixture(scope="package")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("control-plane")).running() as made:
        yield made


@pytest.fixture
def node(control_plane: ControlPlane) -> Iterator[str]:
    """A Node of this test's own, as a kubelet would have registered it."""
    name = f"n{next(NUMBERS)}"
    register(control_plane, name)
    yield name
    control_plane.kubectl(["delete", "node", name, "--ignore-not-found"])

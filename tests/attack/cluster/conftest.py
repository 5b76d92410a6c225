"""One control plane for all attacks by objects: Nodes without machines, and those who attack."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from lab.cluster import ControlPlane
from provision.cluster.connect import open_api
from tests.attack.cluster.identities import OURS, THEIRS, Identity, author_in, by_certificate, kubelet_of
from tests.provision.cluster.conftest import NO_KUBELETS_S
from tests.provision.cluster.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.cluster.kubernetes.api.client import Api

NUMBERS = itertools.count(1)


@pytest.fixture(scope="package")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), node_grace_s=NO_KUBELETS_S).running() as control_plane:
        found = Stage(control_plane)
        found.control_plane.ensure_namespace(OURS)
        yield found


@pytest.fixture(scope="package")
def api(stage: Stage) -> Api:
    """The API server as grapnel reads it."""
    found = open_api(stage.control_plane.kubeconfig, None, {})
    assert found is not None
    return found


@pytest.fixture(scope="package")
def admin(stage: Stage) -> Identity:
    """Whoever looks at what is there in truth, without the seconds that kubectl takes."""
    return by_certificate(stage.control_plane, "admin")


@pytest.fixture(scope="package")
def victim(stage: Stage) -> str:
    return stage.make_node(**{"node-restriction.kubernetes.io/stack": "prod"})


@pytest.fixture(scope="package")
def evil(stage: Stage) -> str:
    """The node that somebody else has root on."""
    name = stage.make_node(**{"node-restriction.kubernetes.io/stack": "prod"})
    stage.kubectl("taint", "node", name, "grapnel.dev/not-ready:NoSchedule")
    return name


@pytest.fixture(scope="package")
def kubelet(stage: Stage, evil: str) -> Identity:
    return kubelet_of(stage.control_plane, evil)


@pytest.fixture(scope="package")
def author(stage: Stage) -> Identity:
    return author_in(stage.control_plane, THEIRS)


@pytest.fixture
def name() -> str:
    """A name that no other object has."""
    return f"x{next(NUMBERS)}"

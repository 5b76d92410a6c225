"""A real API server for the tests of the adapter, and people who use it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from lab.cluster import ControlPlane
from provision.cluster.kubernetes import cluster as kubernetes_cluster
from provision.cluster.kubernetes import lease
from tests.provision.cluster.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_KUBELETS_S = 86_400  # a node's state is what a test has said, although no kubelet repeats it


@pytest.fixture(scope="package")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Run one control plane without nodes for all tests; each makes nodes and pods with names of its own."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), node_grace_s=NO_KUBELETS_S).running() as control_plane:
        yield Stage(control_plane)


@pytest.fixture
def often_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds the lease hears at once what an engine hears within ten seconds."""
    monkeypatch.setattr(kubernetes_cluster, "hold", partial(lease.hold, renew_s=0.5))

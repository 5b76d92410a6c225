"""A real API server that knows GpuStacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.cluster import ControlPlane
from tests.provision.cluster.conftest import NO_KUBELETS_S
from tests.provision.cluster.stage import Stage
from tests.provision.stacks.samples import CRD

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Run one control plane without nodes for all tests; each makes objects with names of its own."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), node_grace_s=NO_KUBELETS_S).running() as control_plane:
        found = Stage(control_plane)
        found.define(CRD)
        yield found

"""GPUs are set as declared and stay so: changed by hand, after a reboot, and given back with the daemon."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lab.nodes import NodeSpec
from lab.nvml import state
from tests.journey.conftest import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node, Site
    from tests.journey.conftest import Controller

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(600)]

NAME = "tuned"
GPUS = [
    {"devices": "all", "persistenceMode": True, "graphicsClockMHz": {"min": 900, "max": 1200}},
    {"devices": [1], "powerLimitWatts": 250},
]


@pytest.fixture(scope="module")
def node(site: Site) -> Iterator[Node]:
    yield site.up(NodeSpec(NAME, suite="trixie", gpus=2, driver_module=VERSION))
    site.remove(NAME)


def declare(controller: Controller, gpus: list[dict[str, object]]) -> None:
    stack = {"driver": {"version": VERSION, "kernelModule": "none"}, "node": {"gpus": gpus}}
    document = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack", "spec": stack}
    controller.folder.joinpath("grapnel.yaml").write_text(json.dumps(document))


def settings(node: Node) -> list[tuple[int, int, int]]:
    """Return persistence mode, highest locked clock and power limit of each GPU."""
    gpus = state.read(node.nvml_library).gpus
    return [(int(gpu.persistence_mode), gpu.clock_sm_locked_max, gpu.power_limit_mw) for gpu in gpus]


def test_gpus_are_set_as_declared_and_stay_so(controller: Controller, node: Node, site: Site) -> None:
    (_, _, default), _ = untouched = settings(node)
    wanted = [(1, 1200, default), (1, 1200, 250_000)]
    declare(controller, GPUS)

    controller.converge(NAME)

    assert settings(node) == wanted

    state.update(node.nvml_library, lambda machine: machine.with_gpu(1, power_limit_mw=100_000))
    (item,) = controller.plan_items(NAME)
    assert item["reason"].endswith("GPU 1: powerLimitWatts: 250 W")
    assert item["disruption"] == "none"
    drifted = controller.grapnel("drift", NAME)
    assert "powerLimitWatts" in drifted.stdout, drifted.stdout + drifted.stderr

    controller.converge(NAME)

    assert settings(node) == wanted

    site.reboot(NAME)

    assert settings(node) == wanted

    declare(controller, [])
    controller.converge(NAME)

    assert [each[1:] for each in settings(node)] == [each[1:] for each in untouched]

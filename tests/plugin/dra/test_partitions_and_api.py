"""Partitions in the slices of a real API server: what it keeps of them, and that nothing is written without need."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from plugin.base.log import Logger
from plugin.devices.inventory import Device, Inventory
from plugin.dra.keeper import SliceKeeper
from plugin.dra.partitions import find_partitions
from plugin.driver.mig_instances import CuttableGpu
from tests.plugin.dra.cut_node import PROFILES
from tests.plugin.fakes import gpu
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import ControlPlane
    from plugin.dra.devices import DraDevice

pytestmark = pytest.mark.functional  # an API server

GPUS = 9  # one more than a slice has sets of counters


def partitions(unhealthy: str = "") -> tuple[DraDevice, ...]:
    found: list[DraDevice] = []
    for index in range(GPUS):
        facts = replace(gpu(index), is_cut=True)
        cut = CuttableGpu(index, facts.uuid, index, is_cut=True, is_pending=True, profiles=PROFILES)
        device = Device(facts, f"/dev/nvidia{index}", unhealthy="" if index else unhealthy)
        found += find_partitions(device, Inventory(), cut, (), {})
    return tuple(found)


@contextmanager
def keeper(control_plane: ControlPlane, node: str, folder: Path) -> Iterator[SliceKeeper]:
    kubeconfig = folder / "kubelet.conf"
    kubeconfig.write_text(control_plane.render_kubeconfig(control_plane.certificates.prepare_node(node)))
    made = SliceKeeper(node, str(kubeconfig), {}, lambda: True, Logger())
    yield made
    made.close()


def slices(control_plane: ControlPlane, node: str) -> list[dict[str, Any]]:
    command = ["get", "resourceslices", "-o", "json", "--field-selector", f"spec.nodeName={node}"]
    found: list[dict[str, Any]] = json.loads(control_plane.kubectl(command))["items"]
    return found


def versions(control_plane: ControlPlane, node: str) -> dict[str, str]:
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in slices(control_plane, node)}


def test_partitions_of_many_gpus_are_kept_as_they_were_sent(
    control_plane: ControlPlane, node: str, tmp_path: Path
) -> None:
    wanted = partitions()

    def show(made: SliceKeeper, devices: tuple[DraDevice, ...]) -> list[dict[str, Any]]:
        made.publish(devices)
        wait_until(lambda: made.is_settled, lambda: str(slices(control_plane, node))[:2000])
        assert made.features.counters
        return slices(control_plane, node)

    with keeper(control_plane, node, tmp_path) as made:
        found = show(made, wanted)
        rows = [each for one in found for each in one["spec"].get("devices") or ()]
        assert sum(len(one["spec"].get("sharedCounters") or ()) for one in found) == GPUS
        assert {each["name"] for each in rows} == {each.name for each in wanted}
        assert all(each["consumesCounters"] for each in rows)
        ill = [each for one in show(made, partitions("xid 79")) for each in one["spec"].get("devices") or ()]
        assert sum("taints" in each for each in ill) == len(wanted) / GPUS
        show(made, wanted)
    before = versions(control_plane, node)
    with keeper(control_plane, node, tmp_path) as another:  # the next daemon finds its own words
        show(another, wanted)
    assert versions(control_plane, node) == before

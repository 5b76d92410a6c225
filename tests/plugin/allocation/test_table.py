from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.base.errors import DeviceNotReady, InvalidRequest, RequestError
from plugin.devices.allocation.table import AllocationTable, DeviceNode, allocate, prepare_tables, show_id
from plugin.devices.inventory import Inventory, next_inventory, without_driver
from plugin.devices.naming import NamePattern
from plugin.devices.resources import OfferRules, plan_offers
from plugin.driver.snapshot import LostGpu, Snapshot
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus, whole_table

TABLE = whole_table(next_inventory(Inventory(), Snapshot(VERSION, gpus(4)), DictTree({"nvidia-uvm-tools"})))


def test_a_container_gets_the_control_nodes_and_its_gpus() -> None:
    answer = allocate(TABLE, [gpu(2).uuid])
    assert answer.nodes == (
        DeviceNode("/dev/nvidiactl", "/dev/nvidiactl", "rw"),
        DeviceNode("/dev/nvidia-uvm", "/dev/nvidia-uvm", "rw"),
        DeviceNode("/dev/nvidia2", "/dev/nvidia2", "rw"),
    )
    assert answer.envs == {"NVIDIA_VISIBLE_DEVICES": gpu(2).uuid}
    assert answer.annotations == {"grapnel.dev/allocation": gpu(2).uuid}


def test_the_answer_does_not_depend_on_the_order_of_the_request() -> None:
    ids = [gpu(3).uuid, gpu(0).uuid]
    assert allocate(TABLE, ids) == allocate(TABLE, ids[::-1])
    assert allocate(TABLE, ids).envs == {"NVIDIA_VISIBLE_DEVICES": f"{gpu(0).uuid},{gpu(3).uuid}"}


def test_the_path_in_the_container_does_not_follow_another_device_root() -> None:
    class Elsewhere(DictTree):
        def device_path(self, name: str) -> str | None:
            return f"/run/driver/dev/{name}"

    table = whole_table(next_inventory(Inventory(), Snapshot(VERSION, gpus(1)), Elsewhere()))
    assert allocate(table, [gpu(0).uuid]).nodes[-1] == DeviceNode("/dev/nvidia0", "/run/driver/dev/nvidia0")


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        pytest.param([], "asks for no device", id="no device"),
        pytest.param([gpu(9).uuid], f"device '{gpu(9).uuid}' is not one", id="a device of another node"),
        pytest.param([gpu(0).uuid, "GPU-x"], "device 'GPU-x' is not one", id="known and unknown"),
        pytest.param([gpu(0).uuid] * 2, "asked for twice", id="the same twice"),
        pytest.param(["GPU\nforged=1"], r"device 'GPU\\nforged=1'", id="an id with a line break"),
        pytest.param([""], "device '' is not one", id="an empty id"),
    ],
)
def test_what_was_never_offered_is_refused(ids: list[str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        allocate(TABLE, ids)


def test_an_unhealthy_device_is_refused_with_its_reason() -> None:
    before = next_inventory(Inventory(), Snapshot(VERSION, gpus(2)), DictTree())
    lost = (LostGpu(1, gpu(1).uuid, "gpu is lost"),)
    table = whole_table(next_inventory(before, Snapshot(VERSION, (gpu(0),), lost), DictTree()))
    with pytest.raises(DeviceNotReady, match="is not healthy: gpu is lost"):
        allocate(table, [gpu(0).uuid, gpu(1).uuid])
    assert allocate(table, [gpu(0).uuid]).device_ids == (gpu(0).uuid,)


def test_a_message_stays_short_whatever_was_sent() -> None:
    with pytest.raises(RequestError) as raised:
        allocate(TABLE, ["é" * 65536])
    assert len(raised.value.message) < 1000
    assert raised.value.message.isascii()


def test_an_id_is_shown_whole_up_to_the_interfaces_limit() -> None:
    assert show_id("x" * 63) == repr("x" * 63)
    assert "\\u2026" in show_id("x" * 64)


def split(resources: dict[str, list[int]], count: int = 4) -> dict[str, AllocationTable]:
    models = {index: resource for resource, indices in resources.items() for index in indices}
    found = tuple(replace(gpu(index), model=models.get(index, "none")) for index in range(count))
    inventory = next_inventory(Inventory(), Snapshot(VERSION, found), DictTree())
    patterns = tuple(NamePattern(resource, resource) for resource in resources)
    return prepare_tables(plan_offers(inventory, OfferRules(patterns)), inventory)


def test_a_device_of_another_resource_is_refused_with_its_name() -> None:
    tables = split({"nvidia.com/big": [0, 1], "nvidia.com/small": [2]})
    assert allocate(tables["nvidia.com/small"], [gpu(2).uuid]).device_ids == (gpu(2).uuid,)
    with pytest.raises(InvalidRequest, match=r"is offered as nvidia\.com/big, not as nvidia\.com/small"):
        allocate(tables["nvidia.com/small"], [gpu(0).uuid])
    with pytest.raises(InvalidRequest, match="is not one that this node offers"):
        allocate(tables["nvidia.com/small"], [gpu(3).uuid])


@given(st.lists(st.sampled_from([None, "a/a", "a/b", "a/c"]), min_size=8, max_size=8))
def test_tables_of_resources_share_no_device_and_lose_none(places: list[str | None]) -> None:
    names = sorted({place for place in places if place is not None})
    tables = split({name: [index for index, place in enumerate(places) if place == name] for name in names}, 8)
    ids = [device_id for table in tables.values() for device_id in table.entries]
    assert sorted(ids) == [gpu(index).uuid for index, place in enumerate(places) if place is not None]
    assert all(not set(table.entries) & set(table.elsewhere) for table in tables.values())
    assert all(len(table.entries) + len(table.elsewhere) == len(ids) for table in tables.values())


def test_a_device_that_is_being_released_is_refused() -> None:
    inventory = next_inventory(Inventory(), Snapshot(VERSION, gpus(1)), DictTree())
    table = whole_table(without_driver(inventory, "released since 2026-01-01"))
    with pytest.raises(DeviceNotReady, match="is not healthy: released since"):
        allocate(table, [gpu(0).uuid])


class OneHolder:
    """Knows of one pod."""

    def holder(self, device_id: str) -> str:
        return "default/train" if device_id == gpu(1).uuid else ""


def test_a_device_that_another_pod_holds_is_refused_with_its_name() -> None:
    with pytest.raises(DeviceNotReady, match="is held by 'default/train'"):
        allocate(TABLE, [gpu(0).uuid, gpu(1).uuid], OneHolder())
    assert allocate(TABLE, [gpu(0).uuid], OneHolder()).device_ids == (gpu(0).uuid,)

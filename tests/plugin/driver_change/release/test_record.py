from __future__ import annotations

import json
from dataclasses import replace

import pytest

from plugin.changes.driver_change.release.record import (
    Release,
    parse_release,
    remember_gpus,
    remembered_inventory,
    render_release,
    utc,
)
from plugin.devices.inventory import Inventory, next_inventory, without_driver
from plugin.driver.gpu_state import COMPLETED, Fabric, GpuState, MigDevice
from plugin.driver.snapshot import LostGpu, Snapshot
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus

INVENTORY = next_inventory(Inventory(), Snapshot(VERSION, gpus(2)), DictTree())
RELEASE = Release("2026-09-01T10:00:00Z", "b0071d", VERSION, remember_gpus(INVENTORY))


def test_what_is_written_is_read_again() -> None:
    assert parse_release(render_release(RELEASE).encode()) == RELEASE


STATE = GpuState(
    mig=(MigDevice("3g.20gb", 4, 4), MigDevice("1g.5gb")),
    fabric=Fabric(COMPLETED, "6ba7b812-9dad-11d1-80b4-00c04fd430c8", 7),
    links_active=12,
    ecc_enabled=True,
    uncorrected=3,
    rows_pending=False,
    rows_failed=False,
    pages_pending=None,
)


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(STATE, id="everything"),
        pytest.param(GpuState(), id="a gpu that tells nothing"),
        pytest.param(GpuState(mig=(), fabric=Fabric("in progress")), id="mig without a device, a fabric to come"),
    ],
)
def test_how_gpus_were_set_up_is_read_again(state: GpuState) -> None:
    release = replace(RELEASE, states={gpu(0).uuid: state}, libcuda=True)
    assert parse_release(render_release(release).encode()) == release


def test_a_file_of_an_older_release_knows_no_states() -> None:
    older = {
        key: value for key, value in json.loads(render_release(RELEASE)).items() if key not in {"states", "libcuda"}
    }
    assert parse_release(json.dumps(older).encode()) == RELEASE


def test_moments_are_utc() -> None:
    assert utc(0) == "1970-01-01T00:00:00Z"


def test_remembered_gpus_keep_name_place_and_numa_node_and_cannot_be_given_away() -> None:
    inventory = remembered_inventory(RELEASE, DictTree(numa={gpu(1).pci_address: 1}))
    assert [(each.gpu.uuid, each.numa_node) for each in inventory.devices] == [(gpu(0).uuid, None), (gpu(1).uuid, 1)]
    assert {each.unhealthy for each in inventory.devices} == {"released since 2026-09-01T10:00:00Z"}
    assert inventory.driver_version == VERSION


def test_a_gpu_is_remembered_as_bad_only_if_it_is_bad_itself() -> None:
    one_lost = next_inventory(INVENTORY, Snapshot(VERSION, (gpu(0),), (LostGpu(1, gpu(1).uuid, "lost"),)), DictTree())
    assert [each.unhealthy for each in remember_gpus(one_lost)] == ["", "lost"]
    no_driver = without_driver(INVENTORY, "driver not loaded")
    assert [each.unhealthy for each in remember_gpus(no_driver, "driver not loaded")] == ["", ""]


GOOD = json.loads(render_release(RELEASE))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "Expecting value", id="empty"),
        pytest.param(render_release(RELEASE).encode()[:-20], "Expecting", id="cut off"),
        pytest.param(b"\x00\x00", "Expecting value", id="zeros after a power cut"),
        pytest.param(b"[]", "schema", id="a list"),
        pytest.param(
            json.dumps({**GOOD, "schema": "grapnel.dev/released/v9"}).encode(), "schema", id="a later version"
        ),
        pytest.param(json.dumps({**GOOD, "gpus": {}}).encode(), "gpus must be a list", id="gpus as an object"),
        pytest.param(json.dumps({**GOOD, "gpus": ["GPU-1"]}).encode(), "a gpu must be an object", id="a gpu as a text"),
        pytest.param(json.dumps({**GOOD, "since": 1}).encode(), "since must be a text", id="a number as time"),
        pytest.param(json.dumps({**GOOD, "libcuda": 1}).encode(), "libcuda must be", id="a number as a truth"),
        pytest.param(json.dumps({**GOOD, "states": []}).encode(), "states must be", id="states as a list"),
        pytest.param(
            json.dumps({**GOOD, "states": {"GPU-1": {"mig": 1}}}).encode(), "mig must be", id="mig as a number"
        ),
        pytest.param(
            json.dumps({**GOOD, "states": {"GPU-1": {"linksActive": True}}}).encode(), "linksActive", id="true as links"
        ),
        pytest.param(b" " * 2**21, "larger than", id="too large"),
    ],
)
def test_a_text_that_is_not_understood_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_release(content)

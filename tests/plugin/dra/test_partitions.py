"""What is offered of GPUs in MIG mode: every place of every profile, and counters that allow what can be made."""

from __future__ import annotations

import itertools

from plugin.base.errors import MigError
from plugin.devices.inventory import Device, Inventory
from plugin.dra.devices import DraDevice, Features
from plugin.dra.partitions import find_partitions, is_partition, without_partitions
from plugin.driver.gpu_state import GpuState, MigDevice
from plugin.driver.mig_instances import GpuInstance
from tests.plugin.dra.cut_node import PROFILES, Cut, fits, make
from tests.plugin.fakes import gpu


def offered(*others: GpuInstance) -> dict[str, DraDevice]:
    driver = Cut()
    device = Device(driver.snapshot().gpus[0], "/dev/nvidia0")
    return {each.name: each for each in find_partitions(device, Inventory(), driver.read_gpus()[0], others, {})}


def test_every_place_of_every_profile_is_a_device_by_nvidias_names() -> None:
    found = offered()
    assert len(found) == sum(len(each.places) for each in PROFILES)
    name = f"{gpu(0).uuid.lower()}-mig-3g40gb-9-4"
    shown = found[name].to_json(Features())
    (draws,) = shown["consumesCounters"]
    assert draws["counterSet"] == f"{gpu(0).uuid.lower()}-counter-set"
    assert {key for key in draws["counters"] if key.startswith("memory-slice")} == {
        f"memory-slice-{index}" for index in range(4, 8)
    }
    assert draws["counters"]["memory"] == {"value": "39Gi"}
    assert shown["attributes"]["type"] == {"string": "mig"}
    assert shown["attributes"]["profile"] == {"string": "3g.40gb"}
    assert all(is_partition(each) and len(each) <= 63 for each in found)


def test_counters_allow_what_the_driver_can_make_and_nothing_else() -> None:
    found = offered()
    for one, other in itertools.permutations(found, 2):
        driver = Cut()
        make(driver, one)
        try:
            make(driver, other)
        except MigError:
            assert not fits([found[one], found[other]])
        else:
            assert fits([found[one], found[other]])


def test_a_driver_change_makes_nothing_again_that_was_made_for_claims() -> None:
    names = [name for name in offered() if name.endswith(("-9-4", "-20-1"))]
    mine = (MigDevice("3g.40gb", 4, 4), MigDevice("1c.1g.10gb+me", 1, 1))
    others = (MigDevice("3g.40gb", 0, 4), MigDevice("1g.10gb", 1, 1), MigDevice("1g.10gb"))
    states = {gpu(0).uuid: GpuState(mig=(*mine, *others)), gpu(1).uuid: GpuState(mig=mine)}
    found = without_partitions(states, names)
    assert found[gpu(0).uuid].mig == others
    assert found[gpu(1).uuid].mig == mine


def test_what_somebody_made_by_hand_takes_its_place_away() -> None:
    found = offered(GpuInstance(1, "3g.40gb", 4, 4, ((0, 3),), ("MIG-x",)))
    assert not any(name.endswith(("-9-4", "-0-0", "-19-6")) for name in found)
    assert any(name.endswith("-9-0") for name in found)
    three = next(each for name, each in found.items() if name.endswith("-9-0"))
    assert fits([three])


def test_a_gpu_that_is_ill_taints_all_its_partitions() -> None:
    driver = Cut()
    device = Device(driver.snapshot().gpus[0], "/dev/nvidia0", unhealthy="xid 79")
    found = find_partitions(device, Inventory(), driver.read_gpus()[0], (), {})
    assert found
    assert {each.unhealthy for each in found} == {"xid 79"}

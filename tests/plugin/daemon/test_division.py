"""Which GPUs claims are given, where the device plugin gives the others, whatever comes and goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from plugin.base.log import Logger
from plugin.daemon.optional.division import Division, find_claimed
from plugin.devices.inventory import Inventory, next_inventory
from plugin.driver.snapshot import Snapshot
from tests.plugin.fakes import VERSION, DictTree, gpu

if TYPE_CHECKING:
    import pytest

NO_MACHINE = Path("/nonexistent")


def seen(*numbers: int) -> Inventory:
    """Return GPUs by their number, which is that of their place; the driver counts those that there are."""
    found = tuple(replace(gpu(number), index=index) for index, number in enumerate(numbers))
    return next_inventory(Inventory(), Snapshot(VERSION, found), DictTree(set()))


def claimed(division: Division, *numbers: int) -> set[str]:
    return set(division.find(seen(*numbers)))


def uuids(*numbers: int) -> set[str]:
    return {gpu(number).uuid for number in numbers}


def test_gpus_are_named_by_index_or_uuid(tmp_path: Path) -> None:
    division = Division(tmp_path, ["3", gpu(1).uuid], Logger(), NO_MACHINE)
    assert claimed(division, 0, 1, 2, 3) == uuids(1, 3)
    assert not division.problems


def test_a_gpu_that_is_lost_over_a_restart_and_comes_back_moves_no_other_one(tmp_path: Path) -> None:
    assert claimed(Division(tmp_path, ["2", "3"], Logger(), NO_MACHINE), 0, 1, 2, 3) == uuids(2, 3)
    division = Division(tmp_path, ["2", "3"], Logger(), NO_MACHINE)
    assert claimed(division, 1, 2, 3) == uuids(2, 3)
    assert not division.problems
    assert claimed(division, 0, 1, 3) == uuids(2, 3)
    assert claimed(Division(tmp_path, ["2", "3"], Logger(), NO_MACHINE), 0, 1, 2, 3) == uuids(2, 3)


def test_a_gpu_that_is_added_between_others_moves_none(tmp_path: Path) -> None:
    assert claimed(Division(tmp_path, ["1"], Logger(), NO_MACHINE), 0, 2) == uuids(2)
    assert claimed(Division(tmp_path, ["1"], Logger(), NO_MACHINE), 0, 1, 2) == uuids(2)


def test_one_that_is_put_into_the_place_of_another_has_its_interface(tmp_path: Path) -> None:
    assert claimed(Division(tmp_path, ["1"], Logger(), NO_MACHINE), 0, 1) == uuids(1)
    other = replace(gpu(7), pci_address=gpu(1).pci_address)
    inventory = next_inventory(Inventory(), Snapshot(VERSION, (gpu(0), other)), DictTree(set()))
    assert Division(tmp_path, ["1"], Logger(), NO_MACHINE).find(inventory) == {other.uuid}


def test_a_uuid_is_that_gpu_alone(tmp_path: Path) -> None:
    division = Division(tmp_path, [gpu(1).uuid], Logger(), NO_MACHINE)
    assert claimed(division, 0, 1, 2) == uuids(1)
    other = replace(gpu(7), pci_address=gpu(1).pci_address)
    inventory = next_inventory(Inventory(), Snapshot(VERSION, (gpu(0), other, gpu(2))), DictTree(set()))
    assert division.find(inventory) == set()
    assert division.problems


def test_a_gpu_whose_device_node_is_still_to_come_is_counted(tmp_path: Path) -> None:
    found = Snapshot(VERSION, (gpu(0), gpu(1)))
    inventory = next_inventory(Inventory(), found, DictTree({"nvidia0"}))
    assert [each.gpu.uuid for each in inventory.devices] == [gpu(1).uuid]
    assert Division(tmp_path, ["1"], Logger(), NO_MACHINE).find(inventory) == uuids(1)


def test_another_list_is_counted_anew(tmp_path: Path) -> None:
    assert claimed(Division(tmp_path, ["2"], Logger(), NO_MACHINE), 0, 1, 2) == uuids(2)
    assert claimed(Division(tmp_path, ["1"], Logger(), NO_MACHINE), 1, 2) == uuids(2)


def machine(folder: Path, uuid: str) -> Path:
    """Return a tree of sysfs that says which machine it is."""
    dmi = folder / uuid / "class/dmi/id"
    dmi.mkdir(parents=True, exist_ok=True)
    (dmi / "product_uuid").write_text(f"{uuid}\n")
    return folder / uuid


def test_what_is_of_another_machine_is_counted_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Claims were given GPUs of the machine that the disk came from, so none, and nobody said so."""
    there, here = machine(tmp_path, "a"), machine(tmp_path, "b")
    assert set(Division(tmp_path, ["0"], Logger(), there).find(seen(0, 1))) == uuids(0)
    assert not caplog.messages
    assert find_claimed(tmp_path, ("0",), seen(4, 5), here) == uuids(4)
    division = Division(tmp_path, ["0"], Logger(), here)
    assert claimed(division) == uuids(0), "nobody knows yet which GPUs there are"
    assert claimed(division, 4, 5) == uuids(4)
    assert caplog.messages == [f"{tmp_path / 'division.json'} is of another machine"]
    assert set(Division(tmp_path, ["0"], Logger(), here).find(seen(5))) == uuids(4), "they are remembered from then on"


def test_gpus_that_move_to_another_machine_keep_their_interface(tmp_path: Path) -> None:
    there, here = machine(tmp_path, "a"), machine(tmp_path, "b")
    assert set(Division(tmp_path, ["1"], Logger(), there).find(seen(0, 1))) == uuids(1)
    assert set(Division(tmp_path, ["1"], Logger(), here).find(seen(1, 3))) == uuids(1)
    assert set(Division(tmp_path, ["1"], Logger(), here).find(seen(3))) == uuids(1)


def test_a_machine_that_does_not_say_which_it_is_tells_of_claims_without_gpus(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert claimed(Division(tmp_path, ["0"], Logger(), NO_MACHINE), 0, 1) == uuids(0)
    division = Division(tmp_path, ["0"], Logger(), NO_MACHINE)
    assert claimed(division, 4, 5) == uuids(0)
    assert caplog.messages == ["no GPU that claims names is there"]
    assert not division.problems, "a GPU that is lost fails no change"


def test_a_list_that_divides_nothing_is_told(tmp_path: Path) -> None:
    for declared, words in (
        (["0", "1"], "leaves none to the device plugin"),
        (["5"], "claims names 5, and this node has no such GPU; claims names no GPU of this node"),
        (["1", "5"], "claims names 5, and this node has no such GPU"),
    ):
        division = Division(tmp_path, declared, Logger(), NO_MACHINE)
        assert not division.problems  # nobody knows yet
        claimed(division, 0, 1)
        assert "; ".join(division.problems).endswith(words)


def test_a_damaged_file_costs_the_order_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "division.json").write_text("{")
    assert claimed(Division(tmp_path, ["1"], Logger(), NO_MACHINE), 0, 1) == uuids(1)
    assert claimed(Division(tmp_path, ["1"], Logger(), NO_MACHINE), 1) == uuids(1)


def test_without_room_for_the_file_the_daemon_goes_on_by_what_it_knows(tmp_path: Path) -> None:
    (tmp_path / "division.json").mkdir()
    division = Division(tmp_path, ["1"], Logger(), NO_MACHINE)
    assert claimed(division, 0, 1) == uuids(1)
    assert claimed(division, 1) == uuids(1)


@settings(deadline=None)
@given(st.sets(st.integers(0, 5), min_size=1), st.lists(st.sets(st.integers(0, 5)), max_size=6), st.data())
def test_no_gpu_changes_sides_while_the_list_stays(
    tmp_path_factory: object, first: set[int], later: list[set[int]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("division")  # type: ignore[attr-defined] # pytest's
    declared = [str(number) for number in data.draw(st.sets(st.integers(0, 5), min_size=1))]
    sides: dict[str, bool] = {}
    for there in (first, *later):
        found = Division(folder, declared, Logger(), NO_MACHINE).find(seen(*sorted(there)))
        for uuid in uuids(*there):
            assert sides.setdefault(uuid, uuid in found) is (uuid in found)

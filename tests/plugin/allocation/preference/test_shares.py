"""Which units of shared devices are preferred."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.base.errors import DeviceNotReady, InvalidRequest
from plugin.devices.allocation.preference.choice import Preference, Rule, prefer
from plugin.devices.allocation.table import AllocationTable, allocate, prepare_tables
from plugin.devices.inventory import Inventory, next_inventory
from plugin.devices.resources import OfferRules, plan_offers
from plugin.devices.sharing import device_of
from plugin.driver.snapshot import Snapshot
from tests.plugin.devices.test_resources import EVERY, GIB, GPU, memory, sliced
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus


def table(rules: OfferRules, count: int = 3) -> AllocationTable:
    inventory = next_inventory(Inventory(), Snapshot(VERSION, gpus(count)), DictTree())
    (only,) = prepare_tables(plan_offers(inventory, rules), inventory).values()
    return only


def share(index: int, number: int) -> str:
    return f"{gpu(index).uuid}::{number}"


def unit(index: int, number: int) -> str:
    return f"{gpu(index).uuid}/{number}"


SPREAD = table(OfferRules(EVERY, shares=(sliced(replicas=4),)))
PACKED = table(OfferRules(EVERY, shares=(sliced(replicas=4),), is_packed=True))
MEMORY = table(OfferRules(EVERY, shares=(memory(20 * GIB),)))  # four units a GPU


def ask(one: AllocationTable, taken: set[str], size: int, required: tuple[str, ...] = ()) -> Preference:
    return prefer(one, [each for each in one.entries if each not in taken], required, size)


def test_shares_are_spread_over_the_gpus_that_the_fewest_have() -> None:
    got = ask(SPREAD, {share(0, 0), share(0, 1), share(2, 3)}, 3)
    assert got.chosen == (share(1, 0), share(2, 0), share(1, 1))
    assert got.rule is Rule.DISTRIBUTED


TWO = table(OfferRules(EVERY, shares=(sliced(replicas=2),)), count=2)


@pytest.mark.parametrize(
    ("one", "taken", "required", "chosen"),
    [
        pytest.param(TWO, {share(1, 0)}, (), (share(0, 0), share(1, 1)), id="two GPUs of two shares, one taken"),
        pytest.param(
            SPREAD,
            {share(1, 0), share(2, 0), share(2, 1)},
            (share(0, 0),),
            (share(0, 0), share(1, 1)),
            id="a required one counts",
        ),
    ],
)
def test_shares_of_a_container_are_not_stacked_while_another_gpu_has_as_few(
    one: AllocationTable, taken: set[str], required: tuple[str, ...], chosen: tuple[str, ...]
) -> None:
    assert ask(one, taken, 2, required).chosen == chosen


def test_packed_shares_fill_the_gpu_that_the_most_have() -> None:
    got = ask(PACKED, {share(1, 0), share(1, 1)}, 3)
    assert got.chosen == (share(1, 2), share(1, 3), share(0, 0))
    assert got.rule is Rule.PACKED


def test_units_are_those_of_the_gpu_with_the_least_free_that_has_enough() -> None:
    taken = {unit(0, 0), unit(1, 0), unit(1, 1), unit(1, 2)}
    assert ask(MEMORY, taken, 1).chosen == (unit(1, 3),)
    assert ask(MEMORY, taken, 2).chosen == (unit(0, 1), unit(0, 2))
    assert ask(MEMORY, taken, 4).chosen == (unit(2, 0), unit(2, 1), unit(2, 2), unit(2, 3))


def test_units_that_are_required_bind_a_container_to_their_gpu() -> None:
    assert set(ask(MEMORY, set(), 3, (unit(2, 1),)).chosen) == {unit(2, 1), unit(2, 0), unit(2, 2)}


def test_units_that_no_gpu_has_are_scattered_and_then_refused() -> None:
    taken = {unit(index, number) for index in range(3) for number in range(2)}
    got = ask(MEMORY, taken, 3)
    assert (len(got.chosen), got.rule) == (3, Rule.SCATTERED)
    with pytest.raises(DeviceNotReady, match="no GPU of this node has 3 units of "):
        allocate(MEMORY, got.chosen)


def test_a_container_with_several_shares_of_a_gpu_gets_it_once() -> None:
    got = allocate(SPREAD, [share(1, 3), share(1, 0)])
    assert got.device_ids == (share(1, 0), share(1, 3))
    assert got.envs["NVIDIA_VISIBLE_DEVICES"] == gpu(1).uuid
    assert got.annotations == {"grapnel.dev/allocation": gpu(1).uuid}
    assert [node.container_path for node in got.nodes if node.container_path[-1].isdecimal()] == ["/dev/nvidia1"]


def test_a_container_with_units_is_told_how_much_memory_they_are() -> None:
    got = allocate(MEMORY, [unit(2, 0), unit(2, 3)])
    assert got.annotations["grapnel.dev/memory"] == f"{gpu(2).uuid}={40 * GIB}"
    assert {name: value for name, value in got.envs.items() if name.startswith("ALIYUN")} == {
        "ALIYUN_COM_GPU_MEM_IDX": "2",
        "ALIYUN_COM_GPU_MEM_DEV": "4",
        "ALIYUN_COM_GPU_MEM_CONTAINER": "2",
    }


def test_several_shares_are_refused_where_the_file_says_so() -> None:
    strict = table(OfferRules(EVERY, shares=(sliced(refuses_several=True),)))
    assert allocate(strict, [share(0, 1)]).device_ids == (share(0, 1),)
    with pytest.raises(InvalidRequest, match=f"asks for 2 of {GPU}: it may have one"):
        allocate(strict, [share(0, 1), share(1, 1)])


@given(st.sampled_from([SPREAD, PACKED, MEMORY]), st.data())
def test_what_is_preferred_is_free_and_holds_what_is_required(one: AllocationTable, data: st.DataObject) -> None:
    free = data.draw(st.lists(st.sampled_from(list(one.entries)), min_size=1, unique=True))
    size = data.draw(st.integers(1, len(free)))
    required = data.draw(st.lists(st.sampled_from(free), max_size=size, unique=True))
    got = prefer(one, free, required, size)
    assert len(set(got.chosen)) == size
    assert set(required) <= set(got.chosen) <= set(free)
    assert prefer(one, free[::-1], required[::-1], size).chosen == got.chosen


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=40))
def test_units_that_are_given_away_lie_on_one_gpu_and_are_nobody_elses(requests: list[tuple[int, bool]]) -> None:
    pods: list[tuple[str, ...]] = []
    for size, leaves in requests:
        taken = {one for units in pods for one in units}
        if leaves and pods:
            pods.pop(0)
        free = [one for one in MEMORY.entries if one not in taken]
        most = max((sum(device_of(one) == gpu(index).uuid for one in free) for index in range(3)), default=0)
        if size > len(free):
            continue
        chosen = prefer(MEMORY, free, (), size).chosen
        if size > most:
            with pytest.raises(DeviceNotReady):
                allocate(MEMORY, chosen)
            continue
        assert len({device_of(one) for one in allocate(MEMORY, chosen).device_ids}) == 1
        pods.append(chosen)

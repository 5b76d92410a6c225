from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.base.errors import InvalidRequest
from plugin.devices.allocation.preference.choice import Rule, prefer
from plugin.devices.allocation.preference.search import Limits
from plugin.devices.inventory import Inventory, next_inventory
from plugin.driver.snapshot import LostGpu, Snapshot
from plugin.driver.topology.facts import LinkFacts
from tests.plugin.allocation.preference.machines import (
    DGX1_VOLTA,
    NODE,
    PIX,
    SYS,
    facts_of,
    hgx,
    ids,
    indices_of,
    links_of,
    pcie_tree,
    table_of,
)
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus, whole_table

TABLE = table_of(8, LinkFacts())
IDS = list(TABLE.entries)


@pytest.mark.parametrize(
    ("available", "required", "size", "expected"),
    [
        pytest.param([5, 3, 1], [], 2, [1, 3], id="the lowest index first"),
        pytest.param([0, 1, 7], [7], 2, [7, 0], id="what must be included comes first"),
        pytest.param([4, 2], [2, 4], 2, [2, 4], id="everything required"),
        pytest.param([4, 2], [], 0, [], id="none"),
    ],
)
def test_choice_without_any_links(available: list[int], required: list[int], size: int, expected: list[int]) -> None:
    chosen = prefer(TABLE, ids(*available), ids(*required), size).chosen
    assert chosen == tuple(ids(*expected))


@pytest.mark.parametrize(
    ("available", "required", "size"),
    [
        pytest.param([0], [], 2, id="more than there are"),
        pytest.param([0, 1], [0, 1], 1, id="less than required"),
        pytest.param([0], [1], 1, id="required but not available"),
        pytest.param([0], [], -1, id="a negative size"),
    ],
)
def test_what_cannot_be_chosen_is_refused(available: list[int], required: list[int], size: int) -> None:
    with pytest.raises(InvalidRequest):
        prefer(TABLE, ids(*available), ids(*required), size)


def test_a_device_that_has_gone_is_chosen_last_and_fails_nobody() -> None:
    assert prefer(TABLE, ["GPU-gone", IDS[6]], [], 1).chosen == (IDS[6],)
    assert prefer(TABLE, ["GPU-gone", IDS[6]], [], 2).chosen == (IDS[6], "GPU-gone")


def test_a_device_that_is_not_healthy_any_more_is_chosen_last() -> None:
    before = next_inventory(Inventory(), Snapshot(VERSION, gpus(3)), DictTree())
    lost = (LostGpu(0, gpu(0).uuid, "gpu is lost"),)
    table = whole_table(next_inventory(before, Snapshot(VERSION, (gpu(1), gpu(2)), lost), DictTree()))
    assert indices_of(prefer(table, ids(0, 1, 2), [], 2).chosen) == [1, 2]
    assert indices_of(prefer(table, ids(0, 1), [], 2).chosen) == [0, 1]


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        pytest.param(range(8), 0, id="all are alike: the first"),
        pytest.param([1, 2, 3, 4, 5, 6, 7], 1, id="the other one of its switch has gone"),
        pytest.param([0, 1, 2, 3, 5, 6, 7], 5, id="wherever that is"),
        pytest.param([0, 1, 2, 3, 6, 7], 6, id="a pair rather than a half of four"),
    ],
)
@pytest.mark.parametrize("facts", [hgx(), pcie_tree(8)], ids=["NVSwitch", "PCIe alone"])
def test_a_single_gpu_keeps_linked_groups_whole(free: range | list[int], expected: int, facts: LinkFacts) -> None:
    preferred = prefer(table_of(8, facts), ids(*free), [], 1)
    assert (indices_of(preferred.chosen), preferred.rule) == ([expected], Rule.LEAST_LINKED)


def test_a_single_gpu_is_one_without_nvlinks_where_there_is_one() -> None:
    facts = facts_of(5, lambda _a, _b: NODE, {(0, 1): 4, (3, 4): 4})
    assert indices_of(prefer(table_of(5, facts), ids(0, 1, 2, 3, 4), [], 1).chosen) == [2]


def test_three_on_one_switch_are_better_than_two_with_nvlinks_and_a_third() -> None:
    facts = facts_of(5, lambda a, b: PIX if min(a, b) >= 2 else SYS, {(0, 1): 2})
    assert indices_of(prefer(table_of(5, facts), ids(0, 1, 2, 3, 4), [], 3).chosen) == [2, 3, 4]


def test_links_through_switches_count_as_links() -> None:
    switched = facts_of(4, lambda a, b: PIX if a // 2 == b // 2 else SYS)
    mixed = tuple(links_of(index, {}, 12 if index in {1, 3} else 0) for index in range(4))
    table = table_of(4, LinkFacts(mixed, switched.levels))
    assert indices_of(prefer(table, ids(0, 1, 2, 3), [], 2).chosen) == [1, 3]


def test_a_gpu_whose_links_are_not_known_spoils_nothing_for_the_others() -> None:
    known = LinkFacts(
        tuple(links for links in DGX1_VOLTA.gpus if links.uuid != gpu(7).uuid),
        tuple(level for level in DGX1_VOLTA.levels if gpu(7).uuid not in level),
    )
    table, free = table_of(8, known), ids(0, 1, 2, 3, 4, 5, 6, 7)
    assert indices_of(prefer(table, free, [], 4).chosen) == [0, 1, 2, 3]
    assert indices_of(prefer(table, free, ids(7), 2).chosen) == [4, 7]  # the links that GPU 4 has to it


def test_a_device_that_the_topology_does_not_know_has_no_links() -> None:
    seen = next_inventory(Inventory(), Snapshot(VERSION, gpus(4), links=pcie_tree(4)), DictTree())
    without = next_inventory(seen, Snapshot(VERSION, gpus(4)[1:], links=pcie_tree(4)), DictTree())
    table = whole_table(without)
    assert indices_of(prefer(table, ids(0, 1, 2, 3), ids(0), 2).chosen) == [0, 1]
    assert indices_of(prefer(table, ids(0, 1, 2, 3), ids(0, 2), 3).chosen) == [0, 2, 3]


@given(st.permutations(range(8)), st.integers(1, 8), st.integers(0, 8), st.sampled_from([TABLE, table_of(8, hgx())]))
def test_the_answer_depends_on_the_question_alone(shuffled: list[int], have: int, size: int, table: object) -> None:
    assert isinstance(table, type(TABLE))
    available = ids(*shuffled[:have])
    if size > have:
        return
    required = available[: size // 2]
    chosen = prefer(table, available, required, size).chosen
    assert chosen == prefer(table, sorted(available), required[::-1], size).chosen
    assert len(set(chosen)) == size
    assert set(required) <= set(chosen) <= set(available)


def test_a_preference_says_what_was_looked_at_and_why() -> None:
    preferred = prefer(table_of(8, DGX1_VOLTA), ids(*range(8)), [], 4)
    assert preferred.rule is Rule.BEST_GROUP
    assert [(indices_of(one.devices), one.score) for one in preferred.candidates] == [
        ([0, 1, 2, 3], 1120),
        ([4, 5, 6, 7], 1120),
    ]
    assert preferred.describe() == (
        "the best way to divide the free devices, and the best of its groups; score 1120, "
        f"{preferred.considered} looked at"
    )
    assert preferred.considered >= 35  # of eight, so many halves with the first GPU


@pytest.mark.parametrize(
    ("available", "required", "size"),
    [
        pytest.param([1, 2], [], 2, id="all that is free"),
        pytest.param([1, 2, 3], [3, 1], 2, id="all that is required"),
    ],
)
def test_without_a_choice_nothing_is_searched(available: list[int], required: list[int], size: int) -> None:
    preferred = prefer(table_of(8, hgx()), ids(*available), ids(*required), size)
    assert (preferred.rule, preferred.considered) == (Rule.NO_CHOICE, 0)
    assert preferred.describe() == "there was nothing to choose"


def test_a_preference_that_was_cut_off_says_so() -> None:
    table = table_of(16, facts_of(16, lambda a, b: (a * b) % 5 * 10 + 10))
    preferred = prefer(table, ids(*range(16)), ids(3), 5, Limits(exact_steps=100))
    assert preferred.cut_off == "more than 100 steps"
    assert preferred.describe().endswith("; cut off (more than 100 steps), there may be a better one")
    assert gpu(3).uuid == preferred.chosen[0]
    assert len(set(preferred.chosen)) == 5

from __future__ import annotations

import pytest

from plugin.devices.allocation.answer import NamedDevice
from plugin.devices.allocation.preference.choice import Rule, prefer
from plugin.devices.allocation.table import AllocationTable, Entry
from plugin.devices.resources import Placement

IDS = ("a", "b", "c", "d")
TABLE = AllocationTable(
    (), {one: Entry(NamedDevice(one, one, ())) for one in IDS}, resource="example.com/card", placement=Placement.NEAR
)


@pytest.mark.parametrize(
    ("required", "near", "size", "chosen", "rule"),
    [
        pytest.param((), (), 1, ("a",), Rule.FIRST, id="the first where nothing is near"),
        pytest.param((), ("c", "d"), 1, ("c",), Rule.NEAR, id="the first that is near"),
        pytest.param((), ("d",), 2, ("d", "a"), Rule.NEAR, id="others where too few are near"),
        pytest.param(("b",), ("c",), 2, ("b", "c"), Rule.NEAR, id="what is required comes first"),
        pytest.param(("b",), ("b",), 2, ("b", "a"), Rule.FIRST, id="what is required was not chosen"),
        pytest.param((), ("x",), 1, ("a",), Rule.FIRST, id="what is near and not free does not count"),
    ],
)
def test_near_units_are_preferred(
    required: tuple[str, ...], near: tuple[str, ...], size: int, chosen: tuple[str, ...], rule: Rule
) -> None:
    found = prefer(TABLE, IDS, required, size, near=near)
    assert (found.chosen, found.rule) == (chosen, rule)
    assert prefer(TABLE, IDS[::-1], required, size, near=near).chosen == chosen


def test_an_unhealthy_unit_is_not_near_enough() -> None:
    entries = {**TABLE.entries, "c": Entry(NamedDevice("c", "c", ()), "link is down")}
    table = AllocationTable((), entries, placement=Placement.NEAR)
    assert prefer(table, IDS, (), 1, near=("c", "d")).chosen == ("d",)

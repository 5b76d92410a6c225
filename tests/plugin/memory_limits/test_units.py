"""Ids of units of memory."""

from __future__ import annotations

import pytest

from plugin.sharing.memory_limits.units import device_of_unit, memory_of_units
from tests.plugin.fakes import gpu

FIRST, SECOND = gpu(0).uuid, gpu(1).uuid
GIB = 1 << 30


@pytest.mark.parametrize(
    ("device_id", "uuid"),
    [
        pytest.param(f"{FIRST}/0", FIRST, id="the first unit"),
        pytest.param(f"{FIRST}/79", FIRST, id="a later unit"),
        pytest.param(FIRST, None, id="a whole gpu"),
        pytest.param(f"{FIRST}::3", None, id="a share"),
        pytest.param(f"MIG-{FIRST[4:]}", None, id="a mig device"),
        pytest.param(f"MIG-{FIRST[4:]}/5", f"MIG-{FIRST[4:]}", id="a unit of a mig device"),
        pytest.param(f"MIG-{FIRST}/5/0", None, id="a mig device as older drivers name it"),
        pytest.param(f"{FIRST}/", None, id="no number"),
        pytest.param(f"{FIRST}/1/2", None, id="two numbers"),
        pytest.param(f"{FIRST}/\u0661", None, id="a digit of another script"),
        pytest.param("somebody/1", None, id="no gpu"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_a_unit_is_known_by_its_id(device_id: str, uuid: str | None) -> None:
    assert device_of_unit(device_id) == uuid


def test_units_are_added_up_for_each_gpu() -> None:
    ids = [f"{FIRST}/0", f"{SECOND}/7", f"{FIRST}/1", f"{FIRST}::1"]
    assert memory_of_units(ids, {FIRST: GIB, SECOND: 2 * GIB}.get) == {FIRST: 2 * GIB, SECOND: 2 * GIB}
    assert memory_of_units(ids, {SECOND: GIB}.get) == {SECOND: GIB}

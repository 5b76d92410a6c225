from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.allocation import prepare_table
from plugin.errors import InvalidRequest
from plugin.inventory import Inventory, next_inventory
from plugin.preference import prefer
from plugin.snapshot import Snapshot
from tests.plugin.fakes import VERSION, DictTree, gpus

TABLE = prepare_table(next_inventory(Inventory(), Snapshot(VERSION, gpus(8)), DictTree()))
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
def test_choice(available: list[int], required: list[int], size: int, expected: list[int]) -> None:
    chosen = prefer(TABLE, [IDS[i] for i in available], [IDS[i] for i in required], size)
    assert chosen == tuple(IDS[i] for i in expected)


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
        prefer(TABLE, [IDS[i] for i in available], [IDS[i] for i in required], size)


def test_a_device_that_has_gone_is_chosen_last_and_fails_nobody() -> None:
    assert prefer(TABLE, ["GPU-gone", IDS[6]], [], 1) == (IDS[6],)


@given(st.permutations(IDS), st.integers(0, 8), st.integers(0, 8))
def test_the_answer_depends_on_the_question_alone(shuffled: list[str], have: int, size: int) -> None:
    available = shuffled[:have]
    if size > have:
        return
    chosen = prefer(TABLE, available, available[: size // 2], size)
    assert chosen == prefer(TABLE, sorted(available), available[: size // 2][::-1], size)
    assert len(set(chosen)) == size
    assert set(available[: size // 2]) <= set(chosen) <= set(available)

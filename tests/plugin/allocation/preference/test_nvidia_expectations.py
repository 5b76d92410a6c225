"""What go-gpuallocator's own tests expect of its best-effort policy, on its own machines.

Sizes from 2 up: for a single GPU that policy takes the first one, ours keeps linked groups whole (`test_choice`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import InvalidRequest
from plugin.devices.allocation.preference.choice import prefer
from tests.plugin.allocation.preference.machines import DGX1_PASCAL, DGX1_VOLTA, FOUR_RTX8000, ids, indices_of, table_of

if TYPE_CHECKING:
    from plugin.driver.topology.facts import LinkFacts

EVERYTHING = [0, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("available", "required", "size", "expected"),
    [
        pytest.param([0, 2, 4, 5], [], 2, [4, 5], id="single NVLink, the same switch"),
        pytest.param([0, 4, 5, 6], [], 2, [5, 6], id="single NVLink, the same socket"),
        pytest.param([0, 3, 1], [], 2, [0, 3], id="double NVLink, the same socket"),
        pytest.param([0, 1, 4], [], 2, [0, 4], id="double NVLink across sockets"),
        pytest.param(EVERYTHING, [4], 1, [4], id="one, which is required"),
        pytest.param(EVERYTHING, [4], 2, [4, 7], id="two with a required one"),
        pytest.param(EVERYTHING, [4], 4, [4, 5, 6, 7], id="four with a required one"),
        pytest.param(EVERYTHING, [0, 2, 4, 6], 4, [0, 2, 4, 6], id="all of them required"),
    ],
)
def test_one_request_on_a_dgx1_with_volta(
    available: list[int], required: list[int], size: int, expected: list[int]
) -> None:
    chosen = prefer(table_of(8, DGX1_VOLTA), ids(*available), ids(*required), size).chosen
    assert indices_of(chosen) == expected


@pytest.mark.parametrize(
    ("available", "required", "size"),
    [
        pytest.param([1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3], 4, id="a required one is not available"),
        pytest.param(EVERYTHING, [1, 2, 3, 4, 5, 6], 4, id="more required than asked for"),
        pytest.param([1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6], 1, id="more required than available"),
    ],
)
def test_what_that_policy_answers_with_nothing_is_refused(available: list[int], required: list[int], size: int) -> None:
    with pytest.raises(InvalidRequest):
        prefer(table_of(8, DGX1_VOLTA), ids(*available), ids(*required), size)


@pytest.mark.parametrize(
    ("count", "facts", "size", "expected"),
    [
        pytest.param(4, FOUR_RTX8000, 2, [[0, 3], [1, 2]], id="two of four RTX 8000"),
        pytest.param(4, FOUR_RTX8000, 4, [[0, 1, 2, 3]], id="four of four RTX 8000"),
        pytest.param(8, DGX1_PASCAL, 2, [[0, 2], [1, 3], [4, 6], [5, 7]], id="two of a DGX-1 with Pascal"),
        pytest.param(8, DGX1_PASCAL, 4, [[0, 1, 2, 3], [4, 5, 6, 7]], id="four of a DGX-1 with Pascal"),
        pytest.param(8, DGX1_VOLTA, 2, [[0, 3], [1, 2], [4, 7], [5, 6]], id="two of a DGX-1 with Volta"),
        pytest.param(8, DGX1_VOLTA, 4, [[0, 1, 2, 3], [4, 5, 6, 7]], id="four of a DGX-1 with Volta"),
        pytest.param(8, DGX1_VOLTA, 8, [EVERYTHING], id="all of a DGX-1 with Volta"),
    ],
)
def test_requests_one_after_another(count: int, facts: LinkFacts, size: int, expected: list[list[int]]) -> None:
    table, free, given = table_of(count, facts), set(range(count)), []
    while len(free) >= size:
        given.append(indices_of(prefer(table, ids(*free), [], size).chosen))
        free -= set(given[-1])
    assert given == expected

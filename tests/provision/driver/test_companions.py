"""What a node's hardware needs beside the driver."""

from __future__ import annotations

import pytest

from provision.declaration.spec.model import Companion
from provision.planning.driver.companions import needed_companions

ALL = tuple(Companion)
CASES = {
    "no GPU, nothing": ((False, 4, True, ALL), ()),
    "a GPU": ((True, 0, False, ALL), (Companion.PERSISTENCED,)),
    "InfiniBand": ((True, 0, True, ALL), (Companion.PERSISTENCED, Companion.PEERMEM)),
    "NVSwitches": ((True, 4, False, ALL), (Companion.PERSISTENCED, Companion.FABRICMANAGER, Companion.NSCQ)),
    "what only helps is left out where there is none": ((True, 0, True, ()), ()),
    "what GPUs do not work without is wanted all the same": ((True, 4, False, ()), (Companion.FABRICMANAGER,)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_companions_follow_the_hardware(
    case: tuple[tuple[bool, int, bool, tuple[Companion, ...]], tuple[Companion, ...]],
) -> None:
    (has_gpus, nvswitches, has_infiniband, offered), expected = case

    found = needed_companions(has_gpus=has_gpus, nvswitches=nvswitches, has_infiniband=has_infiniband, offered=offered)

    assert tuple(each.companion for each in found) == expected
    assert all(each.reason for each in found)

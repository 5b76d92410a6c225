"""What a comparison of the node becomes on the Node object."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugin.drift.model import Difference, DriftKind
from plugin.drift.result import Result
from plugin.publication.node_object.conditions import AS_DECLARED, MAX_MESSAGE, drift_condition

CONTRACT = Path(__file__).parents[3] / "docs/contracts/node-state/README.md"
HOLD = Difference(DriftKind.HOLD, "libcuda1", "not held", "held", None, "grapnel apply n1")
NODE = Difference(DriftKind.DEVICE_NODE, "/dev/nvidia0", "absent", "there", None, "nvidia-modprobe -c 0")


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        pytest.param(
            Result(1),
            ("True", "AsDeclared", "nothing differs from what grapnel apply brought about"),
            id="nothing differs",
        ),
        pytest.param(
            Result(1, (HOLD,)),
            (
                "False",
                "Drifted",
                "1 difference, to be mended by `grapnel apply n1`: hold libcuda1 is not held, declared held",
            ),
            id="a hold was taken off",
        ),
        pytest.param(
            Result(1, (HOLD, HOLD, NODE)),
            (
                "False",
                "Drifted",
                (
                    "3 differences, to be mended by `grapnel apply n1`; `nvidia-modprobe -c 0`: "
                    "hold libcuda1 is not held, declared held; hold libcuda1 is not held, declared held; "
                    "device-node /dev/nvidia0 is absent, declared there"
                ),
            ),
            id="each way of mending is named once",
        ),
        pytest.param(
            Result(1, reason="a driver change has begun"),
            ("Unknown", "NotCompared", "a driver change has begun"),
            id="it was not compared",
        ),
    ],
)
def test_a_result_becomes_a_condition(result: Result, expected: tuple[str, str, str]) -> None:
    found = drift_condition(result)

    assert (found.kind, found.status, found.reason, found.message) == (AS_DECLARED, *expected)
    assert f"`{found.reason}`" in CONTRACT.read_text()


def test_many_differences_make_no_huge_message() -> None:
    assert len(drift_condition(Result(1, (HOLD,) * 500)).message) == MAX_MESSAGE

"""Tables as a person sees them, on narrow and wide terminals."""

from __future__ import annotations

import pytest

from plugin.cli.explain import render_overview
from plugin.cli.table import fit_table, short_id

UUID = "GPU-7d00e010-ec78-5e6f-8228-fa5ab15a3109"
FOUND = {
    "allocations": [
        {
            "time": "2026-11-21T20:01:40.123Z",
            "devices": [UUID],
            "refused": "",
            "followed": True,
            "pods": [{"namespace": "default", "pod": "train-0", "container": "main"}],
            "preference": {"candidates": [{"devices": [UUID], "score": 400}]},
        },
        {
            "time": "2026-11-21T20:01:41.000Z",
            "devices": [UUID],
            "refused": f"device '{UUID}' is held by 'default/train-0 as nvidia.com/gpu'",
            "followed": None,
            "pods": [],
            "preference": None,
        },
    ],
    "leftOff": 3,
    "indices": {UUID: 0},
    "devices": [
        {
            "id": UUID,
            "index": 0,
            "state": "unhealthy",
            "since": "2026-11-21T20:02:00.000Z",
            "reason": "xid 79: GPU has fallen off the bus; needs a reboot of the node",
            "pods": [{"namespace": "default", "pod": "train-0"}, {"namespace": "default", "pod": "train-0"}],
        }
    ],
    "node": [],
}


def test_eighty_columns_are_enough() -> None:
    assert render_overview(FOUND, 80) == [
        "TIME                  POD              CONTAINER  GPUS  CHOICE",
        "2026-11-21 20:01:40Z  default/train-0  main       0     as preferred, score 400",
        "2026-11-21 20:01:41Z  -                -          0     refused: device",
        " " * 56 + f"'{UUID}'",
        " " * 56 + "is held by",
        " " * 56 + "'default/train-0 as",
        " " * 56 + "nvidia.com/gpu'",
        "3 older ones: --last 5",
        "",
        "GPU  ID            STATE      SINCE                 PODS",
        "0    GPU-7d00e010  unhealthy  2026-11-21 20:02:00Z  default/train-0",
        "     xid 79: GPU has fallen off the bus; needs a reboot of the node",
    ]


def test_a_wide_terminal_has_room_for_whole_ids() -> None:
    lines = render_overview(FOUND, 120)
    assert f"0    {UUID}  unhealthy  2026-11-21 20:02:00Z  default/train-0" in lines


def test_nothing_is_said_in_words() -> None:
    nothing = {"allocations": [], "leftOff": 0, "indices": {}, "devices": [], "node": []}
    assert render_overview(nothing, 80) == ["no allocation is recorded", "", "no device is known"]


@pytest.mark.parametrize(
    ("device", "short"),
    [
        pytest.param(UUID, "GPU-7d00e010", id="whole"),
        pytest.param(f"{UUID}::3", "GPU-7d00e010::3", id="a share"),
        pytest.param("MIG-7d00e010-ec78", "MIG-7d00e010", id="a slice"),
        pytest.param("0", "0", id="short already"),
    ],
)
def test_short_ids_still_tell_devices_apart(device: str, short: str) -> None:
    assert short_id(device) == short


def test_a_last_cell_goes_on_below_itself_and_a_note_below_its_row() -> None:
    rows = [(("A", "B"), ""), (("x", "one two three four five six"), "a note")]
    assert fit_table(rows, 20) == ["A  B", "x  one two three four", "   five six", "   a note"]

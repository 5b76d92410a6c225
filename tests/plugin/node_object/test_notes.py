from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.devices.health.model import Class, FindingChange, Transition
from plugin.publication.node_object.notes import REASONS, notes_of
from tests.plugin.node_object.states import UTC, UUIDS, XID_48, observed, transition, without_answer

if TYPE_CHECKING:
    from plugin.devices.observer import Observation
    from plugin.publication.node_object.model import Note

FIRST = UUIDS[0]
RELEASED = "released since 2026-11-21T09:00:00Z"


def notes(before: Observation, now: Observation, was_released: str = "", released: str = "") -> list[Note]:
    return list(notes_of(before, was_released, now, released))


def words(found: list[Note]) -> list[tuple[str, str, str]]:
    return [("Warning" if note.is_warning else "Normal", note.reason, note.message) for note in found]


@pytest.mark.parametrize(
    ("happened", "expected"),
    [
        pytest.param(
            transition(),
            [("Warning", "GPUXidError", f"{FIRST}: xid 48: double-bit memory error; needs a reset of the GPU")],
            id="an XID that condemns",
        ),
        pytest.param(
            transition(cause="xid 31", kind=Class.APPLICATION, reason="MMU fault"),
            [("Normal", "GPUXidError", f"{FIRST}: xid 31: MMU fault; needs nothing: the application's own error")],
            id="an XID of an application",
        ),
        pytest.param(
            transition(cause="rows failed", kind=Class.REPLACE, reason="a memory row could not be remapped"),
            [
                (
                    "Warning",
                    "GPURowRemapFailed",
                    (
                        f"{FIRST}: rows failed: a memory row could not be remapped; "
                        "needs an exchange of the hardware, and a verdict by hand"
                    ),
                )
            ],
            id="hardware that must go",
        ),
        pytest.param(
            transition(cause="hw thermal", kind=Class.NOTED, reason="clocks are held down"), [], id="heat is a metric"
        ),
        pytest.param(
            transition(cause="of tomorrow", reason="who knows"),
            [("Warning", "GPUUnhealthy", f"{FIRST}: of tomorrow: who knows; needs a reset of the GPU")],
            id="a cause without a reason of its own",
        ),
        pytest.param(
            transition(FindingChange.CLOSED, reason="the gpu was reset"),
            [("Normal", "GPUErrorResolved", f"{FIRST}: xid 48 is over: the gpu was reset")],
            id="the end of an error",
        ),
        pytest.param(
            transition(FindingChange.CLOSED, "xid 31", Class.APPLICATION, "quiet"),
            [],
            id="the end of what did not matter",
        ),
        pytest.param(
            transition(FindingChange.VERDICT, "verdict", Class.NOTED, "set unhealthy by hand: smoke"),
            [("Normal", "GPUVerdict", f"{FIRST}: set unhealthy by hand: smoke")],
            id="a verdict",
        ),
        pytest.param(
            Transition("", FindingChange.STRAY, "xid 48", Class.RESET, "of GPU-x", UTC),
            [("Warning", "GPUXidError", "xid 48 of a device nobody knows: of GPU-x")],
            id="an event of nobody",
        ),
    ],
)
def test_transitions(happened: Transition, expected: list[tuple[str, str, str]]) -> None:
    state = observed("")
    assert words(notes(state, observed("", transitions=(happened,)))) == expected


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param(observed(""), observed(""), [], id="nothing"),
        pytest.param(observed(""), without_answer(""), ["GPUDriverLost"], id="the driver goes, and all GPUs with it"),
        pytest.param(without_answer(""), without_answer(""), [], id="it stays away"),
        pytest.param(without_answer("x"), observed(""), ["GPUDriverReady"], id="it comes, and all GPUs with it"),
        pytest.param(observed(""), observed("no device node"), ["GPUUnhealthy"], id="a device node goes"),
        pytest.param(observed("a"), observed("b"), [], id="another reason for the same GPU"),
        pytest.param(observed(XID_48), observed(""), ["GPUHealthy"], id="a GPU can be used again"),
        pytest.param(
            observed(""), observed(XID_48, transitions=(transition(),)), ["GPUXidError"], id="an error is told once"
        ),
    ],
)
def test_states(before: Observation, now: Observation, expected: list[str]) -> None:
    assert [note.reason for note in notes(before, now)] == expected


def test_a_verdict_against_a_gpu_is_a_warning() -> None:
    verdict = transition(FindingChange.VERDICT, "verdict", Class.NOTED, "set unhealthy by hand: smoke")
    found = notes(observed("", ""), observed("set unhealthy by hand: smoke", "", transitions=(verdict,)))
    assert [(note.reason, note.is_warning) for note in found] == [("GPUVerdict", True)]


def test_a_release_and_its_end_are_told_and_nothing_of_what_they_do_to_gpus() -> None:
    held = observed(RELEASED)
    assert [note.reason for note in notes(observed(""), held, "", RELEASED)] == ["GPUsReleased"]
    assert notes(held, held, RELEASED, RELEASED) == []
    assert [note.reason for note in notes(held, observed(""), RELEASED, "")] == ["GPUsResumed"]
    assert [note.reason for note in notes(held, without_answer(""), RELEASED, "")] == ["GPUsResumed"]


def test_every_reason_is_camel_case_and_in_the_table_once() -> None:
    assert all(reason.isalnum() and reason[0].isupper() for reason in REASONS)
    assert len(set(REASONS)) == len(REASONS)


def test_errors_of_two_gpus_are_two_series_and_of_one_are_one() -> None:
    changes = (transition(), transition(gpu=1), transition(), transition(cause="xid 79", kind=Class.REBOOT))
    found = notes(observed("", ""), observed("", "", transitions=changes))
    assert len({note.series for note in found}) == 3

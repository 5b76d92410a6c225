"""A Node that is deleted and registered again while its machine is being upgraded: its records are gone with it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from provision.cluster.kubernetes.nodes.marks import UPGRADE
from provision.cluster.kubernetes.nodes.others import Asked
from provision.cluster.record import decode_record
from provision.rollout.model import NodeView, Phase
from provision.rollout.states import REPLACED, seen
from tests.provision.cluster.operated import ASKED, Operated, Steps, apply, connect
from tests.provision.rollout.fakes import NEW, NOON, OLD, record, state, view

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.rollout.step import StepOutcome

SAME, OTHER = f"{0:032x}", f"{9:032x}"
IN_FLIGHT = (Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME)


def registering(server: Operated, phase: Phase, machine_id: str) -> Callable[[str, Phase], None]:
    """Return what happens in steps: in the first one of ``phase`` the Node is deleted, and registered again."""
    times = itertools.count()

    def meet(node: str, now: Phase) -> None:
        if now is phase and not next(times):
            server.register(node, machine_id=machine_id)
            server.maintenances.clear()  # Kubernetes deletes them with the Node that owns them

    return meet


@pytest.mark.parametrize("phase", IN_FLIGHT)
@pytest.mark.parametrize("asked", [ASKED, Asked()], ids=["with requests to others", "without"])
def test_the_upgrade_of_the_same_machine_goes_on_and_is_written_down_again(phase: Phase, asked: Asked) -> None:
    server = Operated("n1")
    written: list[str] = []

    def note(_what: str) -> None:
        text = server.nodes["n1"]["metadata"]["annotations"].get(UPGRADE)
        written.append("" if text is None else decode_record(text).phase.value)

    server.effect = note
    result = apply(server, Steps(server, meet=registering(server, phase, SAME)), asked)

    assert (result.stop, server.drivers) == ("", {"n1": NEW})
    (node,) = result.nodes
    assert node.record is not None
    assert node.record.phase is Phase.DONE
    assert written[-1] == Phase.RESUME.value, "it was verified and resumed before it was done"
    assert not server.nodes["n1"]["spec"].get("unschedulable", False)
    assert server.ours() == []


def test_another_machine_of_that_name_is_left_alone_and_planned_by_the_next_run() -> None:
    server = Operated("n1", "n2")
    meet_n1 = registering(server, Phase.RELEASE, OTHER)

    def meet(node: str, phase: Phase) -> None:
        if node == "n1":
            meet_n1(node, phase)

    result = apply(server, Steps(server, meet=meet))

    assert result.waiting["n1"] == REPLACED
    assert {node.name: node.record and node.record.phase for node in result.nodes} == {"n1": None, "n2": Phase.DONE}
    assert server.drivers == {"n1": OLD, "n2": NEW}
    assert server.nodes["n1"]["spec"] == {}, "nothing of the former upgrade is on it"
    assert server.ours() == []

    result = apply(server)
    assert server.drivers == {"n1": NEW, "n2": NEW}
    assert result.waiting == {}


def test_a_machine_that_does_not_say_which_it_is_is_another_one() -> None:
    before = state("n1", view("n1", record(Phase.SWAP), uid="a", machine_id=SAME))
    for machine_id in ("", OTHER):
        after = seen(before, view("n1", uid="b", machine_id=machine_id), "", NOON)
        assert (after.is_replaced, after.record, after.obstacle) == (True, None, REPLACED)
    silent = state("n1", view("n1", record(Phase.SWAP), uid="a", machine_id=""))
    assert seen(silent, view("n1", uid="b", machine_id=""), "", NOON).is_replaced


def test_what_came_of_a_node_in_this_run_still_counts() -> None:
    """A node that was changed is soaked for, and one that failed is not tried again, nor is its failure forgotten."""
    changed = state("n1", view("n1", record(Phase.DONE), uid="a", machine_id=SAME), is_disruptive=False)
    failed = state("n1", view("n1", record(Phase.RETURNED), uid="a", machine_id=SAME), has_failed=True)
    for before in (changed, failed):
        after = seen(before, view("n1", uid="b", machine_id=SAME), "", NOON)
        assert (after.is_unwritten, after.record, after.has_failed) == (True, before.record, before.has_failed)


def test_what_was_over_before_is_not_written_down_again() -> None:
    for phase in (Phase.DONE, Phase.RETURNED):
        before = state("n1", view("n1", record(phase, target=OLD), uid="a", machine_id=SAME), is_disruptive=True)
        after = seen(before, view("n1", uid="b", machine_id=SAME), "", NOON)
        assert (after.is_unwritten, after.is_replaced, after.record) == (False, False, None)


@pytest.mark.parametrize("is_cordoned", [False, True])
def test_a_cordon_of_the_new_object_is_somebodys(is_cordoned: bool) -> None:  # noqa: FBT001 - a column
    before = state("n1", view("n1", record(Phase.SWAP, was_cordoned=not is_cordoned), uid="a", machine_id=SAME))
    after = seen(before, view("n1", uid="b", machine_id=SAME, is_cordoned=is_cordoned), "", NOON)
    assert after.record is not None
    assert after.record.was_cordoned is is_cordoned


def test_a_node_that_failed_stays_out_of_service() -> None:
    server = Operated("n1", "n2")
    meet_n1 = registering(server, Phase.SWAP, SAME)

    def meet(node: str, phase: Phase) -> None:
        if node == "n2":  # n1 has failed in its release before
            meet_n1("n1", phase)

    class OnlyN1(Steps):
        def run(self, node: str, *arguments: Any, **more: Any) -> StepOutcome:
            steps = Steps(server, Phase.RELEASE) if node == "n1" else super()
            return steps.run(node, *arguments, **more)

    apply(server, OnlyN1(server, meet=meet))

    text = server.nodes["n1"]["metadata"]["annotations"][UPGRADE]
    assert (decode_record(text).phase, server.nodes["n1"]["spec"]) == (Phase.FAILED, {"unschedulable": True})
    assert server.drivers == {"n1": OLD, "n2": NEW}


def test_a_record_outlives_several_registrations() -> None:
    before = state("n1", view("n1", record(Phase.SWAP), uid="a", machine_id=SAME))
    once = seen(before, view("n1", uid="b", machine_id=SAME), "", NOON)
    again = seen(once, view("n1", uid="b", machine_id=SAME, is_ready=False), "", NOON)
    twice = seen(again, view("n1", uid="c", machine_id=SAME), "", NOON)
    assert [each.is_unwritten for each in (once, again, twice)] == [True, True, True]
    assert twice.record == before.record


def test_a_view_says_which_object_and_which_machine_it_is_of() -> None:
    server = Operated("n1")
    found = connect(server).observe(["n1"])["n1"]
    assert isinstance(found, NodeView)
    assert (found.uid, found.machine_id) == (server.nodes["n1"]["metadata"]["uid"], SAME)

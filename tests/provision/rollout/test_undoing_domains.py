"""`rollback` takes a domain back as one: no two drivers ever serve in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from provision.apply.model import Failure, Status
from provision.apply.removal import Part
from provision.rollout.changes.plan import DriverVerb, Extent, plan_verb
from provision.rollout.changes.removing import Removing
from provision.rollout.decision.decide import decide
from provision.rollout.decision.order.domains import members_of
from provision.rollout.decision.policy import DrainPolicy, Policy
from provision.rollout.decision.snapshot import NodeState, Snapshot, StepResult, Write
from provision.rollout.model import Phase
from tests.provision.rollout.fakes import MINUTE, NEW, NOON, OLD, KilledError, pod, record, state, view
from tests.provision.rollout.machines import (
    BEFORE,
    CHANGED,
    OLDER,
    Machines,
    go_back,
    machines,
    plan,
    rack_of,
    results_of_going_back,
)
from tests.provision.samples import make_facts, make_module, make_stack

RACKS = {"domains": {"groups": ["rack-a", "rack-b"]}, "maxUnavailable": 2}
OTHER = record(Phase.DONE, target=OLDER, origin=OLDER)


@dataclass
class Watch:
    """Holds at every write that the nodes of a domain that are in service have one driver."""

    found: Machines
    writes_left: int = 1000

    def __call__(self, what: str) -> None:
        verb, name, *phase = what.split()
        self.writes_left -= 1
        if self.writes_left < 0:
            raise KilledError(what)
        entering = name if (verb, phase) == ("write", ["done"]) or (verb, phase) == ("write", ["returned"]) else ""
        self.hold(entering)

    def hold(self, entering: str = "") -> None:
        serving: dict[str, set[str]] = {}
        for name, node in self.found.cluster.nodes.items():
            if rack_of(name) and (name == entering or not node.is_cordoned):
                serving.setdefault(rack_of(name)[0], set()).add(self.found.loaded[name])
        assert all(len(drivers) == 1 for drivers in serving.values()), serving


def watched(found: Machines) -> Watch:
    found.cluster.effect = watch = Watch(found)
    return watch


def refused(found: Machines, *names: str, **rollout: object) -> dict[str, str]:
    settled = plan(found, *names, **{**RACKS, **rollout}).settled  # type: ignore[arg-type]  # of the rollout, by name
    return {name: result.failure.message for name, result in settled.items() if result.failure is not None}


def test_domains_go_back_one_after_the_other_each_as_one() -> None:
    found = machines(a1=CHANGED, b1=CHANGED, n1=CHANGED, a2=CHANGED, b2=CHANGED)
    watch = watched(found)

    assert set(go_back(found, **RACKS).values()) == {"returned"}

    watch.hold()
    assert found.returned[0][0] == found.returned[1][0] == "a", "although b1 and n1 come before a2"
    assert found.cluster.most_out == 2, "maxParallel is 1, and a domain begins as a whole"


@pytest.mark.parametrize("phase", ["release", "driver", "verify", "resume"])
def test_one_that_fails_stays_out_and_the_others_serve_without_it(phase: str) -> None:
    found = machines(a1=CHANGED, a2=CHANGED, a3=CHANGED)
    watch = watched(found)
    found.fleet.nodes["a2"].broken = phase
    found.fails = ("a2",) if phase == "driver" else ()

    results = go_back(found, **{**RACKS, "maxUnavailable": 3})

    watch.hold()
    assert results == {"a1": "returned", "a2": "failed", "a3": "returned"}
    assert [node.is_cordoned for node in found.cluster.nodes.values()] == [False, True, False]
    found.fleet.nodes["a2"].broken, found.fails = "", ()
    assert go_back(found, **RACKS)["a2"] == "returned"
    watch.hold()
    assert set(found.loaded.values()) == {OLD}


@pytest.mark.parametrize("writes", range(24))
def test_killed_at_any_write_the_next_one_ends_it_and_never_do_two_drivers_serve(writes: int) -> None:
    found = machines(a1=CHANGED, a2=CHANGED, n1=CHANGED)
    watched(found).writes_left = writes
    try:
        go_back(found, **RACKS)
    except KilledError:
        found.cluster.is_held = False
    watch = watched(found)
    watch.hold()

    assert set(go_back(found, **RACKS).values()) == {"returned"}

    watch.hold()
    assert sorted(found.returned) == ["a1", "a2", "n1"], "each went back once"
    assert not any(node.is_cordoned for node in found.cluster.nodes.values())


def test_a_part_of_a_domain_is_refused_and_what_to_name_is_said() -> None:
    found = machines(a1=CHANGED, a2=CHANGED, a3=CHANGED, n1=CHANGED)

    reasons = refused(found, "a1", "n1")

    assert reasons == {
        "a1": "its domain rack-a is changed as one, and a2, a3 of it are not named: name all of its nodes"
    }
    assert go_back(found, "a1", "n1", **RACKS) == {"a1": "refused", "n1": "returned"}
    assert found.returned == ["n1"]


def test_what_has_that_driver_again_already_need_not_be_named() -> None:
    """One of a domain that failed on its way back is tried again by its name."""
    failed = record(Phase.FAILED, failed_in=Phase.VERIFY, origin_change=BEFORE)
    found = machines(a1=failed, a2=record(Phase.DONE, target=OLD, origin=NEW))

    assert go_back(found, "a1", **RACKS) == {"a1": "returned"}


def test_a_part_in_flight_is_left_where_it_is() -> None:
    found = machines(a1=record(Phase.SWAP, target=OLD, origin=NEW), a2=CHANGED)
    found.loaded["a1"] = NEW

    assert go_back(found, "a1", **RACKS) == {"a1": "refused"}

    assert found.cluster.writes == []
    assert found.cluster.nodes["a1"].is_cordoned


def test_a_domain_that_would_end_with_two_drivers_is_refused() -> None:
    found = machines(a1=CHANGED, a2=OTHER, b1=CHANGED, b2=CHANGED)

    reasons = refused(found)

    assert set(reasons) == {"a1"}
    assert reasons["a1"] == (
        f"its domain rack-a is changed as one, and after `grapnel rollback` its nodes would have {OLDER}, {OLD}: "
        "declare the driver that all of them shall have, and `grapnel apply`"
    )
    assert go_back(found, **RACKS) == {"a1": "refused", "a2": "unchanged", "b1": "returned", "b2": "returned"}


def test_a_domain_of_which_one_does_not_answer_stays_as_it_is() -> None:
    found = machines(a1=CHANGED, a2=CHANGED, n1=CHANGED)
    found.loaded["a2"] = ""

    results = {result.node: result for result in results_of_going_back(found, **RACKS)}

    assert {name: result.status.value for name, result in results.items()} == {
        "a1": "refused",
        "a2": "unreachable",
        "n1": "returned",
    }
    assert results["a1"].failure == Failure(
        Status.REFUSED, "a2 of its domain rack-a cannot take part: no route to host"
    )


def test_a_domain_of_which_one_has_no_way_back_is_told_what_leads_out() -> None:
    found = machines(a1=CHANGED, a2=CHANGED)
    stacks = {name: make_stack(driver={"version": NEW}, rollout=RACKS) for name in ("a1", "a2")}
    lost = make_facts(module=make_module(NEW, NEW))
    extent = Extent(groups={name: rack_of(name) for name in stacks})

    planned = plan_verb(
        DriverVerb.BACK,
        {"a1": found.facts("a1"), "a2": lost},
        stacks,
        found.cluster.observe(list(stacks)),
        extent,
    )

    assert planned.prepared.rollout == ()
    failure = planned.settled["a1"].failure
    assert failure is not None
    assert failure.message.startswith("a2 of its domain rack-a cannot take part: there is nothing to go back to")
    assert failure.message.endswith("; declare the driver that all of its domain shall have, and `grapnel apply`")


def test_a_removal_holds_a_domain_together_too() -> None:
    found = machines(a1=CHANGED, a2=CHANGED)
    stacks = {"a1": make_stack(driver={"version": NEW}, rollout=RACKS)}
    seen = found.cluster.observe(["a1", "a2"])
    extent = Extent(groups={"a1": ("rack-a",), "a2": ("rack-a",)}, unnamed={"a2": seen["a2"]})

    removing = Removing(parts=frozenset({Part.DRIVER}))
    planned = plan_verb(removing, {"a1": found.facts("a1")}, stacks, {"a1": seen["a1"]}, extent)

    assert planned.settled["a1"].status is Status.REFUSED
    whole = plan_verb(
        removing,
        {name: found.facts(name) for name in seen},
        dict.fromkeys(seen, stacks["a1"]),
        seen,
        Extent(groups=extent.groups),
    )
    assert [each.domain for each in whole.prepared.states] == ["rack-a", "rack-a"]
    assert whole.prepared.rollout == ("a1", "a2")


def test_labels_that_no_node_has_are_told() -> None:
    found = machines(a1=CHANGED)

    reasons = refused(found, domains={"nodeLabel": "nvidia.com/gpu.cliqeu"})

    assert reasons["a1"].startswith("no Node has the label nvidia.com/gpu.cliqeu")


def at(*nodes: NodeState) -> Write:
    placed = tuple(replace(node, domain="rack-a") for node in nodes)
    snapshot = Snapshot(nodes=placed, began=NOON, domains=members_of(placed))
    (action,) = decide(snapshot, Policy(max_parallel=9, max_unavailable=9), NOON + 10 * MINUTE).actions
    assert isinstance(action, Write)
    return action


def test_jobs_that_do_not_end_keep_a_node_out_while_its_domain_goes_back() -> None:
    """Back in service with the driver that the others leave, it would be the second one of its domain."""
    jobs = view("a1", record(Phase.JOBS), jobs=(pod("train"),))
    drain = DrainPolicy(waits=True, jobs=5 * MINUTE, gives_up=True)
    failing = state("a1", jobs, drain=drain, may_return=False)

    action = at(failing, state("a2", view("a2", record(Phase.DRAIN)), is_busy=True, may_return=False))

    assert action.record.phase is Phase.FAILED
    assert "after 5 minutes: waits for pod shop/train" in action.record.reason


def test_jobs_that_do_not_end_keep_a_node_out_beside_one_that_is_done() -> None:
    jobs = view("a1", record(Phase.JOBS), jobs=(pod("train"),))
    failing = state("a1", jobs, drain=DrainPolicy(waits=True, jobs=5 * MINUTE, gives_up=True))

    action = at(failing, state("a2", view("a2", record(Phase.DONE)), is_disruptive=False))

    assert action.record.phase is Phase.FAILED


def test_what_cannot_go_back_does_not_wait_for_ever_for_one_that_never_began() -> None:
    step = StepResult(phase=Phase.RELEASE, ended=NOON, is_done=True)
    waiting = state("a1", view("a1", record(Phase.RELEASE)), step=step, may_return=False)

    action = at(waiting, state("a2", obstacle="no route to host", may_return=False))

    assert action.record.phase is Phase.FAILED, "a2 serves with the driver that it has"
    assert action.record.reason == "a2 of its domain rack-a: it does not take part: no route to host"
    assert not action.record.is_blamed

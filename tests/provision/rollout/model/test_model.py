"""A share of what `make model` explores: the same every time, in seconds."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from provision.rollout.decision.domains import Domain
from provision.rollout.decision.policy import Policy
from provision.rollout.model import Phase
from tests.provision.rollout.model.fleet import NEW, OLD, POLICIES, Fleet
from tests.provision.rollout.model.invariants import ViolationError
from tests.provision.rollout.model.machine import STEPS_OF_A_RUN, RolloutMachine


@pytest.mark.slow
def test_whatever_happens_nothing_is_violated_and_nothing_is_forgotten() -> None:
    run_state_machine_as_test(
        RolloutMachine,
        settings=settings(
            max_examples=150,
            stateful_step_count=STEPS_OF_A_RUN,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def begun() -> Fleet:
    fleet = Fleet()
    fleet.apply("ada")
    return fleet


def test_a_fleet_to_which_nothing_happens_is_upgraded() -> None:
    fleet = begun()
    fleet.turns("ada", 400)
    assert {machine.driver for machine in fleet.world.machines.values()} == {NEW}
    fleet.finish()


def until(fleet: Fleet, name: str, phase: Phase) -> None:
    """Let ada go on until a node is in a phase."""
    while (record := fleet.world.machines[name].record) is None or record.phase is not phase:
        assert "ada" in fleet.processes
        fleet.turns("ada", 1)


def test_a_node_that_was_not_verified_is_not_put_back_unseen() -> None:
    fleet = begun()
    until(fleet, "n1", Phase.RESUME)
    fleet.world.machines["n1"].verified = ""
    with pytest.raises(ViolationError, match="n1 is done and was not verified"):
        fleet.turns("ada", 20)


def test_two_drivers_in_a_domain_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Domain, "why_wait", lambda _domain, _phase: "")  # without it, n1 would wait for n3
    fleet = Fleet()
    fleet.declare(NEW, next(index for index, each in enumerate(POLICIES) if each.domains is not None))
    fleet.apply("ada")
    until(fleet, "n1", Phase.RESUME)
    beside = fleet.world.machines["n3"]
    beside.record, beside.driver, beside.is_cordoned = None, OLD, False
    fleet.world.changed("n3")
    with pytest.raises(ViolationError, match=f"n1 is back beside n3 with {OLD}"):
        fleet.turns("ada", 20)


def test_a_node_too_many_is_seen() -> None:
    fleet = begun()
    fleet.processes["ada"].invariants.policy = Policy(max_unavailable=0)
    with pytest.raises(ViolationError, match="n1 begins, and"):
        fleet.turns("ada", 5)


def test_a_step_without_its_record_or_without_the_lease_is_seen() -> None:
    fleet = begun()
    until(fleet, "n1", Phase.RELEASE)
    invariants = fleet.processes["ada"].invariants
    with pytest.raises(ViolationError, match="swap of n1, whose record says release"):
        invariants.step("n1", Phase.SWAP)
    fleet.tenancy.owner = None
    with pytest.raises(ViolationError, match="release of n1 without the lease"):
        invariants.step("n1", Phase.RELEASE)


def test_a_cordon_that_stays_is_seen() -> None:
    fleet = begun()
    fleet.finish()
    fleet.world.machines["n2"].is_cordoned = True
    with pytest.raises(ViolationError, match="n2 is cordoned"):
        fleet.hold_ended()


def test_a_process_that_is_killed_leaves_its_lease_to_run_out() -> None:
    fleet = begun()
    fleet.turns("ada", 3)
    fleet.kill("ada")
    fleet.apply("bob")
    assert "bob" not in fleet.processes
    fleet.pass_time(46.0)
    fleet.apply("bob")
    assert "bob" in fleet.processes

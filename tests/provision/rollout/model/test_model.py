"""A share of what `make model` explores: the same every time, in seconds."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from provision.rollout.model import Phase
from tests.provision.rollout.model.events import FIRST, INJECTED, KINDS, LENGTH, Event, drawn, play
from tests.provision.rollout.model.fleet import Fleet
from tests.provision.rollout.model.invariants import ViolationError, hold
from tests.provision.rollout.model.machine import RolloutMachine
from tests.provision.rollout.model.policies import NEW, NEWER, OLD, index_of
from tests.provision.rollout.model.shrink import shrink, violated

SHARE = 400


@pytest.mark.slow
def test_whatever_happens_nothing_is_violated_and_nothing_is_forgotten() -> None:
    found = {seed: what for seed in range(SHARE) if (what := violated(drawn(seed)))}
    assert not found


@pytest.mark.slow
def test_nor_is_in_what_hypothesis_tries() -> None:
    run_state_machine_as_test(
        RolloutMachine,
        settings=settings(
            max_examples=100,
            stateful_step_count=LENGTH,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_an_interleaving_has_several_events_beside_the_engines_own() -> None:
    found = [drawn(seed) for seed in range(200)]
    injected = [sum(name in INJECTED for name, *_ in events[FIRST:]) for events in found]
    assert sorted(injected)[10] >= 6  # of nineteen in twenty
    assert {name for events in found for name, *_ in events} == {kind.name for kind in KINDS}


def test_the_same_seed_gives_the_same_interleaving() -> None:
    assert drawn(7) == drawn(7) != drawn(8)


def begun() -> Fleet:
    fleet = Fleet()
    fleet.apply("ada")
    return fleet


def until(fleet: Fleet, name: str, phase: Phase) -> None:
    """Let ada go on until a node is in a phase."""
    while (record := fleet.world.machines[name].record) is None or record.phase is not phase:
        assert "ada" in fleet.processes
        fleet.turns("ada", 1)


def drivers(fleet: Fleet) -> set[str]:
    return {machine.driver for machine in fleet.world.machines.values()}


def test_a_fleet_to_which_nothing_happens_is_upgraded() -> None:
    fleet = begun()
    fleet.turns("ada", 400)
    assert drivers(fleet) == {NEW}
    fleet.finish()


def test_a_fleet_is_taken_back_and_upgraded_again() -> None:
    fleet = begun()
    fleet.turns("ada", 400)
    fleet.rollback("bob")
    fleet.turns("bob", 400)
    assert drivers(fleet) == {OLD}
    fleet.finish()
    assert drivers(fleet) == {NEW}


def test_a_rollback_after_an_apply_that_stopped_takes_back_what_it_has_changed() -> None:
    fleet = begun()
    fleet.break_step("n2", Phase.VERIFY)
    fleet.turns("ada", 400)
    assert drivers(fleet) == {OLD, NEW}
    fleet.mend("n2")
    fleet.rollback("ada")
    fleet.turns("ada", 400)
    assert drivers(fleet) == {OLD}


def test_a_node_that_is_given_up_while_it_is_upgraded_is_left_alone() -> None:
    fleet = begun()
    until(fleet, "n1", Phase.SWAP)
    fleet.abandon("n1")
    fleet.turns("ada", 400)
    machine = fleet.world.machines["n1"]
    assert (machine.record, machine.is_cordoned, machine.verified) == (None, True, "")


def test_a_failed_node_is_tried_again_when_somebody_asks_for_it() -> None:
    fleet = Fleet()
    fleet.declare(NEW, index_of(lambda policy: policy.max_failures))
    fleet.break_step("n1", Phase.VERIFY)
    fleet.apply("ada")
    until(fleet, "n1", Phase.FAILED)
    fleet.mend("n1")
    fleet.retry("n1")
    fleet.turns("ada", 400)
    assert drivers(fleet) == {NEW}


def test_jobs_are_waited_for() -> None:
    fleet = Fleet()
    fleet.declare(NEW, index_of(lambda policy: policy.wait_for.namespaces))
    fleet.begin_job("n1")
    fleet.apply("ada")
    until(fleet, "n1", Phase.JOBS)
    fleet.turns("ada", 10)
    assert fleet.world.machines["n1"].driver == OLD
    fleet.end_jobs("n1")
    until(fleet, "n1", Phase.DONE)


def test_what_drains_beside_a_node_that_fails_is_put_back_as_it_was() -> None:
    fleet = Fleet()
    fleet.declare(NEW, index_of(lambda policy: policy.domains))
    fleet.break_step("n1", Phase.RELEASE)
    fleet.apply("ada")
    until(fleet, "n3", Phase.RETURNED)
    assert fleet.world.machines["n3"].driver == OLD
    fleet.finish()


def test_a_process_that_is_killed_leaves_its_lease_to_run_out() -> None:
    fleet = begun()
    fleet.turns("ada", 3)
    fleet.kill("ada")
    fleet.apply("bob")
    assert "bob" not in fleet.processes
    fleet.freeze(46.0)
    fleet.apply("bob")
    assert "bob" in fleet.processes


def test_what_violates_something_is_shortened_to_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(fleet: Fleet, name: str) -> None:
        hold(not fleet.world.machines[name].is_skipped, f"{name} falls ill and is skipped")

    monkeypatch.setattr(Fleet, "fall_ill", forbidden)
    needed = [("skip", "n2"), ("fall_ill", "n2")]
    events = [("declare", NEW, 0), ("apply", "ada"), needed[0], ("go_on", "ada", 3), ("pause",), needed[1], ("pause",)]
    assert violated(events) == "ViolationError: n2 falls ill and is skipped"
    assert shrink(events) == needed


def test_a_cordon_that_stays_is_seen() -> None:
    fleet = begun()
    fleet.finish()
    fleet.world.machines["n2"].is_cordoned = True
    with pytest.raises(ViolationError, match="n2 is cordoned"):
        fleet.hold_ended()


def test_a_node_whose_domain_was_declared_half_way_does_not_return_beside_another_driver() -> None:
    """What it waits for is in service with the driver that it was on its way to, and nothing may begin."""
    fleet = Fleet()
    fleet.declare(NEW, index_of(lambda policy: policy.max_parallel == 2))
    fleet.apply("ada")
    until(fleet, "n3", Phase.SWAP)
    fleet.kill("ada")
    fleet.freeze(50.0)
    fleet.pause()
    fleet.declare(OLD, index_of(lambda policy: policy.domains))
    fleet.go_on("ada", 40)
    machines = fleet.world.machines
    assert (machines["n1"].driver, machines["n1"].is_cordoned) == (NEW, False)
    assert machines["n3"].record is not None
    assert (machines["n3"].record.phase, machines["n3"].is_cordoned) == (Phase.FAILED, True)
    fleet.finish()


FOUND: dict[str, list[Event]] = {
    "a clock put back after a wave without a soak": [
        ("declare", NEW, 4),
        ("go_on", "ada", 55),
        ("put_clock", -90.0),
        ("kill", "ada"),
        ("go_on", "ada", 21),
    ],
    "a target that is taken back while the node swaps by itself": [
        ("declare", NEW, 2),
        ("apply", "ada"),
        ("declare", OLD, 10),
        ("go_on", "ada", 34),
        ("kill", "ada"),
        ("go_on", "ada", 34),
    ],
    "a node registered again during its swap, whose domain fails": [
        ("declare", NEW, 9),
        ("break_step", "n1", Phase.SWAP),
        ("go_on", "ada", 21),
        ("register_again", "n3"),
        ("go_on", "ada", 34),
    ],
    "a node abandoned and uncordoned beside its domain": [
        ("declare", NEW, 9),
        ("apply", "ada"),
        ("kill_at", "ada", 12),
        ("apply", "ada"),
        ("disturb_at", "ada", 5, "abandon", "n3"),
        ("uncordon", "n3"),
        ("go_on", "ada", 34),
    ],
    "a domain declared while one of its nodes returns": [
        ("apply", "ada"),
        ("declare", OLD, 6),
        ("break_step", "n3", Phase.SWAP),
        ("go_on", "ada", 73),
        ("freeze", 50.0),
        ("turns", "ada", 34),
        ("go_on", "ada", 34),
    ],
    "somebody's cordon that ends with its Node": [
        ("cordon", "n2"),
        ("go_on", "ada", 3),
        ("register_again", "n2"),
        ("go_on", "ada", 21),
    ],
    "somebody's cordon of a Node that was registered again": [
        ("go_on", "ada", 1),
        ("register_again", "n1"),
        ("cordon", "n1"),
        ("go_on", "ada", 34),
    ],
    "a node that has failed before and is registered again": [
        ("go_on", "ada", 24),
        ("stick", "n2"),
        ("go_on", "ada", 21),
        ("apply", "ada"),
        ("register_again", "n2"),
        ("turns", "ada", 13),
    ],
    "a node that changes by itself beside its domain": [
        ("declare", NEW, 9),
        ("go_on", "ada", 21),
        ("register_again", "n1"),
        ("kill", "ada"),
        ("pause",),
        ("go_on", "ada", 34),
    ],
    "a node that cannot be reached and is put back as its window closes": [
        ("declare", NEW, 2),
        ("apply", "ada"),
        ("turns", "ada", 3),
        ("declare", NEWER, 9),
        ("put_clock", -7200.0),
        ("reboot", "n3", 70.0),
        ("disturb_at", "ada", 9, "abandon", "n3"),
        ("kill_at", "ada", 1),
        ("go_on", "ada", 29),
    ],
    "a node that failed and is registered again": [
        ("declare", NEW, 8),
        ("go_on", "ada", 8),
        ("break_step", "n1", Phase.SWAP),
        ("go_on", "ada", 55),
        ("delete", "n1"),
        ("turns", "ada", 2),
        ("join", "n1"),
        ("go_on", "ada", 34),
    ],
}


@pytest.mark.parametrize("events", FOUND.values(), ids=FOUND)
def test_what_was_found_once_is_not_found_again(events: list[Event]) -> None:
    assert not violated(events)


def test_an_interleaving_may_be_empty() -> None:
    play([])

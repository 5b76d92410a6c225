"""Nodes on which the new driver fails: what they are afterwards, and what becomes of the others."""

from __future__ import annotations

import itertools

from provision.declaration.spec.model import Wave
from provision.rollout.model import Phase
from provision.rollout.status import situations
from tests.provision.rollout.situations.fleets import NEW, OLD, fleet

HANGS = "allocation: gpu 3 hangs"


def test_a_failed_node_is_done_only_after_it_was_verified_and_keeps_its_reason_until_then() -> None:
    """NVIDIA/gpu-operator 2549: upgrade-failed became upgrade-done by itself, and nobody knew how."""
    stage = fleet(1)
    stage.machines["n1"].broken = {Phase.VERIFY: HANGS}

    assert stage.apply() == {"n1": "failed"}
    (node,) = stage.looks[-1].nodes
    assert node.situation is situations.FAILED_IN[Phase.ROLLBACK]
    assert HANGS in node.reason
    assert stage.machines["n1"].is_cordoned
    assert stage.apply() == {"n1": "failed"}, "as long as the cause is there, it stays so"

    stage.machines["n1"].broken = {}
    stage.way.clear()
    assert stage.apply() == {"n1": "converged"}
    phases = [phase for _, phase in stage.way]
    assert phases[-3:] == [Phase.VERIFY, Phase.RESUME, Phase.DONE]
    assert stage.machines["n1"].verified == NEW


def test_a_driver_that_fails_its_verification_is_exchanged_for_the_former_one_by_itself() -> None:
    """Nobody goes back by themselves: a driver that does not work stays until somebody comes."""
    stage = fleet(3)
    stage.machines["n1"].broken = {Phase.SWAP: "the module does not load"}

    assert stage.apply() == {"n1": "returned", "n2": "waiting", "n3": "waiting"}
    machine = stage.machines["n1"]
    assert (machine.driver, machine.verified) == (OLD, OLD)
    assert not machine.is_cordoned
    assert not machine.is_released


def test_a_rollout_that_stops_says_what_stopped_it_and_every_node_that_waits_does() -> None:
    """One failed node holds NVIDIA's only slot, and ends the upgrade of all others without a word."""
    stage = fleet(4)
    stage.machines["n2"].broken = {Phase.SWAP: "the module does not load"}

    assert list(stage.apply().values()) == ["converged", "returned", "waiting", "waiting"]
    assert stage.stop == "n2 failed in swap"
    assert stage.reasons["n3"] == stage.reasons["n4"] == "stopped: n2 failed in swap"


def test_a_failed_node_that_is_allowed_for_takes_no_slot_from_the_others() -> None:
    """NVIDIA/gpu-operator 2509: a failed node holds a slot for ever, with the default of one all there are."""
    stage = fleet(4)
    stage.machines["n1"].broken = {Phase.VERIFY: HANGS}

    assert list(stage.apply(max_failures=1).values()) == ["failed", *itertools.repeat("converged", 3)]


def test_a_canary_that_gets_ill_while_it_soaks_keeps_the_new_driver_from_the_others() -> None:
    """Waves with a time to prove themselves and a look at their health: no other operator has them."""
    stage = fleet(4)
    stage.at(15 * 60.0, lambda: stage.world.fall_ill("n1", "GPU 3 has fallen off the bus"))

    results = stage.apply(waves=(Wave(name="canary", size=1, soak_minutes=60), Wave()))
    assert list(results.values()) == ["converged", "waiting", "waiting", "waiting"]
    assert stage.stop == "wave 1 of 2 (canary) is not healthy since its change: n1 is not ready"
    assert [machine.driver for machine in stage.machines.values()] == [NEW, OLD, OLD, OLD]

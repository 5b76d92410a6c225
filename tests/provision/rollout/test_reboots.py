"""`grapnel reboot`, by the engine of an upgrade, on machines that count their boots."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace
from datetime import timedelta

import pytest

from provision.rollout.model import ChangeKind, Phase
from tests.provision.rollout.fakes import CALM, NEW, NOON, OLD, KilledError, killed_at, record
from tests.provision.rollout.reboots import Machines, boot_of

REBOOT = ChangeKind.REBOOT
PATIENT: dict[str, object] = {"drainTimeoutMinutes": 600}  # of a clock that runs fast


def test_nodes_are_rebooted_one_after_the_other_each_out_of_service() -> None:
    machines = Machines.of("n1", "n2", "n3")

    results = machines.reboot()

    assert [result.status.value for result in results.values()] == ["rebooted"] * 3
    for name, machine in machines.machines.items():
        assert (machine.boots, machine.is_released, machine.asked) == (
            2,
            False,
            ["release", "reboot", "verify", "resume"],
        )
        node = machines.cluster.nodes[name]
        assert (node.is_cordoned, node.record is not None and node.record.kind) == (False, REBOOT)
    assert machines.cluster.most_out == 1
    assert machines.cluster.evicted == ["n1-a", "n2-a", "n3-a"]


def test_the_boot_that_is_to_end_is_recorded_before_anything_is_done() -> None:
    machines = Machines.of("n1")
    written = []
    machines.cluster.effect = lambda what: written.append((what, machines.cluster.nodes["n1"].record))

    machines.reboot()

    kept = [each for what, each in written if each is not None and what.startswith("write")]
    assert {each.boot for each in kept} == {boot_of("n1", 1)}


def run_killed_at(machines: Machines, effect: int, **rollout: object) -> bool:
    """Run a process that is killed at its nth effect, on the machines or where state lives; tell whether it lived."""
    machines.effect = machines.cluster.effect = killed_at(effect)
    try:
        machines.reboot(rollout=rollout)
    except KilledError:
        return False
    finally:
        machines.effect = machines.cluster.effect = CALM
    return True


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 2])
def test_killed_at_any_point_and_asked_again_no_node_is_rebooted_twice(slots: int) -> None:
    limits = {"maxParallel": slots, "maxUnavailable": slots + 1}
    for effect in itertools.count():
        machines = Machines.of("n1", "n2", "n3")
        machines.cluster.nodes["n3"].is_cordoned = True
        lived = run_killed_at(machines, effect, **limits)
        machines.reboot(rollout=limits)
        for name, machine in machines.machines.items():
            node = machines.cluster.nodes[name]
            assert machine.boots == 2, (effect, name, "rebooted once, and once only")
            assert not machine.is_released, (effect, name)
            assert node.record is not None
            assert node.record.phase is Phase.DONE, (effect, name)
            assert node.is_cordoned is (name == "n3"), "what somebody else cordoned stays so"
        if lived:
            break
    assert effect > 35, "every effect has been the last one once"


def test_killed_again_and_again_comes_to_an_end() -> None:
    machines = Machines.of("n1", "n2")
    while not run_killed_at(machines, 2):
        pass
    assert [machine.boots for machine in machines.machines.values()] == [2, 2]
    assert not any(node.is_cordoned for node in machines.cluster.nodes.values())


def test_a_node_that_somebody_has_rebooted_meanwhile_is_not_rebooted_again() -> None:
    machines = Machines.of("n1")
    planned = Phase.DRAIN

    def reboot_by_hand(what: str) -> None:
        if what == f"write n1 {planned}":
            machines.machines["n1"].boots += 1

    machines.cluster.effect = reboot_by_hand
    machines.reboot()

    assert machines.machines["n1"].boots == 2


def test_a_node_that_does_not_come_back_is_quarantined_and_stops_the_others() -> None:
    machines = Machines.of("n1", "n2")
    machines.machines["n1"].is_lost = True
    machines.clock.step = timedelta(minutes=1)

    results = machines.reboot(rollout=PATIENT)

    node = machines.cluster.nodes["n1"]
    assert node.record is not None
    assert (node.record.phase, node.record.failed_in, node.is_cordoned) == (Phase.FAILED, Phase.SWAP, True)
    assert results["n1"].failure is not None
    assert "after 30 minutes: no route to host" in results["n1"].failure.message
    assert results["n2"].failure is not None
    assert results["n2"].failure.message == "stopped: n1 failed in swap"
    assert machines.machines["n2"].boots == 1


def test_a_node_that_came_back_late_is_verified_and_not_rebooted_again() -> None:
    machines = Machines.of("n1", "n2")
    machines.machines["n1"].is_lost = True
    machines.clock.step = timedelta(minutes=1)
    machines.reboot(rollout=PATIENT)
    machines.machines["n1"] = replace(machines.machines["n1"], is_lost=False, boots=2)

    results = machines.reboot(rollout=PATIENT)

    assert [result.status.value for result in results.values()] == ["rebooted", "rebooted"]
    assert [machine.boots for machine in machines.machines.values()] == [2, 2]
    assert machines.machines["n1"].asked[-2:] == ["verify", "resume"]


def test_a_node_that_is_not_as_before_stays_out_of_service_without_a_way_back() -> None:
    machines = Machines.of("n1")
    machines.machines["n1"].breaks = "verify"

    result = machines.reboot()["n1"]

    assert result.failure is not None
    assert result.failure.message == "verify is broken"
    assert machines.cluster.nodes["n1"].is_cordoned
    assert "back" not in machines.machines["n1"].asked


def test_asked_for_again_within_a_day_a_node_stays_as_it_is_and_the_result_says_how_to_do_it_again() -> None:
    machines = Machines.of("n1")
    machines.reboot()
    done = machines.cluster.nodes["n1"].record
    assert done is not None

    again = machines.reboot()["n1"]

    assert again.status.value == "unchanged"
    assert f"was rebooted at {done.since:%Y-%m-%d %H:%M:%S} UTC" in again.note
    assert machines.machines["n1"].boots == 2
    machines.reboot(since=done.since + timedelta(seconds=1))
    assert machines.machines["n1"].boots == 3


def test_what_is_remembered_of_the_upgrade_before_stays() -> None:
    machines = Machines.of("n1")
    machines.cluster.nodes["n1"].record = record(Phase.DONE, target=OLD, origin=NEW)

    machines.reboot()

    after = machines.cluster.nodes["n1"].record
    assert after is not None
    assert (after.kind, after.target, after.before_upgrade) == (ChangeKind.REBOOT, OLD, NEW)


def test_a_canary_that_was_rebooted_by_a_killed_process_is_a_canary_still() -> None:
    machines = Machines.of("n1", "n2", "n3")
    waves = [{"name": "canary", "size": 1, "gate": "hold"}, {}]
    with contextlib.suppress(KilledError):
        machines.reboot(rollout={"waves": waves})

    assert [machine.boots for machine in machines.machines.values()] == [2, 1, 1]
    results = machines.reboot(rollout={"waves": waves})
    assert [machine.boots for machine in machines.machines.values()] == [2, 1, 1], "the gate is still closed"
    assert results["n2"].failure is not None
    assert "(canary) is done and holds the others" in results["n2"].failure.message
    machines.reboot(rollout={"waves": [{"name": "canary", "size": 1}, {}]})
    assert [machine.boots for machine in machines.machines.values()] == [2, 2, 2]


def test_the_nodes_of_a_domain_go_together_and_those_that_are_not_asked_for_stay() -> None:
    machines = Machines.of("n1", "n2", "n3", "n4")
    groups = {"n1": ("rack1",), "n2": ("rack1",), "n3": ("rack1",), "n4": ()}
    rollout = {"domains": {"groups": ["rack1"]}, "maxUnavailable": 2}

    machines.reboot("n1", "n3", "n4", rollout=rollout, groups=groups)

    assert [machine.boots for machine in machines.machines.values()] == [2, 1, 2, 2]
    assert machines.cluster.most_out == 2
    began = [node for node, phase, _ in machines.cluster.writes if phase is Phase.CORDON]
    assert began == ["n1", "n3", "n4"]


def test_an_apply_that_finds_a_reboot_half_way_brings_the_node_back_into_service() -> None:
    """Whoever comes next must not leave it cordoned; the reboot is then asked for again, since nobody has done it."""
    from tests.provision.rollout.process import Rollout  # noqa: PLC0415 - beside its use

    machines = Machines.of("n1")
    node = machines.cluster.nodes["n1"]
    run_killed_at(machines, 4)
    assert node.record is not None
    assert node.record.kind is REBOOT
    node.driver = NEW  # as declared

    Rollout(machines.cluster).run()

    assert node.record is not None
    assert (node.record.phase, node.record.kind, node.is_cordoned) == (Phase.DONE, ChangeKind.DRIVER, False)
    assert node.record.since > NOON

"""A controller beside terminals: what was found by hand on a real cluster, and a share of random interleavings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.controller.stacks.derive import NodeIs
from provision.rollout.model import Phase
from provision.rollout.status import situations
from tests.provision.rollout.model.beside.events import FIRST, INJECTED, KINDS, drawn, play, violated
from tests.provision.rollout.model.beside.fleet import CONTROLLER, Beside
from tests.provision.rollout.model.events import happen
from tests.provision.rollout.model.invariants import ViolationError
from tests.provision.rollout.model.policies import NAMES, NEW, NEWER, OLD, index_of

if TYPE_CHECKING:
    from tests.provision.rollout.model.events import Event

SHARE = 25
AS_DECLARED: list[Event] = [("declare_stack", OLD, 0), ("install",), ("turns", CONTROLLER, 6)]
WAITS = index_of(lambda policy: policy.wait_for.namespaces)
DOMAINS = index_of(lambda policy: policy.domains is not None)


def played(*events: Event) -> Beside:
    """Return a fleet after what has happened to it, as it was as declared with the old driver."""
    fleet = Beside()
    for event in (*AS_DECLARED, *events):
        happen(fleet, event)
        fleet.witness.hold_cordons()
    return fleet


def drivers(fleet: Beside) -> set[str]:
    return {machine.driver for machine in fleet.world.machines.values()}


def stand(fleet: Beside) -> set[NodeIs]:
    assert fleet.controller is not None
    return {each.how for each in fleet.controller.told.values()}


@pytest.mark.slow
def test_whatever_happens_nothing_is_violated_and_nothing_is_forgotten() -> None:
    found = {seed: what for seed in range(SHARE) if (what := violated(drawn(seed)))}
    assert not found


def test_an_interleaving_has_several_events_beside_the_engines_own() -> None:
    found = [drawn(seed) for seed in range(300)]
    injected = [sum(name in INJECTED for name, *_ in events[FIRST:]) for events in found]
    assert sorted(injected)[15] >= 6  # of nineteen in twenty
    assert {name for events in found for name, *_ in events} >= {kind.name for kind in KINDS}


def test_a_stack_is_brought_about_and_said_to_be() -> None:
    fleet = played()
    assert (stand(fleet), drivers(fleet)) == ({NodeIs.AS_DECLARED}, {OLD})
    happen(fleet, ("declare_stack", NEW, 1))
    assert NodeIs.AS_DECLARED not in stand(played(("declare_stack", NEW, 1), ("turns", CONTROLLER, 1)))
    fleet.turns(CONTROLLER, 120)
    assert (stand(fleet), drivers(fleet)) == ({NodeIs.AS_DECLARED}, {NEW})
    fleet.finish()


def test_another_leader_goes_on_where_one_was_killed() -> None:
    fleet = played(("declare_stack", NEW, 0), ("change_mind", "n1", Phase.SWAP, NEW, 0), ("kill", CONTROLLER))
    fleet.turns(CONTROLLER, 3)
    assert fleet.controller is None  # the lease has yet to run out
    fleet.turns(CONTROLLER, 150)
    assert fleet.leaders == 2
    assert (stand(fleet), drivers(fleet)) == ({NodeIs.AS_DECLARED}, {NEW})


# What was found on a real cluster. Each violated something before it was repaired.

FOUND: dict[str, list[Event]] = {
    "the declaration is taken back while a node swaps": [
        ("declare_stack", NEW, 0),
        ("change_mind", "n1", Phase.SWAP, OLD, 0),
        ("turns", CONTROLLER, 60),
    ],
    "the stack is deleted in the middle of a rollout, and made again as it was before": [
        ("declare_stack", NEW, 0),
        ("change_mind", "n1", Phase.SWAP, NEW, 0),
        ("turns", CONTROLLER, 1),
        ("delete_stack",),
        ("turns", CONTROLLER, 30),
        ("declare_stack", OLD, 0),
        ("turns", CONTROLLER, 60),
    ],
    "the controller is uninstalled, an apply is run from a terminal, and it is installed again": [
        ("uninstall",),
        ("freeze", 50.0),
        ("declare", NEW, 1),
        ("apply", "ada"),
        ("turns", "ada", 400),
        ("install",),
        ("turns", CONTROLLER, 60),
    ],
    "the pod of a swap is ended": [
        ("declare_stack", NEW, 0),
        ("change_mind", "n1", Phase.SWAP, NEW, 0),
        ("turns", CONTROLLER, 1),
        ("end_step", "n1"),
        ("turns", CONTROLLER, 20),
    ],
    "the declaration is taken back while a node is drained": [
        ("declare_stack", NEW, 0),
        ("change_mind", "n1", Phase.DRAIN, OLD, 0),
        ("turns", CONTROLLER, 60),
    ],
    "an upgrade fails, and what the node went back to is declared": [
        ("break_step", "n1", Phase.SWAP),
        ("declare_stack", NEW, 0),
        ("turns", CONTROLLER, 40),
        ("mend", "n1"),
        ("declare_stack", OLD, 0),
        ("turns", CONTROLLER, 40),
    ],
}


@pytest.mark.parametrize("events", FOUND.values(), ids=FOUND)
def test_what_was_found_on_a_cluster_is_not_found_again(events: list[Event]) -> None:
    assert not violated([*AS_DECLARED, *events])


# What the model has found by itself.

DRAWN: dict[str, list[Event]] = {
    "a node of a domain is not heard of when the others are to begin": [
        ("install",),
        ("reboot", "n3", 15.0),
        ("declare_stack", NEWER, DOMAINS),
        ("turns", CONTROLLER, 40),
    ],
    "a node of a domain that was done has had its driver changed since": [
        ("declare_stack", NEW, 5),
        ("install",),
        ("declare", NEW, 10),
        ("go_on", "ada", 21),
        ("change_mind", "n2", Phase.CORDON, OLD, 4),
        ("kill_at", "ada", 4),
    ],
    "a domain is declared while one of its nodes is drained, outside the window, and another is done": [
        ("declare_stack", NEW, 4),
        ("install",),
        ("put_clock", 7200.0),
        ("turns", CONTROLLER, 5),
        ("change_mind", "n3", Phase.DRAIN, NEW, 9),
        ("turns", CONTROLLER, 8),
    ],
    "a failed node is retried while a round goes on that has not asked it": [
        ("declare_stack", NEW, 7),
        ("install",),
        ("turns", CONTROLLER, 6),
        ("break_step", "n2", Phase.RELEASE),
        ("freeze", 400.0),
        ("go_on", "ada", 5),
        ("disturb_at", CONTROLLER, 10, "turn_back", "n4"),
        ("turns", CONTROLLER, 8),
    ],
    "a controller that was uninstalled has published what is long over": [
        ("declare_stack", OLD, 7),
        ("install",),
        ("turns", CONTROLLER, 13),
        ("turn_back",),
        ("cordon", "n4"),
        ("uninstall",),
        ("install",),
        ("turns", CONTROLLER, 13),
        ("turn_back",),
    ],
    "a domain is declared while one of its nodes is drained, and the one that is done reboots": [
        ("declare_stack", OLD, 4),
        ("install",),
        ("declare", OLD, 10),
        ("turn_back",),
        ("turns", CONTROLLER, 8),
        ("change_mind", "n4", Phase.DRAIN, NEWER, 2),
        ("stop",),
        ("reboot", "n1", 15.0),
        ("go_on", "ada", 21),
    ],
    "a node is skipped that is to get the driver of its domain": [
        ("declare_stack", OLD, 9),
        ("install",),
        ("turns", CONTROLLER, 12),
        ("declare", NEWER, 11),
        ("go_on", "ada", 34),
        ("disturb_at", CONTROLLER, 0, "skip", "n1"),
        ("change_mind", "n4", Phase.CORDON, NEW, 9),
    ],
    "a node is abandoned on its way back from a driver that is declared, as its rollout ends": [
        ("declare_stack", NEW, 2),
        ("install",),
        ("change_mind", "n4", Phase.CORDON, NEW, 10),
        ("turns", CONTROLLER, 8),
        ("stop",),
        ("change_mind", "n3", Phase.SWAP, NEWER, 9),
        ("turns", CONTROLLER, 21),
        ("turns", CONTROLLER, 21),
        ("abandon", "n1"),
        ("disturb_at", CONTROLLER, 5, "turn_back", "n1"),
    ],
    "a failure is over, as its node has what is declared, until something else is at that moment": [
        ("declare_stack", OLD, 4),
        ("install",),
        ("declare", NEWER, 9),
        ("go_on", "ada", 8),
        ("fall_ill", "n1"),
        ("go_on", "ada", 34),
        ("turns", CONTROLLER, 8),
        ("declare_stack", NEW, 2),
        ("stop",),
    ],
    "a node has what is declared when its round begins, and something else when it ends": [
        ("declare_stack", OLD, 7),
        ("install",),
        ("declare", NEW, 10),
        ("break_step", "n1", Phase.RELEASE),
        ("go_on", "ada", 34),
        ("turns", CONTROLLER, 5),
        ("turns", CONTROLLER, 1),
        ("turns", CONTROLLER, 1),
        ("disturb_at", CONTROLLER, 4, "turn_back", "n3"),
    ],
}


@pytest.mark.parametrize("events", DRAWN.values(), ids=DRAWN)
def test_what_the_model_has_found_is_not_found_again(events: list[Event]) -> None:
    assert not violated(events)


def test_a_node_that_waits_for_jobs_is_told_that_they_are_waited_for_no_more() -> None:
    fleet = played(
        ("begin_job", "n1"),
        ("declare_stack", NEW, WAITS),
        ("change_mind", "n1", Phase.JOBS, NEW, 0),
        ("turns", CONTROLLER, 240),
    )
    assert (stand(fleet), drivers(fleet)) == ({NodeIs.AS_DECLARED}, {NEW})


def test_a_failure_that_is_over_does_not_hold_up_the_next_rollout_to_the_same_driver() -> None:
    """The others waited for it, since the record of the first one said that it had failed."""
    failed: list[Event] = [("break_step", "n1", Phase.SWAP), ("declare_stack", NEW, 0), ("turns", CONTROLLER, 40)]
    back: list[Event] = [("mend", "n1"), ("declare_stack", OLD, 0), ("turns", CONTROLLER, 10)]
    fleet = played(*failed, *back, ("declare_stack", NEW, 0), ("turns", CONTROLLER, 120))
    assert (stand(fleet), drivers(fleet)) == ({NodeIs.AS_DECLARED}, {NEW})


def test_a_node_that_has_another_driver_than_is_declared_is_not_done() -> None:
    """Status said that there was nothing to do, of a node that was to be upgraded."""
    fleet = played(("declare_stack", NEW, 0), ("turns", CONTROLLER, 160))
    assert drivers(fleet) == {NEW}
    happen(fleet, ("uninstall",))
    happen(fleet, ("declare_stack", OLD, 0))
    said = [fleet.witness.status(fleet.nodes.machine(name)).situation for name in NAMES]
    assert situations.DONE not in said


def test_an_interleaving_may_be_empty() -> None:
    play([])


def test_what_is_said_is_held_against_the_machines() -> None:
    fleet = played()
    fleet.nodes.machine("n2").driver = NEW
    with pytest.raises(ViolationError, match=r"n2 is as declared .* and runs"):
        fleet.world.changed("n2")

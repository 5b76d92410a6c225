"""`rollback` without nodes undoes the last upgrade: which nodes it is about, in which waves, and after a kill."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from provision.declaration.spec.model import GpuInterface
from provision.rollout.changes.plan import Extent, plan_verb
from provision.rollout.decision.advance import begin
from provision.rollout.decision.snapshot import Write
from provision.rollout.decision.undoing import Part, part_of
from provision.rollout.model import ChangeKind, Phase
from tests.provision.rollout.fakes import NEW, NOON, OLD, record, state, view
from tests.provision.samples import make_stack

if TYPE_CHECKING:
    from provision.rollout.model import Record

from tests.provision.rollout.machines import BACK, BEFORE, CHANGED, FORWARD, OLDER, RETURNED, go_back, machines, plan


@pytest.mark.parametrize(
    ("remembered", "part"),
    [
        (None, Part.NONE),
        (CHANGED, Part.TO_RETURN),
        (record(Phase.DONE, target=OLD, origin=OLDER), Part.NONE),
        (record(Phase.DONE, target=NEW, origin=NEW), Part.NONE),
        (record(Phase.SWAP), Part.TO_RETURN),
        (record(Phase.FAILED), Part.TO_RETURN),
        (record(Phase.SWAP, target=OLD, origin=NEW), Part.TO_RETURN),
        (record(Phase.SWAP, target=NEW, origin=NEW, kind=ChangeKind.REBOOT), Part.NONE),
        (record(Phase.SWAP, target=NEW, origin=OLD, kind=ChangeKind.REBOOT), Part.TO_RETURN),
        (record(Phase.DONE, target=NEW, origin=NEW, upgraded_from=OLD, kind=ChangeKind.MIG), Part.TO_RETURN),
        (record(Phase.DONE, target=OLD, origin=OLD, upgraded_from=OLDER, kind=ChangeKind.OTHER), Part.NONE),
        (RETURNED, Part.RETURNED),
        (record(Phase.RETURNED, is_returning=True), Part.RETURNED),
        (record(Phase.RETURNED, target=OLD, origin=OLDER, is_returning=True), Part.NONE),
        (record(Phase.RETURNED, target="570.10", origin=NEW, upgraded_from=OLD), Part.TO_RETURN),  # nothing was done
        (record(Phase.DONE, target=NEW, origin=NEW, upgraded_from=OLD), Part.TO_RETURN),  # verified as it was
    ],
)
def test_a_record_and_the_declaration_tell_what_a_node_has_to_do_with_it(remembered: Record | None, part: Part) -> None:
    assert part_of(make_stack(driver={"version": NEW}).driver, remembered) is part


@pytest.mark.parametrize(
    ("target", "origin", "part"),
    [("550.163.01", OLD, Part.TO_RETURN), (OLD, "550.163.01", Part.RETURNED), (NEW, OLD, Part.NONE)],
)
def test_of_a_branch_it_is_any_version(target: str, origin: str, part: Part) -> None:
    driver = make_stack(driver={"version": None, "branch": "550"}).driver

    assert part_of(driver, record(Phase.DONE, target=target, origin=origin)) is part


KEEPING = [kind for kind in ChangeKind if kind is not ChangeKind.DRIVER]


@pytest.mark.parametrize("kind", KEEPING)
@pytest.mark.parametrize("phase", [None, Phase.SWAP, Phase.FAILED])
def test_what_changes_later_and_keeps_the_driver_hides_no_upgrade(kind: ChangeKind, phase: Phase | None) -> None:
    """After a change of the interface, or of MIG devices, `rollback` found no upgrade any more."""
    interface = GpuInterface.DRA if kind is ChangeKind.INTERFACE else None
    changes: dict[str, Any] = {"kind": kind, "interface": interface, "boot": "b2"}
    before = CHANGED
    for _ in range(2):  # it is remembered by the record of one such change, and by that of the next one
        node = state(
            "n1",
            view("n1", before),
            target=NEW,
            origin=NEW,
            **changes,
        )
        begun = begin(node, NOON)
        assert isinstance(begun, Write)
        assert begun.record is not None
        assert begun.record.origin == NEW, "the way back of this change does not lead to another driver"
        found = begun.record
        if phase is not None:  # cut short, or failed, and begun anew
            cut_short = view("n1", replace(found, phase=phase))
            again = begin(state("n1", cut_short, target=NEW, origin=NEW, **changes), NOON)
            assert isinstance(again, Write)
            assert again.record is not None
            found = again.record
        before = found.entering(Phase.DONE, NOON)
    assert part_of(make_stack(driver={"version": NEW}).driver, before) is Part.TO_RETURN


_ON_ITS_WAY = (Phase.DRAIN, Phase.SWAP, Phase.VERIFY, Phase.RESUME, Phase.FAILED)
_IN_PLACE = (Phase.SWAP, Phase.VERIFY, Phase.FAILED)
_GOING_BACK = (Phase.ROLLBACK, Phase.VERIFY, Phase.RETURNED)


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize(
    ("kind", "phase", "is_returning"),
    [
        *((kind, phase, False) for kind in KEEPING for phase in (_IN_PLACE if kind.is_in_place else _ON_ITS_WAY)),
        *((kind, phase, True) for kind in KEEPING for phase in _GOING_BACK),
    ],
)
def test_the_upgrade_is_undone_wherever_a_later_change_is_that_keeps_the_driver(
    kind: ChangeKind, phase: Phase, *, is_returning: bool, is_named: bool
) -> None:
    """It was told as undone, with the new driver on the node, and was remembered no more."""
    left = record(
        phase,
        target=NEW,
        origin=NEW,
        upgraded_from=OLD,
        kind=kind,
        interface=GpuInterface.DRA if kind is ChangeKind.INTERFACE else None,
        origin_change=FORWARD,
        failed_in=Phase.VERIFY if is_returning or phase is Phase.FAILED else None,
        is_returning=is_returning,
    )
    found = machines(n1=left)
    found.cluster.nodes["n1"].is_cordoned = not phase.is_in_service and not kind.is_in_place

    assert go_back(found, *(["n1"] if is_named else [])) == {"n1": "returned"}

    assert found.loaded == {"n1": OLD}
    assert not found.cluster.nodes["n1"].is_cordoned


def test_another_driver_makes_the_one_before_it_the_one_to_go_back_to() -> None:
    kept = record(Phase.DONE, target=OLD, origin=OLD, upgraded_from=OLDER, kind=ChangeKind.INTERFACE)
    node = state("n1", view("n1", kept), target=NEW, origin=OLD)
    begun = begin(node, NOON)
    assert isinstance(begun, Write)
    assert begun.record is not None
    assert begun.record.before_upgrade == OLD


@pytest.mark.parametrize("driver", [{"enabled": False}, {"version": None}])
def test_a_declaration_without_a_version_names_no_upgrade(driver: dict[str, object]) -> None:
    assert part_of(make_stack(driver=driver).driver, CHANGED) is Part.NONE


def test_it_is_about_the_nodes_of_the_last_upgrade_and_the_others_stay_as_they_are() -> None:
    found = machines(
        n1=CHANGED,
        n2=None,
        n3=record(Phase.DONE, target=OLD, origin=OLDER),
        n4=record(Phase.FAILED, failed_in=Phase.VERIFY, origin_change=BEFORE),
        n5=CHANGED,
    )

    assert go_back(found) == {
        "n1": "returned",
        "n2": "unchanged",
        "n3": "unchanged",
        "n4": "returned",
        "n5": "returned",
    }
    assert found.returned == ["n4", "n1", "n5"], "what failed is out of service already, and comes first"
    assert not any(node.is_cordoned for node in found.cluster.nodes.values())
    assert found.cluster.most_out == 1


def test_the_canary_goes_first_again_and_a_held_wave_holds() -> None:
    waves = [{"hosts": ["n3"], "gate": "hold"}, {}]
    found = machines(n1=CHANGED, n2=CHANGED, n3=CHANGED)

    first = go_back(found, waves=waves)

    assert found.returned == ["n3"]
    assert first == {"n1": "waiting", "n2": "waiting", "n3": "returned"}
    waves[0]["gate"] = "healthy"
    assert set(go_back(found, waves=waves).values()) == {"returned"}
    assert found.returned == ["n3", "n1", "n2"]


def test_after_a_kill_it_goes_on_and_takes_no_node_further_back() -> None:
    found = machines(**{f"n{number}": CHANGED for number in range(1, 5)})
    found.dies_at = "n3"
    assert go_back(found)["n3"] == "canceled"
    assert found.returned == ["n1", "n2"]
    found.dies_at = ""

    planned = plan(found, waves=[{"size": 1}, {}])
    assert {state.name: state.wave for state in planned.prepared.states} == {"n1": 0, "n2": 1, "n3": 1, "n4": 1}
    assert {name: result.note for name, result in planned.settled.items()} == dict.fromkeys(
        ("n1", "n2"), f"had {OLD} again before"
    )
    assert set(go_back(found).values()) == {"returned"}
    assert found.returned == ["n1", "n2", "n3", "n4"]
    assert set(go_back(found).values()) == {"returned"}, "once more is not one further"
    assert found.returned == ["n1", "n2", "n3", "n4"]


def test_named_nodes_that_have_returned_go_no_further_by_themselves() -> None:
    found = machines(n1=CHANGED, n2=CHANGED)
    go_back(found)

    assert set(go_back(found, named=True).values()) == {"returned"}
    assert found.returned == ["n1", "n2"]


def test_further_is_a_word_of_its_own() -> None:
    found = machines(n1=RETURNED)
    stacks, views = {"n1": make_stack(driver={"version": NEW})}, found.cluster.observe(["n1"])

    planned = plan_verb(BACK, {"n1": found.facts("n1")}, stacks, views, Extent(further=True))

    assert planned.prepared.rollout == ("n1",)
    assert planned.targets == {"n1": OLDER}


@pytest.mark.parametrize("upgraded_from", ["", OLDER])
@pytest.mark.parametrize("phase", [Phase.CORDON, Phase.DRAIN])
def test_a_node_that_an_upgrade_has_not_touched_yet_is_put_back_at_once(phase: Phase, upgraded_from: str) -> None:
    before = record(phase, origin_change=BEFORE, upgraded_from=upgraded_from)
    found = machines(n1=before)
    found.loaded["n1"] = OLD

    assert go_back(found) == {"n1": "returned"}

    assert (found.returned, found.fleet.nodes["n1"].verbs) == ([], [])
    node = found.cluster.nodes["n1"]
    assert (node.record, node.is_cordoned) == (before.last_upgrade, False)


@pytest.mark.parametrize("upgraded_from", ["", OLDER])
@pytest.mark.parametrize("phase", [Phase.RELEASE, Phase.FAILED])
def test_a_node_that_an_upgrade_has_not_changed_yet_is_verified_and_put_back_as_it_is(
    phase: Phase, upgraded_from: str
) -> None:
    """A `back` would have undone the upgrade before."""
    failed_in = Phase.DRAIN if phase is Phase.FAILED else None
    found = machines(n1=record(phase, origin_change=BEFORE, failed_in=failed_in, upgraded_from=upgraded_from))
    found.loaded["n1"] = OLD

    assert go_back(found) == {"n1": "returned"}

    assert found.returned == []
    assert found.fleet.nodes["n1"].verbs == ["verify", "resume"]
    node = found.cluster.nodes["n1"]
    assert node.record is not None
    assert (node.record.phase, node.record.target, node.is_cordoned) == (Phase.DONE, OLD, False)


def test_a_node_that_does_not_answer_is_told_if_it_was_changed() -> None:
    found = machines(n1=CHANGED, n2=None, n3=CHANGED)
    found.loaded["n1"] = found.loaded["n2"] = ""

    assert go_back(found) == {"n1": "unreachable", "n2": "unchanged", "n3": "returned"}


def test_percentages_are_of_all_nodes() -> None:
    found = machines(n1=CHANGED, n2=None, n3=None, n4=None)

    planned = plan(found, maxUnavailable="50%")

    assert planned.prepared.policy.max_unavailable == 2
    assert [state.name for state in planned.prepared.states] == ["n1", "n2", "n3", "n4"]

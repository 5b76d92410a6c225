"""Which driver a node is said to have: what is declared, reported and there counts, and not what was written down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provision.rollout.model import ChangeKind, Phase
from provision.rollout.status import situations
from provision.rollout.status.model import StackSeen, StackTrouble
from tests.provision.rollout.fakes import NEW, OLD, record, view
from tests.provision.rollout.status.test_derive import ADA, only, standing, status
from tests.provision.samples import make_stack


def declares(version: str) -> dict[str, object]:
    return {"declared": {"n1": make_stack(driver={"version": version}).driver}}


def test_a_node_that_is_yet_to_be_upgraded_is_not_done_for_its_upgrade_before() -> None:
    """It was "done, next: nothing", with the driver of the upgrade before the one that was declared."""
    done = view("n1", record(Phase.DONE, target=OLD))
    waits = status(done, tenant=ADA, standing=standing(), **declares(NEW))
    assert (only(waits), waits.needs_somebody) == (situations.WAITING, False)
    assert OLD in waits.nodes[0].reason
    assert NEW in waits.nodes[0].reason
    assert only(status(done, **declares(NEW))) is situations.NOT_BEGUN
    assert only(status(done, **declares(OLD))) is situations.DONE
    assert only(status(done)) is situations.DONE, "nobody knows what is declared"
    said = StackSeen(name="pool", troubles=(StackTrouble("n1", "waits for Saturday"),))
    assert status(done, stacks=(said,), **declares(NEW)).nodes[0].reason == "waits for Saturday"


def test_a_failed_upgrade_is_over_when_the_driver_that_the_node_has_is_declared_again() -> None:
    """It needed somebody for ever."""
    returned = view("n1", record(Phase.RETURNED, target=NEW, origin=OLD, is_returning=True, reason="it broke"))
    assert only(status(returned, **declares(NEW))) is situations.RETURNED
    again = status(returned, **declares(OLD))
    assert (only(again), again.needs_somebody) == (situations.DONE, False)


def test_what_the_node_daemon_reports_counts_and_not_what_was_written_down() -> None:
    done = view("n1", record(Phase.DONE, target=NEW), driver=OLD)
    found = status(done)
    assert (only(found), found.needs_somebody) == (situations.CHANGED_SINCE, True)
    assert OLD in found.nodes[0].reason
    assert only(status(done, **declares(NEW))) is situations.NOT_BEGUN
    assert only(status(replace(done, driver=NEW), **declares(NEW))) is situations.DONE
    assert only(status(replace(done, record=record(Phase.DONE, target="")))) is situations.CHANGED_SINCE
    reboot = record(Phase.DONE, target=NEW, kind=ChangeKind.REBOOT)
    assert only(status(view("n1", reboot, driver=OLD))) is situations.DONE


def test_a_node_without_a_driver_is_not_in_service_with_the_declared_one() -> None:
    """After `grapnel remove` it was "done, in service with the driver that was declared", and the exit code was 0."""
    bare = view("n1", record(Phase.DONE, target="", origin=NEW))
    found = status(bare, **declares(NEW))
    assert (only(found), found.needs_somebody) == (situations.NOT_BEGUN, True)
    assert found.nodes[0].reason == f"it has no driver, and {NEW} is declared"

    disabled = {"n1": make_stack(driver={"enabled": False}).driver}
    for more in ({}, {"declared": disabled}):
        left = status(bare, **more)
        assert (only(left), left.needs_somebody) == (situations.WITHOUT_DRIVER, False)
    rebooted = record(Phase.DONE, target="", kind=ChangeKind.REBOOT)
    assert only(status(view("n1", rebooted))) is situations.DONE


@pytest.mark.parametrize(("is_cordoned", "remarks"), [(True, ()), (False, ("it is not cordoned, and takes pods",))])
def test_a_node_that_failed_and_is_in_service_is_told_so(is_cordoned: bool, remarks: tuple[str, ...]) -> None:  # noqa: FBT001 - a column of the table
    """It was said to stay out of service."""
    found = status(view("n1", record(Phase.FAILED, failed_in=Phase.DRAIN), is_cordoned=is_cordoned))
    assert found.nodes[0].remarks == remarks

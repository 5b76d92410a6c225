"""How long an upgrade is expected to take, by what was measured."""

from __future__ import annotations

from provision.rollout.model import ChangeKind, Phase
from provision.rollout.status.estimate import foreseeing, measure
from tests.provision.rollout.fakes import MINUTE, NEW, NOON, record

EARLIER = NOON - 60 * MINUTE
SWAPPED = record(Phase.DONE, since=EARLIER, took={Phase.SWAP: 60.0})
REBOOTED = record(Phase.DONE, since=EARLIER, took={Phase.SWAP: 900.0}, kind=ChangeKind.REBOOT)


def test_a_reboot_does_not_measure_an_upgrade() -> None:
    assert foreseeing([SWAPPED, REBOOTED], {NEW}).medians == {Phase.SWAP: 60.0}


def test_a_rollout_is_measured_by_nodes_of_its_own_kind() -> None:
    upgrading, rebooting = record(Phase.SWAP), record(Phase.SWAP, kind=ChangeKind.REBOOT)

    assert measure([SWAPPED, REBOOTED, rebooting], None).medians == {Phase.SWAP: 900.0}
    assert measure([SWAPPED, REBOOTED, upgrading], None).medians == {Phase.SWAP: 60.0}

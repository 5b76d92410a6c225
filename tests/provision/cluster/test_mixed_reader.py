"""The status of a fleet whose nodes belong to several places."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from provision.cluster.local.cluster import LocalCluster
from provision.cluster.mixed_reader import MixedReader, merge
from provision.cluster.reader import StateFileReader
from provision.cluster.schedulers.cluster import ScheduledCluster, SchedulerNode
from provision.rollout.errors import UnreachableError
from provision.rollout.interface.standing import Standing
from provision.rollout.model import NodeView, Phase
from provision.rollout.status.model import Seen, Tenant
from tests.provision.cluster.test_scheduled_cluster import FakeScheduler
from tests.provision.rollout.fakes import MINUTE, NOON, record, view

if TYPE_CHECKING:
    from pathlib import Path

    from provision.rollout.interface.cluster import NodeProblem

STANDING = Standing(
    began=NOON, time=NOON, at_once=1, soak=timedelta(0), out=frozenset({"k1"}), waiting={"s1": "waits for k1: swap"}
)
FILE = Seen(place="state file", time=NOON, nodes={"s1": view("s1")}, standing=STANDING)
CLUSTER = Seen(place="cluster", time=NOON + MINUTE, nodes={"k1": view("k1")})


class Reader:
    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def look(self) -> Seen:
        return self.seen

    def follow(self, timeout_s: float) -> Seen:
        raise AssertionError(timeout_s)


def test_two_places_are_shown_as_one_in_the_order_of_the_inventory() -> None:
    waits: list[float] = []
    reader = MixedReader([Reader(FILE), Reader(CLUSTER)], ["k1", "s1"], sleep=waits.append)

    seen = reader.follow(2.0)

    assert waits == [2.0]
    assert list(seen.nodes) == ["k1", "s1"]
    assert (seen.place, seen.time, seen.standing) == ("state file; cluster", NOON + MINUTE, STANDING)


def test_whoever_is_at_work_anywhere_is_at_work() -> None:
    gone, busy = Tenant(holder="bob", is_at_work=False), Tenant(holder="ada")
    assert merge([replace(FILE, tenant=gone), replace(CLUSTER, tenant=busy)], ["k1"]).tenant == busy
    assert merge([replace(FILE, tenant=gone), CLUSTER], ["k1"]).tenant == gone
    assert merge([FILE, CLUSTER], ["k1"]).tenant is None


def test_the_last_rollout_is_believed_and_of_one_what_the_state_file_has() -> None:
    """The lease was renewed after the file was written, and nodes of Slurm had no reason any more."""
    later = replace(STANDING, began=NOON + MINUTE, time=NOON + MINUTE, waiting={})
    assert merge([FILE, replace(CLUSTER, standing=later)], ["k1"]).standing == later
    renewed = replace(STANDING, time=NOON + MINUTE, waiting={})
    assert merge([FILE, replace(CLUSTER, standing=renewed)], ["k1"]).standing == STANDING


def test_what_cannot_be_read_of_either_is_told() -> None:
    parts = [replace(FILE, complaints=("a",)), replace(CLUSTER, complaints=("b",), is_lease_known=False)]
    seen = merge(parts, ["k1"])
    assert (seen.complaints, seen.is_lease_known) == (("a", "b"), False)


def test_a_scheduler_that_is_away_leaves_what_the_state_file_has(tmp_path: Path) -> None:
    class Away(FakeScheduler):
        def look(self, views: object) -> dict[str, SchedulerNode | NodeProblem]:
            raise UnreachableError("scontrol of Slurm: no answer within 30 s")

    path = tmp_path / "node-state-x.json"
    journal = LocalCluster(path)
    journal.observe(["n1"])
    journal.write("n1", record(Phase.SWAP), cordoned=True)

    seen = StateFileReader(path, ["n1"], scheduled=ScheduledCluster(LocalCluster(path), Away({}))).look()

    found = seen.nodes["n1"]
    assert isinstance(found, NodeView)
    assert found.record == record(Phase.SWAP)
    assert seen.complaints == ("nodes are shown as the state file has them: scontrol of Slurm: no answer within 30 s",)


def test_a_scheduler_is_asked_where_there_is_one(tmp_path: Path) -> None:
    scheduler = FakeScheduler({"n1": SchedulerNode(why_not_ready="slurmd does not answer")})
    path = tmp_path / "node-state-x.json"
    waits: list[float] = []
    reader = StateFileReader(
        path, ["n1"], sleep=waits.append, scheduled=ScheduledCluster(LocalCluster(path), scheduler)
    )

    found = reader.follow(2.0).nodes["n1"]

    assert isinstance(found, NodeView)
    assert (found.is_ready, found.why_not_ready) == (False, "slurmd does not answer")
    assert waits == [10.0], "less often than two small files"

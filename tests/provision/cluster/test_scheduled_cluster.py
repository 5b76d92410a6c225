"""Records in the state file, drains in a scheduler: what a process that is cut off anywhere leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from provision.cluster.local.cluster import LocalCluster
from provision.cluster.schedulers.cluster import REGISTERS, ScheduledCluster, SchedulerNode, reason_of
from provision.rollout.errors import ConflictError
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import ChangeKind, Job, NodeView, Phase
from tests.provision.rollout.fakes import NEW, record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from provision.rollout.model import Record


class CutOffError(BaseException):
    """The process is killed here."""


@dataclass
class FakeScheduler:
    """A scheduler in memory. The effect number ``cut_before`` or ``cut_after`` is the last one of its process."""

    nodes: dict[str, SchedulerNode]
    reasons: dict[str, str] = field(default_factory=dict)
    cut_before: int = -1
    cut_after: int = -1
    effects: int = 0
    name: str = "queue"

    def look(self, views: Mapping[str, NodeView]) -> dict[str, SchedulerNode | NodeProblem]:
        missing = NodeProblem(name="", message="it is not there")
        return {name: self.nodes.get(name) or replace(missing, name=name) for name in views}

    def drain(self, node: str, reason: str) -> None:
        self._change(node, is_drained=True)
        self.reasons[node] = reason

    def resume(self, node: str) -> None:
        self._change(node, is_drained=False)

    def _change(self, node: str, *, is_drained: bool) -> None:
        self.effects += 1
        if self.effects == self.cut_before:
            raise CutOffError
        self.nodes[node] = replace(self.nodes[node], is_drained=is_drained, is_ours=is_drained)
        if self.effects == self.cut_after:
            raise CutOffError


@pytest.fixture
def scheduler() -> FakeScheduler:
    return FakeScheduler({"n1": SchedulerNode(), "n2": SchedulerNode()})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node-state-x.json"


def connect(path: Path, scheduler: FakeScheduler) -> ScheduledCluster:
    return ScheduledCluster(LocalCluster(path), scheduler)


def look(cluster: ScheduledCluster, node: str = "n1") -> NodeView:
    found = cluster.observe([node])[node]
    assert isinstance(found, NodeView), found
    return found


def upgrade(cluster: ScheduledCluster) -> None:
    """Do what an engine does: continue from the record, whatever it says."""
    way = [Phase.CORDON, Phase.JOBS, Phase.DRAIN, Phase.RELEASE, Phase.SWAP, Phase.VERIFY, Phase.RESUME, Phase.DONE]
    seen = look(cluster)
    at = -1 if seen.record is None else way.index(seen.record.phase)
    was_cordoned = seen.is_cordoned if seen.record is None else seen.record.was_cordoned
    for phase in way[at + 1 :]:
        cordoned = (None if was_cordoned else False) if phase is Phase.DONE else True
        cluster.write("n1", record(phase, was_cordoned=was_cordoned), cordoned=cordoned)
        look(cluster)


def test_a_node_is_drained_with_a_reason_and_resumed(path: Path, scheduler: FakeScheduler) -> None:
    cluster = connect(path, scheduler)

    upgrade(cluster)

    assert scheduler.effects == 2, "one drain, one resume"
    assert scheduler.reasons["n1"] == f"driver-{NEW}"
    seen = look(cluster)
    assert (seen.is_cordoned, seen.record and seen.record.phase) == (False, Phase.DONE)


def test_a_node_that_reboots_says_so_in_its_reason() -> None:
    assert reason_of(record(Phase.DRAIN, kind=ChangeKind.REBOOT)) == "reboot"


@pytest.mark.parametrize("cut", [{"cut_before": 1}, {"cut_after": 1}, {"cut_before": 2}, {"cut_after": 2}])
def test_whoever_is_cut_off_at_a_drain_or_a_resume_forgets_none(
    path: Path, scheduler: FakeScheduler, cut: dict[str, int]
) -> None:
    vars(scheduler).update(cut)
    with pytest.raises(CutOffError):
        upgrade(connect(path, scheduler))
    scheduler.cut_before = scheduler.cut_after = -1

    left: Record | None = look(connect(path, scheduler)).record
    assert left is not None
    assert not left.was_cordoned
    upgrade(connect(path, scheduler))

    seen = look(connect(path, scheduler))
    assert (seen.is_cordoned, seen.record and seen.record.phase) == (False, Phase.DONE)
    assert not scheduler.nodes["n1"].is_drained


def test_a_drain_of_others_is_neither_taken_over_nor_ended(path: Path, scheduler: FakeScheduler) -> None:
    scheduler.nodes["n1"] = SchedulerNode(is_drained=True)

    upgrade(connect(path, scheduler))

    assert scheduler.effects == 0
    assert scheduler.nodes["n1"] == SchedulerNode(is_drained=True)


def test_a_node_that_others_drain_just_then_is_a_conflict(path: Path, scheduler: FakeScheduler) -> None:
    cluster = connect(path, scheduler)
    look(cluster)
    scheduler.nodes["n1"] = SchedulerNode(is_drained=True)

    with pytest.raises(ConflictError, match="n1 was drained in queue by somebody else"):
        cluster.write("n1", record(Phase.CORDON), cordoned=True)
    assert look(cluster).record is None


def test_a_node_that_was_resumed_by_others_is_drained_again(path: Path, scheduler: FakeScheduler) -> None:
    cluster = connect(path, scheduler)
    look(cluster)
    cluster.write("n1", record(Phase.CORDON), cordoned=True)
    scheduler.nodes["n1"] = SchedulerNode(jobs=(Job(id="job 7"),))
    assert not look(cluster).is_cordoned

    cluster.write("n1", record(Phase.JOBS), cordoned=True)

    assert scheduler.nodes["n1"].is_drained


def test_a_record_that_another_process_changed_is_a_conflict_before_the_resume(
    path: Path, scheduler: FakeScheduler
) -> None:
    cluster, other = connect(path, scheduler), connect(path, scheduler)
    look(cluster)
    cluster.write("n1", record(Phase.CORDON), cordoned=True)
    look(other)
    other.write("n1", record(Phase.JOBS), cordoned=True)

    with pytest.raises(ConflictError):
        cluster.write("n1", record(Phase.DONE), cordoned=False)
    assert scheduler.nodes["n1"].is_drained


def test_a_node_that_left_the_scheduler_is_a_conflict(path: Path, scheduler: FakeScheduler) -> None:
    cluster = connect(path, scheduler)
    look(cluster)
    cluster.write("n1", record(Phase.CORDON), cordoned=True)
    del scheduler.nodes["n1"]

    with pytest.raises(ConflictError, match="it is not there"):
        cluster.write("n1", record(Phase.DONE), cordoned=False)
    assert isinstance(cluster.observe(["n1"])["n1"], NodeProblem)


def test_a_node_that_fails_says_where(path: Path, scheduler: FakeScheduler) -> None:
    cluster = connect(path, scheduler)
    look(cluster)
    cluster.write("n1", record(Phase.SWAP), cordoned=True)

    cluster.write("n1", record(Phase.FAILED, failed_in=Phase.SWAP), cordoned=None)

    assert scheduler.reasons["n1"] == "failed-in-swap"


def test_what_the_scheduler_says_is_in_the_view(path: Path, scheduler: FakeScheduler) -> None:
    job = Job(id="job 7", user="ada")
    scheduler.nodes["n1"] = SchedulerNode(jobs=(job,), why_not_ready="away", held_by="fans")

    seen = look(connect(path, scheduler))

    assert (seen.work, seen.is_ready, seen.why_not_ready, seen.held_by) == ((job,), False, "away", "fans")


@dataclass
class Clock:
    """Stands still until it is moved."""

    now: datetime

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def resuming(path: Path, scheduler: FakeScheduler) -> tuple[ScheduledCluster, Clock]:
    """Return a cluster with a node in its last phase, which registered before it was changed."""
    scheduler.nodes["n1"] = SchedulerNode(registered="boot 1 start 1")
    resume = record(Phase.RESUME)
    clock = Clock(resume.since)
    cluster = ScheduledCluster(LocalCluster(path), scheduler, clock=clock)
    look(cluster)
    for entered in (record(Phase.CORDON), record(Phase.RELEASE), record(Phase.SWAP), resume):
        cluster.write("n1", entered, cordoned=True)
        look(cluster)
    return cluster, clock


def test_a_changed_node_is_not_ready_before_it_has_registered_again(
    resuming: tuple[ScheduledCluster, Clock], scheduler: FakeScheduler
) -> None:
    cluster, clock = resuming
    until = f"{clock.now + REGISTERS:%H:%M:%S}"
    assert look(cluster).why_not_ready == (
        f"it may have yet to register with queue after a reboot: waited for until {until} UTC at the latest"
    )
    assert not look(cluster).is_ready

    scheduler.nodes["n1"] = replace(scheduler.nodes["n1"], registered="boot 1 start 2")

    assert look(cluster).is_ready


def test_a_node_on_which_nothing_was_started_is_ready_after_a_while(
    resuming: tuple[ScheduledCluster, Clock], scheduler: FakeScheduler, path: Path
) -> None:
    cluster, clock = resuming
    later = ScheduledCluster(LocalCluster(path), scheduler, clock=clock)
    assert not look(later).is_ready, "it does not know how the node was before"

    clock.now += REGISTERS

    assert look(cluster).is_ready
    assert look(later).is_ready


def test_a_registration_before_the_change_says_nothing(path: Path, scheduler: FakeScheduler) -> None:
    """Somebody may restart slurmd while jobs are waited for."""
    scheduler.nodes["n1"] = SchedulerNode(registered="boot 1 start 1")
    resume = record(Phase.RESUME)
    cluster = ScheduledCluster(LocalCluster(path), scheduler, clock=Clock(resume.since))
    look(cluster)
    cluster.write("n1", record(Phase.JOBS), cordoned=True)
    scheduler.nodes["n1"] = replace(scheduler.nodes["n1"], registered="boot 1 start 2")
    look(cluster)

    cluster.write("n1", resume, cordoned=True)

    assert not look(cluster).is_ready


def test_a_node_that_others_have_drained_is_not_waited_for(path: Path, scheduler: FakeScheduler) -> None:
    scheduler.nodes["n1"] = SchedulerNode(is_drained=True, registered="boot 1 start 1")
    resume = record(Phase.RESUME, was_cordoned=True)
    cluster = ScheduledCluster(LocalCluster(path), scheduler, clock=Clock(resume.since))
    look(cluster)

    cluster.write("n1", resume, cordoned=None)

    assert look(cluster).is_ready

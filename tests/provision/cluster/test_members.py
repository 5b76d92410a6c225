"""A fleet whose nodes belong to several clusters, in one rollout."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from provision.cluster.composite import CompositeCluster
from provision.cluster.errors import KubeconfigError
from provision.cluster.local.cluster import LocalCluster
from provision.cluster.members import open_members
from provision.cluster.schedulers.cluster import ScheduledCluster, SchedulerNode
from provision.declaration.spec.model import Commands, Scheduler, SchedulerKind, Slurm, StackSpec
from provision.rollout.adapters import Adapters
from provision.rollout.decision.policy import Policy
from provision.rollout.engine import Engine
from provision.rollout.errors import HeldError
from provision.rollout.interface.progress import NodeWaits, PhaseEntered
from provision.rollout.model import Job, NodeView, Origin, Phase
from provision.rollout.step import StepOutcome
from tests.provision.cluster.test_scheduled_cluster import FakeScheduler
from tests.provision.rollout.fakes import FakeCluster, FakeNode, FakeSteps, pod, state

if TYPE_CHECKING:
    from pathlib import Path

    from provision.apply.model import Observer
    from provision.rollout.interface.cluster import Cluster
    from provision.rollout.interface.progress import RolloutProgress

SLURM = StackSpec(scheduler=Scheduler(kind=SchedulerKind.SLURM, slurm=Slurm(command=("ssh", "slurm1"))))
COMMANDS = Commands(drain=("a", "{node}"), is_drained=("b", "{node}"), resume=("c", "{node}"))
QUEUE = StackSpec(scheduler=Scheduler(kind=SchedulerKind.COMMANDS, commands=COMMANDS))
NONE = StackSpec(scheduler=Scheduler(kind=SchedulerKind.NONE))
KUBERNETES = StackSpec(scheduler=Scheduler(kind=SchedulerKind.KUBERNETES))
AUTO = StackSpec()


@pytest.fixture
def journal(tmp_path: Path) -> LocalCluster:
    return LocalCluster(tmp_path / "node-state-x.json")


def opened(stacks: dict[str, StackSpec], journal: LocalCluster, kubernetes: Cluster | None = None) -> Cluster:
    return open_members(stacks, lambda: kubernetes or journal, journal=journal, machines={}, environ={})


def test_one_kind_of_nodes_is_one_cluster(journal: LocalCluster) -> None:
    kubernetes = FakeCluster({})
    assert opened({"n1": AUTO, "n2": AUTO}, journal, kubernetes) is kubernetes
    assert opened({"n1": AUTO, "n2": KUBERNETES}, journal, kubernetes) is kubernetes
    assert opened({"n1": AUTO}, journal) is journal
    assert opened({"n1": NONE}, journal, kubernetes) is journal
    assert opened({}, journal, kubernetes) is kubernetes
    slurm = opened({"n1": SLURM, "n2": SLURM}, journal, kubernetes)
    assert isinstance(slurm, ScheduledCluster)
    assert slurm.name == f"Slurm by slurm1, {journal.name}"


def test_kubernetes_is_not_asked_for_nodes_that_are_elsewhere(journal: LocalCluster) -> None:
    def refuse() -> Cluster:
        raise AssertionError

    open_members({"n1": SLURM, "n2": QUEUE, "n3": NONE}, refuse, journal=journal, machines={}, environ={})


def test_nodes_of_kubernetes_need_one(journal: LocalCluster) -> None:
    with pytest.raises(KubeconfigError, match="declared to be in Kubernetes"):
        opened({"n1": KUBERNETES}, journal)


def mixed(journal: LocalCluster) -> tuple[CompositeCluster, FakeCluster, FakeScheduler]:
    """Return two nodes of Kubernetes and two of another scheduler, as one."""
    kubernetes = FakeCluster({"k1": FakeNode(pods=[pod("web")]), "k2": FakeNode()})
    scheduler = FakeScheduler({"s1": SchedulerNode(jobs=(Job(id="job 7"),)), "s2": SchedulerNode()})
    scheduled = ScheduledCluster(journal, scheduler)
    homes: dict[str, Cluster] = {"k1": kubernetes, "s1": scheduled, "k2": kubernetes, "s2": scheduled}
    return CompositeCluster(homes, [journal, kubernetes], kubernetes), kubernetes, scheduler


class Steps:
    """Steps of both kinds of nodes."""

    def __init__(self, kubernetes: FakeCluster) -> None:
        self._steps = FakeSteps(kubernetes)
        self._kubernetes = kubernetes
        self.done: list[tuple[str, Phase]] = []

    def run(
        self, node: str, phase: Phase, observe: Observer, cancel: threading.Event, back: Origin | None = None
    ) -> StepOutcome:
        self.done.append((node, phase))
        assert back is None
        return self._steps.run(node, phase, observe, cancel) if node in self._kubernetes.nodes else StepOutcome()


def test_one_rollout_goes_over_both_and_counts_both(journal: LocalCluster) -> None:
    cluster, kubernetes, scheduler = mixed(journal)
    seen: list[RolloutProgress] = []
    out: set[str] = set()
    most = 0

    def observe(one: RolloutProgress) -> None:
        nonlocal most
        seen.append(one)
        if isinstance(one, PhaseEntered):
            (out.discard if one.phase is Phase.DONE else out.add)(one.node)
            most = max(most, len(out))
        if isinstance(one, NodeWaits) and one.node == "s1" and "job 7" in one.reason:
            scheduler.nodes["s1"] = SchedulerNode(is_drained=True, is_ours=True)  # the job ends

    views = cluster.observe(["k1", "s1", "k2", "s2"])
    assert list(views) == ["k1", "s1", "k2", "s2"]
    nodes = [state(name, view) for name, view in views.items() if isinstance(view, NodeView)]
    adapters = Adapters(cluster=cluster, steps=Steps(kubernetes), poll_s=0.0005)
    policy = Policy(max_unavailable=1, max_parallel=4)
    with cluster.lease("ada"):
        assert kubernetes.is_held
        ending = Engine(adapters, nodes, policy, observe=observe, cancel=threading.Event()).run()

    assert not ending.stop
    assert most == 1, "maxUnavailable is one over all"
    assert [one.node for one in seen if isinstance(one, PhaseEntered) and one.phase is Phase.DONE] == list(views)
    assert kubernetes.evicted == ["web"]
    assert scheduler.effects == 4
    for found in cluster.observe(["k1", "s1", "k2", "s2"]).values():
        assert isinstance(found, NodeView)
        assert not found.is_cordoned


def test_a_lock_that_somebody_has_leaves_no_other_taken(journal: LocalCluster) -> None:
    cluster, kubernetes, _scheduler = mixed(journal)
    kubernetes.is_held = True

    with pytest.raises(HeldError, match="somebody else is at work"), cluster.lease("ada"):
        pytest.fail("two engines at once")
    with journal.lease("bob"), pytest.raises(HeldError, match="bob is changing nodes"), cluster.lease("ada"):
        pytest.fail("two engines at once")

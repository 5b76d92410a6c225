"""`plan` and `apply` when nodes have to be taken out of service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from provision.base.errors import GrapnelError
from provision.cli.change.apply import apply_nodes
from provision.cli.foresee.plan import show_plans
from provision.rollout.errors import ClusterError, HeldError, RuntimeClassError
from provision.rollout.model import Phase
from tests.provision.apply.fakes import FakeFleet, FakeNode, cluster_of, context, plan_drain, scope_of
from tests.provision.rollout.fakes import NEW, pod, record

if TYPE_CHECKING:
    from tests.provision.rollout.fakes import FakeCluster

TRAIN: dict[str, object] = {"pid": 7, "command": "train"}


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet({"n1": FakeNode(holders=[TRAIN]), "n2": FakeNode(["driver"]), "n3": FakeNode()})


@pytest.fixture
def cluster(fleet: FakeFleet) -> FakeCluster:
    cluster = cluster_of(fleet)
    cluster.nodes["n1"].pods = [pod("web-1"), pod("alone", controller="")]
    return cluster


def apply(fleet: FakeFleet, cluster: FakeCluster, *, check: bool = False) -> int:
    scope = scope_of(cluster, driver={"version": NEW})
    return apply_nodes(context(fleet, plan_drain, check=check), scope, parallel=2, consent=True)


def test_that_nodes_are_as_declared_is_withdrawn_before_they_are_changed_where_they_stand() -> None:
    """A controller's word stood while a terminal changed the node, and was believed when it was installed again."""
    fleet = FakeFleet({"n1": FakeNode(), "n2": FakeNode(["driver", "runtime"])})
    cluster = cluster_of(fleet)
    cluster.claims = {"n1", "n2"}
    seen: list[set[str]] = []
    fleet.on_install = lambda _node, _cancel: seen.append(set(cluster.claims))
    apply_nodes(context(fleet), scope_of(cluster, driver={"version": NEW}), parallel=1, consent=True)
    assert fleet.applied()
    assert seen[0] == {"n2"} == cluster.claims, "nothing is done on the other one"


def test_nothing_is_changed_on_a_node_whose_claim_cannot_be_withdrawn() -> None:
    fleet = FakeFleet({"n1": FakeNode()})
    cluster = cluster_of(fleet)
    cluster.claims = {"n1"}
    cluster.effect = refuse
    with pytest.raises(ClusterError):
        apply_nodes(context(fleet), scope_of(cluster, driver={"version": NEW}), parallel=1, consent=True)
    assert fleet.applied() == []


def refuse(effect: str) -> None:
    raise ClusterError(f"{effect}: forbidden")


PLAN = f"""\
rollout (cluster test): 1 at a time, at most 1 of 3 nodes out
 expected to take: not measured yet
 1.  n1  {NEW}  evicts shop/web-1, shop/alone (nothing restarts it)
 2.  n3  {NEW}  nothing has to leave it

RuntimeClass nvidia will be created on cluster test"""


def test_plan_shows_who_goes_out_of_service_in_which_order_and_whose_work(
    fleet: FakeFleet, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.classes = []
    scope = scope_of(cluster, driver={"version": NEW})
    assert show_plans(context(fleet, plan_drain), scope, as_json=False, tell_changes=True) == 3
    output = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert PLAN in output
    assert "refused" not in output, "a GPU that is held is what the rollout is for"
    assert (cluster.writes, cluster.classes, fleet.applied()) == ([], [], [])


def test_json_of_plan_has_the_rollout(
    fleet: FakeFleet, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.nodes["n3"].record = record(Phase.SWAP)
    show_plans(context(fleet, plan_drain), scope_of(cluster, driver={"version": NEW}), as_json=True, tell_changes=True)
    rollout = json.loads(capsys.readouterr().out)["rollout"]
    assert (rollout["maxParallel"], rollout["maxUnavailable"], rollout["cluster"]) == (1, 1, "cluster test")
    assert [(node["node"], node["phase"]) for node in rollout["nodes"]] == [("n3", "swap"), ("n1", None)]
    assert rollout["nodes"][1]["pods"] == [
        {"namespace": "shop", "name": "web-1"},
        {"namespace": "shop", "name": "alone"},
    ]


def test_apply_takes_nodes_out_of_service_and_back(
    fleet: FakeFleet, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.classes = []
    assert apply(fleet, cluster) == 0
    output = capsys.readouterr().out
    assert cluster.evicted == ["web-1", "alone"]
    assert list(dict.fromkeys(node for node, _, _ in cluster.writes)) == ["n1", "n3"]
    assert fleet.nodes["n1"].verbs == ["release", "release", "verified", "resume"]
    assert "n1  drain: pods with a GPU leave" in output
    assert "n1  waits: a GPU is held by train (7)" in output
    assert "n3  waits for n1: cordon" in output
    assert output.count("n3  waits for n1") == 1
    assert "n1  done: in service again" in output
    assert "RuntimeClass nvidia was created" in output
    assert "out of service" in output
    assert "3 nodes: 1 unchanged, 2 converged" in output
    assert cluster.classes == ["nvidia"]


def test_a_second_apply_has_nothing_to_do(fleet: FakeFleet, cluster: FakeCluster) -> None:
    apply(fleet, cluster)
    cluster.writes.clear()
    assert apply(fleet, cluster) == 0
    assert cluster.writes == []


def test_a_node_that_has_returned_is_told_with_what_to_do_next(
    fleet: FakeFleet, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.nodes["n1"].broken = "verify"
    assert apply(fleet, cluster) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "n1 rollback: goes back to having no driver, since verify failed: 3 of 4 GPUs answer" in output
    assert "n1 returned to having no driver, since verify failed: 3 of 4 GPUs answer" in output
    assert (
        "n1 is in service with the former driver: fix what is reported above, then run `grapnel apply` again" in output
    )
    assert "waiting" in output
    assert "stopped: n1 failed in verify" in output
    assert fleet.nodes["n3"].packages == []
    assert not cluster.nodes["n1"].is_cordoned


def test_a_wave_that_holds_ends_apply_and_the_next_one_goes_on_without_the_gate(
    fleet: FakeFleet, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for gate, code, changed in (("hold", 1, ["n1"]), ("healthy", 0, ["n1", "n3"])):
        waves = {"waves": [{"hosts": ["n1"], "gate": gate}, {}]}
        scope = scope_of(cluster, driver={"version": NEW}, rollout=waves)
        assert apply_nodes(context(fleet, plan_drain), scope, parallel=2, consent=True) == code
        assert fleet.applied() == changed
    output = " ".join(capsys.readouterr().out.split())
    assert "wave 1 of 2 (canary): n1; then holds the others wave 2 of 2: n3" in output
    assert output.count("n3 waits for wave 1 of 2 (canary): n1") == 1
    assert "n3: wave 1 of 2 (canary) is done and holds the others: look at its nodes, take `gate: hold` away" in output


def test_check_mode_leaves_the_cluster_alone(fleet: FakeFleet, cluster: FakeCluster) -> None:
    cluster.classes = []
    assert apply(fleet, cluster, check=True) == 0
    assert (cluster.writes, cluster.evicted, cluster.classes) == ([], [], [])
    assert sorted(fleet.applied()) == ["n1", "n3"], "the roles say what they would do"
    assert fleet.nodes["n1"].verbs == []


def test_a_node_that_is_in_no_cluster_is_refused_and_the_others_go_on(
    fleet: FakeFleet, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.nodes["n3"].problem = "n3 is not a node of cluster test"
    assert apply(fleet, cluster) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "refused: it has to be drained first, but cannot be: n3 is not a node of cluster test" in output
    assert fleet.applied() == ["n1"]


def test_two_engines_are_kept_apart(fleet: FakeFleet, cluster: FakeCluster) -> None:
    cluster.is_held = True
    with pytest.raises(HeldError):
        apply(fleet, cluster)
    assert fleet.applied() == []


def test_what_is_changed_in_place_needs_no_lease(cluster: FakeCluster) -> None:
    cluster.is_held = True
    fleet = FakeFleet({"n1": FakeNode(["driver"]), "n2": FakeNode(["driver"]), "n3": FakeNode(["driver"])})
    scope = scope_of(cluster)
    assert apply_nodes(context(fleet), scope, parallel=1, consent=True) == 0
    assert sorted(fleet.applied()) == ["n1", "n2", "n3"]


def test_a_plan_that_another_apply_overtook_is_not_carried_out(fleet: FakeFleet, cluster: FakeCluster) -> None:
    looks = iter(range(100))

    def overtake() -> None:
        if next(looks) == 1:
            cluster.nodes["n3"].record = record(Phase.DONE)

    cluster.on_observe = overtake
    with pytest.raises(GrapnelError, match="another apply changed the state of n3"):
        apply(fleet, cluster)
    assert fleet.applied() == []


def test_a_runtime_class_that_cannot_be_made_hides_no_result(
    fleet: FakeFleet, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.classes = []

    def refuse(what: str) -> None:
        if what.startswith("class"):
            raise RuntimeClassError("RuntimeClass nvidia has handler other", hint="delete it")

    cluster.effect = refuse
    assert apply(fleet, cluster) == 1
    captured = capsys.readouterr()
    assert "3 nodes: 1 unchanged, 2 converged" in captured.out
    assert "RuntimeClass nvidia has handler other" in captured.err


def test_a_runtime_class_alone_is_something_to_do(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.classes = []
    fleet = FakeFleet({name: FakeNode(["driver"]) for name in cluster.nodes})
    assert apply(fleet, cluster) == 0
    assert "RuntimeClass nvidia will be created on cluster test" in capsys.readouterr().out
    assert cluster.classes == ["nvidia"]


def test_a_cluster_without_any_of_the_nodes_gets_no_runtime_class(cluster: FakeCluster) -> None:
    cluster.classes = []
    for node in cluster.nodes.values():
        node.problem = "not a node of cluster test"
    fleet = FakeFleet({name: FakeNode() for name in cluster.nodes})
    assert apply_nodes(context(fleet), scope_of(cluster), parallel=1, consent=True) == 0
    assert cluster.classes == []

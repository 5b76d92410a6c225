"""Node state is read from outside and not changed: records, who has the lease, what its engine published."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from provision.cluster.errors import ForbiddenError
from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.lease import PROGRESS
from provision.cluster.kubernetes.nodes.marks import UPGRADE
from provision.cluster.kubernetes.usage import EVERY_S, Usage, Used
from provision.cluster.kubernetes.watch.informer import FEW
from provision.cluster.machine import Machine
from provision.cluster.progress import encode_progress
from provision.cluster.reader import LIST_S, KubernetesReader
from provision.cluster.record import encode_record
from provision.declaration.spec.model import Plugin
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import NodeView, Phase
from provision.rollout.status.advice import unled
from provision.rollout.status.derive import fleet_status
from provision.rollout.status.model import StackSeen
from provision.rollout.status.reported import User
from provision.rollout.status.situations import IDLE, LEFT, NO_REPORT, SHORT_OF_GPUS
from provision.rollout.status.words import facts_of, rows_of, used_on
from tests.provision.cluster.fakes import Clock, FleetServer
from tests.provision.cluster.samples import NOW, RECORD
from tests.provision.cluster.test_progress import STANDING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provision.rollout.model import Record
    from provision.rollout.status.model import Seen


def node(name: str, record: Record | None = None, *, text: str = "", address: str = "") -> dict[str, Any]:
    """Return a ready Node as JSON."""
    written = text or (encode_record(record) if record is not None else "")
    return {
        "metadata": {"name": name, "annotations": {UPGRADE: written} if written else {}, "resourceVersion": "1"},
        "spec": {"unschedulable": record is not None},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": address}] if address else [],
        },
    }


def lease(holder: str = "ada@laptop/1", *, heard: str = "2026-11-21T09:39:50.000000Z", progress: str = "") -> Any:
    """Return the lease; it is read at 09:40."""
    return {
        "metadata": {"name": "grapnel-upgrade", "annotations": {PROGRESS: progress} if progress else {}},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 45,
            "acquireTime": "2026-11-21T09:30:00.000000Z",
            "renewTime": heard,
        },
    }


@pytest.fixture
def server() -> FleetServer:
    return FleetServer(node("n1", RECORD), node("n2"), node("n3"))


def reader(server: FleetServer, *names: str, clock: Clock | None = None) -> KubernetesReader:
    clock = clock or Clock()
    return KubernetesReader(Api(server, sleep=clock.sleep, clock=clock), names or None, {}, sleep=clock.sleep)


def view(seen: Seen, name: str) -> NodeView:
    found = seen.nodes[name]
    assert isinstance(found, NodeView)
    return found


def test_records_holder_and_reasons_are_seen(server: FleetServer) -> None:
    server.lease = lease(progress=encode_progress(STANDING))

    seen = reader(server, "n1", "n2", "n3").look()

    assert view(seen, "n1").record == RECORD
    assert view(seen, "n1").is_cordoned
    assert view(seen, "n2") == NodeView(name="n2", record=None, is_cordoned=False, is_ready=True)
    assert seen.tenant is not None
    assert (seen.tenant.holder, seen.tenant.since, seen.tenant.is_at_work) == ("ada@laptop/1", NOW, True)
    assert seen.standing is not None
    assert seen.standing.waiting == {name: STANDING.waiting[name] for name in ("n1", "n3")}, "of these nodes"
    assert (seen.complaints, seen.time) == ((), NOW + timedelta(minutes=10))


def test_a_holder_that_has_not_renewed_its_lease_is_not_at_work(server: FleetServer) -> None:
    server.lease = lease(heard="2026-11-21T09:39:00.000000Z")

    tenant = reader(server).look().tenant

    assert tenant is not None
    assert not tenant.is_at_work


@pytest.mark.parametrize("stored", [None, lease("")], ids=["there is no lease", "it was given back"])
def test_nobody_is_at_work(server: FleetServer, stored: object) -> None:
    server.lease = stored  # type: ignore[assignment]  # JSON

    seen = reader(server).look()

    assert (seen.tenant, seen.standing, seen.is_lease_known) == (None, None, True)


def test_without_an_inventory_it_is_the_nodes_that_somebody_speaks_of(server: FleetServer) -> None:
    assert list(reader(server).look().nodes) == ["n1"]
    server.lease = lease(progress=encode_progress(STANDING))
    assert list(reader(server).look().nodes) == ["n1", "n2", "n3"]


def test_after_a_good_first_apply_every_node_with_gpus_is_seen_with_what_it_says(server: FleetServer) -> None:
    """There is no record of any then: it said "no upgrade of any is recorded", and the page "0 of 0 nodes"."""
    told = node("n4")
    said = {"status": "True", "lastHeartbeatTime": "2026-11-21T09:36:00Z"}
    told["status"]["conditions"] += [
        {"type": "GPUDriverReady", "message": "driver 550.163.01 answers", **said},
        {"type": "GPUsHealthy", "message": "4 GPUs can be used", **said},
    ]
    told["status"]["allocatable"] = told["status"]["capacity"] = {"nvidia.com/gpu": "4"}
    server.nodes |= {"n4": told}

    seen = reader(server).look()

    assert list(seen.nodes) == ["n1", "n4"]
    assert (seen.reported["n4"].driver, seen.reported["n4"].seen) == ("550.163.01", 4)
    assert fleet_status(seen).nodes[1].situation is IDLE
    told["status"]["allocatable"] = {"nvidia.com/gpu": "3"}
    assert fleet_status(reader(server).look()).nodes[1].situation is SHORT_OF_GPUS
    assert set(server.requests) == {"list", "leases"}, "no other permission than before"


def pod(name: str, *limits: str, phase: str = "Running", node: str = "n2") -> dict[str, Any]:
    """Return a pod on a node of which each container has so many GPUs."""
    containers = [
        {"name": f"c{number}", "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": limit}}}
        for number, limit in enumerate(limits)
    ]
    spec = {"nodeName": node, "containers": containers}
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": spec, "status": {"phase": phase}}


def asking(
    server: FleetServer, *names: str, pods_of: str | None = None, daemons: Mapping[str, Plugin] | None = None
) -> KubernetesReader:
    """Return a reader that asks for pods as well."""
    return KubernetesReader(Api(server), names, {}, daemons=daemons, usage=Usage(Api(server)), pods_of=pods_of)


def test_of_every_node_it_is_told_how_many_gpus_pods_hold(server: FleetServer) -> None:
    server.pods = [pod("web", "1"), pod("job", "2", node="n1"), pod("more", "1", node="n1"), pod("else", "8", node="x")]

    seen = asking(server, "n1", "n2", "n3").look()

    assert [used_on(node) for node in fleet_status(seen).nodes] == [{"nvidia.com/gpu": 3}, {"nvidia.com/gpu": 1}, {}]
    assert server.asked_pods == ["n1", "n2", "n3"]


def test_the_pods_of_many_nodes_are_one_list_and_not_more_than_one_a_minute() -> None:
    names = [f"n{number}" for number in range(1, FEW + 2)]
    server, clock = FleetServer(*map(node, names)), Clock()
    usage = Usage(Api(server), clock)
    server.pods = [pod("web", "1")]

    before = usage.of(names)
    server.pods = []
    again = usage.of(names)
    clock.sleep(EVERY_S)

    assert (before, again) == (Used({"n2": (User("shop/web", {"nvidia.com/gpu": 1}),)}), before)
    assert usage.of(names) == Used({})
    assert server.asked_pods == ["all", "all"]
    assert usage.of(names[:FEW]) == Used({})
    assert server.asked_pods[2:] == names[:FEW], "those of a few are asked for each time"


def test_who_holds_gpus_of_one_node_is_asked_where_all_of_it_is_wanted(server: FleetServer) -> None:
    server.pods = [pod("web", "1", "2"), pod("over", "1", phase="Succeeded"), pod("none", "0")]

    seen = asking(server, "n1", "n2", pods_of="n2").look()

    assert seen.reported["n2"].users == (User("shop/web", {"nvidia.com/gpu": 3}),)
    assert seen.reported["n1"].users is None
    assert server.asked_pods == ["n2"], "those of one node alone"
    n2 = fleet_status(seen).nodes[1]
    assert {label: text for label, text, _ in facts_of(n2, None)}["in use"] == "3 gpu by shop/web"
    server.pods = []
    free = fleet_status(asking(server, "n2", pods_of="n2").look()).nodes[0]
    assert {label: text for label, text, _ in facts_of(free, None)}["in use"] == "by no pod that asks for any"


def test_without_permission_for_pods_it_is_said_that_nobody_asked(server: FleetServer) -> None:
    server.forbidden = {"pods"}

    seen = asking(server, "n2", pods_of="n2").look()

    assert seen.complaints == ()
    (node,) = fleet_status(seen).nodes
    words = {label: text for label, text, _ in facts_of(node, None)}["in use"]
    assert words.startswith("not known: eve may not list pods on cluster x")
    assert 'resources: ["pods"], verbs: ["list"]' in words
    (row,), (unknown, *_) = rows_of(fleet_status(asking(server, "n2", "n3").look()).nodes, {})
    assert (row.in_use, unknown.what, unknown.nodes) == ("not known", "in use", ("n2", "n3"))
    assert unknown.how.startswith("eve may not list pods on cluster x")


def test_nodes_of_a_stack_are_seen_without_a_record_and_judged_once_it_is_brought_about(server: FleetServer) -> None:
    plugin = Plugin(kubernetes_api="/etc/kubernetes/kubelet.conf")
    stack = StackSeen(name="fleet", owned=frozenset({"n2"}), plugin=plugin, state="Changing")
    look = lambda: KubernetesReader(Api(server), None, {}, stacks=lambda _api, _labels: ((stack,), "")).look()  # noqa: E731

    assert list(look().nodes) == ["n1", "n2"]
    assert fleet_status(look()).nodes[1].situation is IDLE
    stack = replace(stack, state="AsDeclared")
    assert fleet_status(look()).nodes[1].situation is NO_REPORT


def test_reasons_are_found_by_the_name_of_the_node(server: FleetServer) -> None:
    server.nodes["node-7"] = node("node-7", address="10.0.0.7")
    server.lease = lease(progress=encode_progress(replace(STANDING, waiting={"node-7": "soaks"})))
    machines = {"gpu-rack-7": Machine(addresses=frozenset({"10.0.0.7"}))}

    seen = KubernetesReader(Api(server), ["gpu-rack-7"], machines).look()

    assert seen.standing is not None
    assert seen.standing.waiting == {"gpu-rack-7": "soaks"}


def test_a_record_that_cannot_be_read_is_a_problem_of_that_node(server: FleetServer) -> None:
    server.nodes["n2"] = node("n2", text='{"phase": 7}')

    seen = reader(server, "n1", "n2", "gone").look()

    problem, gone = seen.nodes["n2"], seen.nodes["gone"]
    assert isinstance(problem, NodeProblem)
    assert "annotation grapnel.dev/upgrade of node n2 of cluster x" in problem.message
    assert isinstance(gone, NodeProblem)
    assert gone.message == "gone is not a node of cluster x"


def test_what_is_published_and_cannot_be_read_is_said(server: FleetServer) -> None:
    server.lease = lease(progress="{")

    seen = reader(server).look()

    assert seen.standing is None
    assert seen.complaints[0].startswith("why nodes wait is not known: annotation grapnel.dev/progress of the lease:")


def test_without_permission_for_the_lease_the_nodes_are_seen_and_the_rule_is_named(server: FleetServer) -> None:
    server.forbidden = {"leases"}

    seen = reader(server).look()

    assert list(seen.nodes) == ["n1"]
    assert not seen.is_lease_known
    (complaint,) = seen.complaints
    assert "eve may not get leases in namespace kube-system on cluster x" in complaint
    assert '{apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["get"]}' in complaint


def test_a_controller_leads_although_nobody_is_at_work(server: FleetServer) -> None:
    server.leader = lease("grapnel-controller-0")

    seen = reader(server).look()

    assert seen.tenant is None
    assert seen.controller is not None
    assert (seen.controller.holder, seen.is_led) == ("grapnel-controller-0", True)
    server.leader = lease("grapnel-controller-0", heard="2026-11-21T09:39:00.000000Z")
    assert not reader(server).look().is_led, "it was not heard of"


def test_stacks_without_a_controller_are_abandoned_and_where_that_is_not_known_nobody_says_so(
    server: FleetServer,
) -> None:
    stacks = lambda _api, _labels: ((StackSeen(name="fleet"),), "")  # noqa: E731 - the one stack
    look = KubernetesReader(Api(server), None, {}, stacks=stacks).look

    assert look().is_abandoned
    assert fleet_status(look()).told(LEFT[Phase.DRAIN]) == unled(LEFT[Phase.DRAIN])
    server.leader = lease("grapnel-controller-0")
    assert not look().is_abandoned
    server.leader, server.forbidden = None, {"leader"}
    assert not look().is_abandoned
    server.forbidden = set()
    assert not reader(server).look().is_abandoned, "there is nothing to be done by a controller"


def test_a_role_from_before_there_was_a_lease_of_the_leader_is_told_what_is_missing(server: FleetServer) -> None:
    server.lease, server.forbidden = lease(), {"leader"}

    seen = reader(server).look()

    assert seen.is_lease_known
    assert seen.tenant is not None
    (complaint,) = seen.complaints
    assert complaint.startswith("whether a controller leads is not known: ")


def test_without_permission_to_list_nodes_it_is_an_error(server: FleetServer) -> None:
    server.forbidden = {"list"}

    with pytest.raises(ForbiddenError, match="eve may not list nodes on cluster x"):
        reader(server).look()


def test_changes_are_followed_and_the_list_is_not_asked_for_again(server: FleetServer) -> None:
    watching = reader(server, "n1", "n2", "n3")
    watching.look()
    server.change("MODIFIED", node("n1", replace(RECORD, phase=Phase.SWAP)))
    server.change("DELETED", node("n3"))

    seen = watching.follow(2)

    assert view(seen, "n1").record == replace(RECORD, phase=Phase.SWAP)
    assert isinstance(seen.nodes["n3"], NodeProblem)
    server.change("ADDED", node("n3", RECORD))
    assert view(watching.follow(2), "n3").record == RECORD
    assert server.requests.count("list") == 1


def test_a_version_that_is_forgotten_leads_to_the_list(server: FleetServer) -> None:
    watching = reader(server, "n1")
    watching.look()
    server.is_forgotten = True
    server.nodes["n1"] = node("n1")

    assert view(watching.follow(2), "n1").record is None
    assert server.requests.count("list") == 2


def test_without_permission_to_watch_it_looks_less_often_and_says_so(server: FleetServer) -> None:
    server.forbidden = {"watch"}
    clock = Clock()
    watching = reader(server, "n1", clock=clock)
    watching.look()

    first, second = watching.follow(2), watching.follow(2)

    assert "eve may not watch nodes on cluster x" in first.complaints[0]
    assert second.complaints == first.complaints
    assert clock.slept == [LIST_S], "the first time it could not know"
    assert server.requests.count("watch") == 1

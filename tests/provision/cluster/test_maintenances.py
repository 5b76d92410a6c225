"""What is requested of other tools for a node that is upgraded, and that nothing of it is ever forgotten."""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from provision.cluster.errors import RefusedError
from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.nodes.maintenances import (
    MAINTENANCES,
    OURS,
    REQUESTOR,
    Maintenances,
    NodeMaintenance,
    maintenance_of,
    name_of,
)
from provision.cluster.kubernetes.nodes.marks import NVIDIA_STATE, UPGRADE
from provision.cluster.kubernetes.nodes.others import OPT_OUT, Asked
from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.node_requests import KubernetesRequests
from provision.cluster.record import decode_record, encode_record
from provision.rollout.model import Phase
from provision.rollout.requests import abandon
from tests.provision.cluster.fakes import Clock, refusal
from tests.provision.cluster.foreseen import steps_between
from tests.provision.cluster.operated import ASKED, KilledError, Operated, Steps, apply, connect
from tests.provision.cluster.samples import RECORD
from tests.provision.rollout.fakes import NEW, OLD

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.cluster.kubernetes.api.exchange import ApiResponse, Request
    from provision.rollout.model import Record

MANAGED, OLDER = OPT_OUT


def record(server: Operated, node: str = "n1") -> Record | None:
    text = server.nodes[node]["metadata"]["annotations"].get(UPGRADE)
    return None if text is None else decode_record(text)


def labels(server: Operated, node: str = "n1") -> dict[str, str]:
    found: dict[str, str] = server.nodes[node]["metadata"]["labels"]
    return {key: value for key, value in found.items() if key not in (UPGRADE, NVIDIA_STATE)}


def is_clean(server: Operated) -> bool:
    """Tell whether nothing that was requested is left."""
    return not server.ours() and all(not labels(server, node) for node in server.nodes)


def test_a_node_is_taken_out_of_service_when_the_operator_says_so_and_given_back_at_the_end() -> None:
    server, kept = Operated("n1", "n2"), []
    server.effect = lambda what: kept.append((what.split()[0], dict(labels(server)), server.ours()))

    result = apply(server)

    assert [node.record and node.record.phase for node in result.nodes] == [Phase.DONE, Phase.DONE]
    assert is_clean(server)
    assert server.drivers == {"n1": NEW, "n2": NEW}
    swaps = [(seen, requested) for what, seen, requested in kept if what == "swap"]
    assert swaps == [({MANAGED: "false", OLDER: "false"}, ["n1", "n2"])] * 2
    assert not any(node["spec"].get("unschedulable") for node in server.nodes.values())


def test_people_see_that_it_waits_and_in_the_words_of_nvidia() -> None:
    server = Operated("n1")
    server.last, words = "Pending", []
    server.effect = lambda _what: words.append(server.nodes["n1"]["metadata"]["labels"].get(NVIDIA_STATE))

    result = apply(server)

    assert "node-maintenance-required" in words
    (node,) = result.nodes
    assert node.record is not None
    assert (node.record.phase, node.record.is_unrelated) == (Phase.RETURNED, True)
    assert node.record.reason == (
        "after 60 minutes: waits for the maintenance operator: NodeMaintenance default/grapnel-n1 is Pending"
    )
    assert is_clean(server)
    assert server.drivers == {"n1": OLD}
    assert not server.nodes["n1"]["spec"].get("unschedulable")


@pytest.mark.parametrize(
    ("broken", "phase", "driver", "posts"),
    [
        pytest.param((Phase.VERIFY,), Phase.RETURNED, OLD, 2, id="it goes back"),
        pytest.param(
            (Phase.VERIFY, Phase.ROLLBACK), Phase.FAILED, NEW, 1, id="quarantined, it has only to be verified"
        ),
        pytest.param((Phase.RELEASE,), Phase.FAILED, OLD, 2, id="it fails before it is touched"),
    ],
)
def test_however_it_ends_nothing_is_left(broken: tuple[Phase, ...], phase: Phase, driver: str, posts: int) -> None:
    server = Operated("n1")
    apply(server, Steps(server, *broken))
    found = record(server)
    assert found is not None
    assert (found.phase, server.drivers["n1"]) == (phase, driver)
    assert is_clean(server)
    assert server.nodes["n1"]["spec"].get("unschedulable", False) is (phase is Phase.FAILED)

    apply(server)  # tried again, it is requested again
    assert [each.path for each in server.requests if each.method == "POST"] == [OURS] * posts
    assert server.drivers == {"n1": NEW}
    assert is_clean(server)


def run_killed_at(server: Operated, effect: int, *broken: Phase) -> bool:
    """Run a process that is killed before its nth effect; return whether it lived to its end."""
    count = itertools.count()

    def die(what: str) -> None:
        if next(count) == effect:
            raise KilledError(what)

    server.effect = die
    try:
        apply(server, Steps(server, *broken))
    except KilledError:
        return False
    finally:
        server.effect = lambda _what: None
    return True


@pytest.mark.parametrize("broken", [(), (Phase.VERIFY,)], ids=["it goes well", "it goes back, and is tried again"])
def test_killed_at_any_point_nothing_is_forgotten(broken: tuple[Phase, ...]) -> None:
    for effect in itertools.count():
        server = Operated("n1")
        lived = run_killed_at(server, effect, *broken)
        left = record(server)
        if left is None or left.phase.is_over:
            assert is_clean(server), f"killed at {effect}, and nothing says that it is to be taken back"
        apply(server)
        assert is_clean(server), effect
        apply(server)  # the second one may have brought it back first
        assert (server.drivers["n1"], is_clean(server)) == (NEW, True), effect
        assert not server.nodes["n1"]["spec"].get("unschedulable"), effect
        if lived:
            break
    assert effect > 12, "every effect has been the last one once"


def requests(server: Any, *names: str) -> KubernetesRequests:
    clock = Clock()
    return KubernetesRequests(Api(server, sleep=clock.sleep, clock=clock), names, {})


@dataclass(frozen=True)
class OnCall:
    """A server as somebody has it who may not read NodeMaintenances."""

    server: Operated
    name: str = "cluster x"

    def send(self, request: Request) -> ApiResponse:
        if "nodemaintenances" in request.path:
            return refusal(
                403,
                'User "eve" cannot get resource "nodemaintenances" in API group "maintenance.nvidia.com" in the '
                'namespace "default"',
            )
        return self.server.send(request)


def test_who_abandons_the_node_of_an_engine_that_never_runs_again_takes_everything_back() -> None:
    for effect in itertools.count():
        server = Operated("n1")
        lived = run_killed_at(server, effect)
        answer = requests(server, "n1").change("n1", abandon)
        assert answer.is_refused is (lived or effect == 0)
        assert not server.ours(), effect
        assert not {MANAGED, OLDER} & labels(server).keys(), effect
        if lived:
            break


def test_what_abandon_shows_of_a_node_whose_engine_was_killed_is_what_it_changes() -> None:
    """At each of the engine's steps: nothing changes that was not shown, and nothing shown stays undone."""
    shown: set[tuple[str, str]] = set()
    for effect in itertools.count():
        server = Operated("n1", rack="b7")
        if run_killed_at(server, effect):
            break
        before, requested = copy.deepcopy(server.nodes["n1"]), copy.deepcopy(server.maintenances)

        plan = requests(server, "n1").foresee("n1", abandon)
        assert (server.nodes["n1"], server.maintenances) == (before, requested), "who looks changes nothing"
        done = requests(server, "n1").change("n1", abandon)

        gone = {("delete", f"NodeMaintenance default/{name}") for name in requested.keys() - server.maintenances.keys()}
        steps = {(step.action, step.target) for step in plan.steps}
        assert steps == steps_between(before, server.nodes["n1"]) | gone, effect
        assert (plan.words, plan.is_refused) == (done.words, done.is_refused)
        shown |= steps
    assert {target.split()[0] for _, target in shown} == {"label", "annotation", "NodeMaintenance"}
    assert ("remove", f"label {MANAGED}") in shown


def test_what_may_not_be_read_of_it_is_said_in_the_plan() -> None:
    server = Operated("n1")
    assert not run_killed_at(server, 2)

    plan = requests(OnCall(server), "n1").foresee("n1", abandon)

    assert plan.words[-1].startswith("whether a NodeMaintenance is there cannot be read: eve may not get")


def test_who_may_not_delete_it_is_told_what_to_do() -> None:
    server = Operated("n1")
    assert not run_killed_at(server, 2)
    assert server.ours() == ["n1"]

    def forget(found: Any) -> Any:
        server.maintenances, kept[:] = {}, [server.maintenances]  # what this server asserts of an engine
        return abandon(found)

    kept: list[Any] = []
    answer = requests(OnCall(server), "n1").change("n1", forget)
    assert answer.words[-1] == (
        "its NodeMaintenance is still there (eve may not get nodemaintenances in namespace default on cluster x): "
        "`kubectl delete nodemaintenance --namespace default grapnel-n1`"
    )
    assert record(server) is None


def test_the_next_engine_withdraws_what_a_lost_record_has_left() -> None:
    server = Operated("n1", "n2")
    assert not run_killed_at(server, 6)
    assert server.ours() == ["n1", "n2"]
    server.nodes["n1"]["metadata"]["annotations"] = {}  # `kubectl annotate node n1 grapnel.dev/upgrade-`
    cluster = connect(server)
    cluster._maintenances.sweep(cluster._read)
    assert server.ours() == ["n2"]


def test_without_the_operator_nothing_begins() -> None:
    class Without(Operated):
        def send(self, request: Request) -> ApiResponse:
            return refusal(404) if "nodemaintenances" in request.path else super().send(request)

    server = Without("n1")
    cluster = connect(server)
    with pytest.raises(RefusedError, match="knows no NodeMaintenances") as caught:
        cluster._maintenances.sweep(cluster._read)
    assert "rollout.maintenance.nodeMaintenances" in caught.value.hint
    result = apply(server)
    assert "knows no NodeMaintenances" in result.stop
    assert server.nodes["n1"]["spec"] == {}


def test_an_object_of_that_name_that_is_somebody_elses_is_left_alone() -> None:
    server = Operated("n1")
    theirs = {
        "metadata": {"name": name_of("n1"), "namespace": "default", "uid": "u"},
        "spec": {"requestorID": "nvidia.network.operator", "nodeName": "n1"},
    }
    server.maintenances[name_of("n1")] = theirs
    result = apply(server)
    assert "is of requestor nvidia.network.operator, for node n1" in result.stop
    requests(server, "n1").change("n1", abandon)
    assert server.maintenances == {name_of("n1"): theirs}


def test_what_is_not_declared_is_not_requested_but_what_was_is_withdrawn() -> None:
    server = Operated("n1")
    apply(server, asked=Asked())
    assert not [each for each in server.requests if "nodemaintenances" in each.path]

    server = Operated("n1")
    assert not run_killed_at(server, 4)
    assert server.ours() == ["n1"]
    apply(server, asked=Asked())
    assert (server.drivers["n1"], is_clean(server)) == (NEW, True)


def test_labels_that_somebody_else_has_set_stay() -> None:
    server = Operated("n1")
    server.nodes["n1"]["metadata"]["labels"] = {MANAGED: "false", "rack": "b7"}
    apply(server)
    assert labels(server) == {MANAGED: "false", "rack": "b7"}


def test_a_record_that_names_other_labels_takes_none_of_them_away() -> None:
    server = Operated("n1")
    hostile = replace(RECORD, opted_out=("node-restriction.kubernetes.io/team", MANAGED))
    metadata = server.nodes["n1"]["metadata"]
    metadata["labels"] = {"node-restriction.kubernetes.io/team": "a", MANAGED: "false"}
    metadata["annotations"] = {UPGRADE: encode_record(hostile)}
    requests(server, "n1").change("n1", abandon)
    found = labels(server)
    assert found["node-restriction.kubernetes.io/team"] == "a"
    assert MANAGED not in found


def test_while_nvsentinel_has_handed_the_node_to_somebody_its_own_label_stays() -> None:
    server = Operated("n1")

    def hand_over(_node: str, phase: Phase) -> None:
        if phase is Phase.SWAP:
            taint = {"key": "nvsentinel.dgxc.nvidia.com/external-remediation", "effect": "NoSchedule"}
            server.nodes["n1"]["spec"]["taints"] = [taint]

    apply(server, Steps(server, meet=hand_over))
    assert labels(server) == {MANAGED: "false"}


@pytest.mark.parametrize(
    ("metadata", "conditions", "is_granted", "words"),
    [
        pytest.param({}, [], False, "default/grapnel-n1 is not seen by the operator yet", id="new"),
        pytest.param({}, [("Ready", "False", "Scheduled")], False, "default/grapnel-n1 is Scheduled", id="scheduled"),
        pytest.param({}, [("Ready", "True", "Ready")], True, "default/grapnel-n1 is Ready", id="ready"),
        pytest.param(
            {"deletionTimestamp": "2026-11-23T12:00:00Z"},
            [("Ready", "True", "Ready")],
            False,
            "waits for the former NodeMaintenance default/grapnel-n1 to be gone",
            id="being deleted",
        ),
    ],
)
def test_what_the_operator_says_of_a_request(
    metadata: dict[str, str], conditions: list[tuple[str, str, str]], words: str, *, is_granted: bool
) -> None:
    whole = {
        "metadata": {"name": "grapnel-n1", "namespace": "default"} | metadata,
        "spec": {"nodeName": "n1", "requestorID": REQUESTOR},
        "status": {"conditions": [dict(zip(("type", "status", "reason"), each, strict=True)) for each in conditions]},
    }
    found = maintenance_of(msgspec.convert(whole, NodeMaintenance))
    assert (found.is_requested, found.is_granted) == (True, is_granted)
    assert words in found.words


def test_a_name_is_never_too_long() -> None:
    assert name_of("n1") == "grapnel-n1"
    assert len(name_of("n" * 253)) <= 253
    assert name_of("n" * 253) != name_of("m" * 253)


def test_no_hold_is_seen_in_what_grapnel_has_requested_itself() -> None:
    server = Operated("n1")
    assert not run_killed_at(server, 2)
    paths: Callable[[], list[str]] = lambda: [each.path for each in server.requests]  # noqa: E731 - asked twice
    clock = Clock()
    maintenances = Maintenances(api := Api(server, sleep=clock.sleep, clock=clock), api, is_asked=True)
    node = msgspec.convert(server.nodes["n1"], Node)
    maintenances.request(node)
    assert server.ours() == ["n1"], "asking again changes nothing"
    maintenances.withdraw(node)
    maintenances.withdraw(node)
    assert server.ours() == []
    assert MAINTENANCES not in paths()
    assert ASKED.maintenances

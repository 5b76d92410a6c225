"""Which nodes go through the rollout, and which do not."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from provision.apply.model import Assessment, Failure, Status
from provision.declaration.fleet.facts.driver import DriverRun, DriverState
from provision.declaration.fleet.facts.node import KernelModule
from provision.declaration.spec.model import GpuInterface
from provision.planning.node_plan import Action, Disruption, NodePlan, Problem, Role
from provision.rollout.decision.advance import advance
from provision.rollout.decision.policy import Policy, WavePolicy
from provision.rollout.decision.prepare import Prepared, prepare, runtime_classes
from provision.rollout.decision.snapshot import Write
from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.model import ChangeKind, NodeView, Phase
from tests.provision.apply.fakes import facts_of, item
from tests.provision.rollout.fakes import MINUTE, NEW, NOON, OLD, record, view
from tests.provision.samples import configured, make_stack

if TYPE_CHECKING:
    from collections.abc import Mapping

LOADED = KernelModule(loaded=True, version=OLD)
DRAIN = item("libcuda1", disruption=Disruption.DRAIN)
QUIET = item("/etc/grapnel/node.toml")


def assessed(name: str, *items: object, problem: str = "") -> Assessment:
    problems = (Problem(code="cursed", message=problem, hint=""),) if problem else ()
    plan = NodePlan(node=name, items=items, problems=problems)  # type: ignore[arg-type]  # items of the planner
    return Assessment(msgspec.structs.replace(facts_of(name), module=LOADED), plan)


def sort(answers: Mapping[str, Assessment | Failure], **views: NodeView | NodeProblem) -> Prepared:
    stack = make_stack(driver={"version": NEW}, rollout={"maxUnavailable": "50%"})
    stacks = dict.fromkeys(answers, stack)
    return prepare(answers, stacks, {name: views.get(name) or view(name) for name in answers}, {})


def test_only_what_has_to_be_drained_is_taken_out_of_service() -> None:
    prepared = sort({"n1": assessed("n1", QUIET), "n2": assessed("n2", QUIET, DRAIN), "n3": assessed("n3")})
    assert (prepared.in_place, prepared.rollout, prepared.todo) == (("n1",), ("n2",), ("n1", "n2"))
    assert [state.name for state in prepared.states] == ["n1", "n2", "n3"]
    assert prepared.policy == Policy(max_unavailable=2)
    first = prepared.states[1]
    assert (first.origin, first.target, first.drain.limit) == (OLD, NEW, 5 * MINUTE)


def test_a_node_is_told_what_it_is_taken_out_of_service_for() -> None:
    restart = item("containerd.service", disruption=Disruption.DRAIN, role=Role.RUNTIME)
    prepared = sort(
        {
            "n1": assessed("n1", restart),
            "n2": assessed("n2", DRAIN, restart),
            "n3": assessed("n3"),
            "n4": assessed("n4"),
        },
        n3=view("n3", record(Phase.VERIFY, kind=ChangeKind.OTHER)),
        n4=view("n4", record(Phase.VERIFY, kind=ChangeKind.REBOOT)),
    )
    assert [state.kind.value for state in prepared.states] == ["other", "driver", "other", "driver"]
    assert prepared.rollout == ("n3", "n4", "n1", "n2")


def test_another_mig_layout_is_a_change_of_its_own_from_which_no_driver_leads_back() -> None:
    divide = msgspec.structs.replace(
        item("GPUs by MIG", disruption=Disruption.DRAIN, role=Role.NODE_DAEMON), action=Action.DIVIDE
    )
    restart = item("containerd.service", disruption=Disruption.DRAIN, role=Role.RUNTIME)
    prepared = sort(
        {
            "n1": assessed("n1", divide, QUIET),
            "n2": assessed("n2", divide, DRAIN),
            "n3": assessed("n3", divide, restart),
            "n4": assessed("n4"),
        },
        n4=view("n4", record(Phase.RESUME, kind=ChangeKind.MIG)),
    )
    found = [(state.kind.value, state.may_return) for state in prepared.states]
    assert found == [("mig", False), ("driver", True), ("other", True), ("mig", False)]


CHANGE_OVER = item("/etc/grapnel/node.json", disruption=Disruption.CHANGE_OVER, role=Role.NODE_DAEMON)


def sort_for_claims(answers: Mapping[str, Assessment | Failure], domains: object = None, **views: NodeView) -> Prepared:
    plugin = {"interface": "dra", "kubernetesApi": "/etc/kubernetes/kubelet.conf"}
    stack = make_stack(driver={"version": NEW}, plugin=plugin, rollout={} if domains is None else {"domains": domains})
    groups = {name: ["rack1"] for name in answers}
    return prepare(
        answers, dict.fromkeys(answers, stack), {name: views.get(name) or view(name) for name in answers}, groups
    )


def test_another_interface_is_a_change_of_its_own_in_which_no_node_leaves_service() -> None:
    restart = item("containerd.service", disruption=Disruption.DRAIN, role=Role.RUNTIME)
    done = record(Phase.DONE, kind=ChangeKind.INTERFACE, interface=GpuInterface.DRA)
    prepared = sort_for_claims(
        {
            "n1": assessed("n1", CHANGE_OVER, QUIET),
            "n2": assessed("n2", CHANGE_OVER, DRAIN),
            "n3": assessed("n3", CHANGE_OVER, restart),
            "n4": assessed("n4", CHANGE_OVER),
            "n5": assessed("n5"),
            "n6": assessed("n6", CHANGE_OVER),
        },
        n4=view("n4", record(Phase.FAILED, failed_in=Phase.SWAP)),
        n5=view("n5", done),
        n6=view("n6", done),
    )
    found = [(state.kind.value, state.is_disruptive, state.is_changed) for state in prepared.states]
    assert found == [
        ("interface", True, False),
        ("driver", True, False),
        ("other", True, False),
        ("other", True, False),  # it is out of service already
        ("interface", False, True),
        ("interface", True, True),  # somebody has changed it since
    ]
    assert set(prepared.rollout) == {"n1", "n2", "n3", "n4", "n6"}
    assert set(prepared.leaving) == {"n2", "n3", "n4"}
    assert prepared.in_place == ()


def test_a_domain_keeps_no_company_for_another_interface_unless_others_of_it_leave_service() -> None:
    domains = {"groups": ["rack1"]}
    alone = sort_for_claims({name: assessed(name, CHANGE_OVER) for name in ("n1", "n2")}, domains)
    assert [(state.domain, state.kind.value) for state in alone.states] == [("", "interface")] * 2
    mixed = sort_for_claims({"n1": assessed("n1", CHANGE_OVER), "n2": assessed("n2", DRAIN)}, domains)
    assert [(state.domain, state.kind.value) for state in mixed.states] == [("rack1", "other"), ("rack1", "driver")]


def test_claims_are_the_way_back_only_where_an_api_for_them_is_declared() -> None:
    stacks = {
        "n1": make_stack(plugin={"kubernetesApi": "/etc/kubernetes/kubelet.conf"}),
        "n2": make_stack(),
        "n3": make_stack(plugin={"daemon": "daemonset"}),
    }
    answers: dict[str, Assessment | Failure] = {name: assessed(name, CHANGE_OVER) for name in stacks}
    prepared = prepare(answers, stacks, {name: view(name) for name in stacks}, {})
    assert [(state.interface, state.may_return) for state in prepared.states] == [
        (GpuInterface.DEVICE_PLUGIN, True),
        (GpuInterface.DEVICE_PLUGIN, False),
        (GpuInterface.DEVICE_PLUGIN, True),
    ], "a pod has its account"


def test_a_change_knows_which_interface_a_node_had_and_leads_back_there_alone() -> None:
    api = {"kubernetesApi": "/etc/kubernetes/kubelet.conf"}
    both = make_stack(plugin=api | {"interface": "both", "claims": ["1"]})
    had = configured(both)
    on_its_way = record(
        Phase.VERIFY, kind=ChangeKind.INTERFACE, interface=GpuInterface.BOTH, origin_interface=GpuInterface.DRA
    )
    stacks = {
        "n1": make_stack(plugin=api),
        "n2": make_stack(plugin=api | {"claims": ["1"]}),
        "n3": make_stack(plugin=api | {"interface": "dra", "claims": ["1"]}),
        "n4": both,
    }
    answers: dict[str, Assessment | Failure] = {
        name: replace(assessed(name, *([] if name == "n4" else [CHANGE_OVER])), facts=had) for name in stacks
    }
    views = {name: view(name, on_its_way) if name == "n4" else view(name) for name in stacks}
    prepared = prepare(answers, stacks, views, {})
    assert {state.name: (state.former_interface, state.may_return) for state in prepared.states} == {
        "n1": (GpuInterface.BOTH, False),  # nobody says any more which GPUs claims had
        "n2": (GpuInterface.BOTH, True),
        "n3": (GpuInterface.BOTH, True),
        "n4": (GpuInterface.DRA, True),
    }


@pytest.mark.parametrize(("had", "began"), list(itertools.permutations(GpuInterface, 2)), ids=lambda each: each.value)
@pytest.mark.parametrize("was_written", [False, True])
def test_no_way_leads_to_an_interface_that_a_node_never_had(
    had: GpuInterface, began: GpuInterface, *, was_written: bool
) -> None:
    """Its change was killed, and the declaration is what it was before."""
    api = {"kubernetesApi": "/etc/kubernetes/kubelet.conf", "claims": ["1"]}
    before, after = (make_stack(plugin=api | {"interface": each.value}) for each in (had, began))
    killed = record(Phase.SWAP, kind=ChangeKind.INTERFACE, interface=began, origin_interface=had)
    items = [CHANGE_OVER] if was_written else []
    answer = replace(assessed("n1", *items), facts=configured(after if was_written else before))
    (found,) = prepare({"n1": answer}, {"n1": before}, {"n1": view("n1", killed)}, {}).states
    assert found.interface is had
    assert (found.former_interface, found.may_return) == (began if was_written else had, True)
    begun = advance(found, killed, NOON, NOON)[0]
    assert isinstance(begun, Write)
    again = replace(answer, plan=assessed("n1").plan, facts=configured(before))  # killed once more
    (found,) = prepare({"n1": again}, {"n1": before}, {"n1": view("n1", begun.record)}, {}).states
    assert found.former_interface is (began if was_written else had)


def test_what_an_apply_left_unfinished_comes_first_then_what_failed() -> None:
    prepared = sort(
        {name: assessed(name, DRAIN) for name in ("n1", "n2")} | {"n3": assessed("n3"), "n4": assessed("n4", QUIET)},
        n2=view("n2", record(Phase.FAILED, failed_in=Phase.SWAP)),
        n3=view("n3", record(Phase.VERIFY)),
        n4=view("n4", record(Phase.FAILED, failed_in=Phase.DRAIN)),
    )
    assert (prepared.rollout, prepared.in_place) == (("n3", "n2", "n4", "n1"), ())


def test_a_node_that_is_in_no_cluster_is_not_drained() -> None:
    lost = NodeProblem(name="n1", message="n1 is not a node of cluster test", hint="`--no-cluster`")
    prepared = sort({"n1": assessed("n1", DRAIN), "n2": assessed("n2", QUIET)}, n1=lost, n2=lost)
    assert prepared.refusals == {
        "n1": Failure(
            Status.REFUSED,
            "it has to be drained first, but cannot be: n1 is not a node of cluster test (`--no-cluster`)",
        )
    }
    assert (prepared.in_place, prepared.rollout, prepared.states) == (("n2",), (), ())


def test_what_cannot_be_done_is_left_alone_and_counts() -> None:
    prepared = sort(
        {"n1": assessed("n1", DRAIN, problem="the node is cursed"), "n2": Failure(Status.UNREACHABLE, "no route")}
    )
    assert prepared.todo == ()
    assert [state.obstacle for state in prepared.states] == ["the node is cursed", "no route"]


def test_a_node_in_flight_that_cannot_be_reached_goes_on_where_its_record_says() -> None:
    lost = Failure(Status.UNREACHABLE, "no route")
    views = {
        "n1": view("n1", record(Phase.SWAP)),
        "n2": view("n2", record(Phase.FAILED, failed_in=Phase.SWAP)),
        "n3": view("n3", record(Phase.DONE)),
    }
    prepared = sort(dict.fromkeys(views, lost), **views)
    flying, failed, done = prepared.states
    assert (prepared.rollout, flying.obstacle, flying.target, flying.origin) == (("n1",), "", NEW, OLD)
    assert (failed.obstacle, done.obstacle) == ("no route", "no route")


def test_a_swap_that_staging_comes_before_goes_through_the_rollout() -> None:
    later = item("libcuda1", disruption=Disruption.DRAIN, deferred=True)
    prepared = sort({"n1": assessed("n1", QUIET, later)})
    assert (prepared.in_place, prepared.rollout, prepared.states[0].is_disruptive) == ((), ("n1",), True)


def test_nodes_go_through_the_rollout_wave_by_wave() -> None:
    waves = [{"groups": ["test"], "soakMinutes": 30}, {"size": "50%"}, {"gate": "hold"}]
    stacks = dict.fromkeys(("n1", "n2", "n3", "n4"), make_stack(driver={"version": NEW}, rollout={"waves": waves}))
    answers = {name: assessed(name, DRAIN) for name in stacks}
    prepared = prepare(answers, stacks, {name: view(name) for name in stacks}, {"n3": ("all", "test")})

    assert prepared.rollout == ("n3", "n1", "n2", "n4")
    assert [state.wave for state in prepared.states] == [1, 1, 0, 2]
    assert prepared.policy.waves == (
        WavePolicy(title="wave 1 of 3 (canary)", soak=30 * MINUTE),
        WavePolicy(title="wave 2 of 3"),
        WavePolicy(title="wave 3 of 3", is_held=True),
    )


def test_only_handlers_that_the_kubelet_reaches_need_a_class() -> None:
    stacks = [
        make_stack(),
        make_stack(runtime={"handler": "gpu", "handlerAliases": ["gpu-old"]}),
        make_stack(runtime={"handler": "podman", "entitlement": "env"}, plugin={"enabled": False}),
        make_stack(),
    ]
    assert runtime_classes(stacks) == ("nvidia", "gpu", "gpu-old")


def test_a_node_in_the_middle_of_a_change_is_not_given_up_for_what_it_looks_like_then() -> None:
    """Its successor found the package manager in use by the swap of a controller that was killed, and gave it up."""
    answer = assessed("n1", problem="apt on n1 is in use by dpkg (pid 7)")
    run = DriverRun(run="r", verb="swap", change="c", state="running")
    busy = replace(answer, facts=msgspec.structs.replace(answer.facts, driver=DriverState(run=run)))
    flying = {"n1": view("n1", record(Phase.SWAP)), "n2": view("n2", record(Phase.DRAIN))}

    states = {state.name: state for state in sort({"n1": busy, "n2": assessed("n2", problem="apt")}, **flying).states}

    assert (states["n1"].obstacle, states["n1"].is_half_done, states["n1"].is_as_declared) == ("", True, False)
    assert states["n2"].obstacle == "apt"


def test_a_look_that_fails_says_nothing_of_a_node_in_its_swap() -> None:
    failure = Failure(Status.FAILED, "the run ended without saying why")
    flying = {"n1": view("n1", record(Phase.SWAP)), "n2": view("n2", record(Phase.DRAIN))}

    states = {state.name: state for state in sort({"n1": failure, "n2": failure}, **flying).states}

    assert states["n1"].obstacle == ""
    assert states["n2"].obstacle == failure.message

"""GPUs by claims: what a node has to have for them, and what a plan says when pods are to get them in another way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from provision.declaration.fleet.facts.kubelet import CgroupV1
from provision.declaration.fleet.facts.node import Engine
from provision.planning.engines.containerd.imports import DROP_IN_PATH
from provision.planning.node_plan import Action, Disruption
from provision.planning.render.node_config import NODE_CONFIG_PATH
from tests.provision.samples import (
    GPU,
    RUNNING,
    configured,
    edit_file,
    make_facts,
    make_stack,
    plan,
    replace,
    simulate_apply,
    steps,
    text_of,
)

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts

API = {"kubernetesApi": "/etc/kubernetes/kubelet.conf"}
DRA: dict[str, Any] = {"interface": "dra", **API}
BOTH: dict[str, Any] = {"interface": "both", "claims": ["2", "3"], **API}
POD: dict[str, Any] = {"daemon": "daemonset"}
K3S = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
OFF = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  enable_cdi = false\n'
ON = OFF.replace("false", "true")


def containerd(version: str, text: str = "version = 2\n") -> NodeFacts:
    engine = Engine(binary="/usr/bin/containerd", version=version)
    return edit_file(make_facts(engines={"containerd": engine}), "/etc/containerd/config.toml", text)


def k3s(version: str, text: str) -> NodeFacts:
    engine = Engine(binary="/usr/local/bin/k3s", version=version, config=K3S)
    return edit_file(make_facts(engines={"k3s": engine}), K3S, text)


@pytest.mark.parametrize(
    ("facts", "engine", "problems"),
    [
        pytest.param(containerd("1.6.20"), "containerd", ["engine-without-cdi"], id="an engine that ignores devices"),
        pytest.param(containerd("1.7.24"), "containerd", [], id="the first that does not"),
        pytest.param(containerd(""), "containerd", [], id="a version that is not known"),
        pytest.param(make_facts(), "containerd", [], id="no engine yet"),
        pytest.param(
            replace(containerd("2.1.4"), cgroup_v1=CgroupV1(kubelet="1.33.9", allowed=True)),
            "containerd",
            ["kubelet-without-dra"],
            id="a kubelet before 1.34",
        ),
        pytest.param(
            replace(containerd("2.1.4"), cgroup_v1=CgroupV1(kubelet="1.34.0", allowed=True)),
            "containerd",
            [],
            id="the first kubelet",
        ),
        pytest.param(k3s("1.33.5", "version = 3\n"), "k3s", ["kubelet-without-dra"], id="a distribution's kubelet"),
        pytest.param(k3s("1.36.1", "version = 3\n"), "k3s", [], id="a newer distribution"),
    ],
)
def test_a_node_that_cannot_give_gpus_by_claims_is_refused(facts: NodeFacts, engine: str, problems: list[str]) -> None:
    runtime = {"engine": engine}
    codes = {"engine-without-cdi", "kubelet-without-dra"}

    found = plan(facts, make_stack(plugin=DRA, runtime=runtime))

    assert [each.code for each in found.problems if each.code in codes] == problems
    assert not codes & {each.code for each in plan(facts, make_stack(plugin=API, runtime=runtime)).problems}


@pytest.mark.parametrize(
    ("version", "sharing", "codes"),
    [
        pytest.param("1.35.4", None, ["kubernetes-without-partitions"], id="an api that has no counters"),
        pytest.param("1.36.3", None, [], id="the first that has"),
        pytest.param("1.36.3", "gpu", ["partitions-beside-shares"], id="a scheduler that counts both wrongly"),
        pytest.param("1.37.0", "gpu", [], id="the first that does not"),
    ],
)
def test_mig_devices_are_made_for_claims_where_the_scheduler_counts_them(
    version: str, sharing: str | None, codes: list[str]
) -> None:
    facts = replace(containerd("2.1.4"), cgroup_v1=CgroupV1(kubelet=version, allowed=True))
    shares: dict[str, Any] = (
        {"sharing": {"timeSlicing": {"resources": [{"name": sharing, "replicas": 2}]}}} if sharing else {}
    )

    found = plan(facts, make_stack(plugin={**DRA, **shares, "dynamicMig": True}))

    meant = {"kubernetes-without-partitions", "partitions-beside-shares"}
    assert [each.code for each in found.problems if each.code in meant] == codes
    assert not meant & {each.code for each in plan(facts, make_stack(plugin={**DRA, **shares})).problems}


@pytest.mark.parametrize(
    ("facts", "runtime", "is_told"),
    [
        pytest.param(containerd("1.7.24"), {"enabled": False}, True, id="off unless it is said"),
        pytest.param(containerd("1.7.24", ON), {"enabled": False}, False, id="it is said"),
        pytest.param(containerd("2.1.4"), {"enabled": False}, False, id="on unless it is said"),
        pytest.param(containerd("2.1.4", OFF), {"enabled": False}, True, id="off, as it is said"),
        pytest.param(containerd("2.4.2", OFF), {"enabled": False}, False, id="an engine that has no such key"),
        pytest.param(containerd("1.7.24", f"# {ON}"), {"enabled": False}, False, id="a comment before the table"),
        pytest.param(containerd("1.7.24", ON.replace("  en", "# en")), {"enabled": False}, True, id="a comment"),
        pytest.param(containerd("1.7.24", OFF), {}, False, id="grapnel writes it"),
        pytest.param(k3s("1.36.1", "version = 3\n"), {"engine": "k3s"}, False, id="a distribution with containerd 2"),
        pytest.param(k3s("1.36.1", "version = 2\n"), {"engine": "k3s"}, True, id="a distribution with containerd 1"),
        pytest.param(k3s("1.36.1", ON), {"engine": "k3s"}, False, id="a distribution that says it"),
    ],
)
def test_an_engine_that_would_ignore_devices_is_told_where_grapnel_does_not_write_it(
    facts: NodeFacts, runtime: dict[str, Any], *, is_told: bool
) -> None:
    by_claims = plan(facts, make_stack(plugin=DRA, runtime=runtime))
    by_plugin = plan(facts, make_stack(plugin=API, runtime=runtime))

    assert ("engine-cdi-off" in {each.code for each in by_claims.warnings}) is is_told
    assert "engine-cdi-off" not in {each.code for each in by_plugin.warnings}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (API, DRA, "by claims instead of the device plugin: pods keep theirs, and one that a pod has by the device"),
        (DRA, API, "by the device plugin instead of claims: pods keep theirs, and one that a pod has by claims"),
        (
            API,
            BOTH,
            "by the device plugin and claims instead of the device plugin: pods keep theirs, and one that is to",
        ),
        (
            BOTH,
            API,
            "by the device plugin instead of the device plugin and claims: pods keep theirs, and one that is to",
        ),
        (DRA, BOTH, "by the device plugin and claims instead of claims: pods keep theirs, and one that is to be given"),
        (BOTH, DRA, "by claims instead of the device plugin and claims: pods keep theirs, and one that is to be given"),
        (POD, POD | {"interface": "dra"}, "by claims instead of the device plugin: pods keep theirs"),
        (POD | {"interface": "dra"}, POD, "by the device plugin instead of claims: pods keep theirs"),
    ],
    ids=[
        "to claims",
        "back",
        "to both",
        "from both",
        "from claims to both",
        "from both to claims",
        "to claims by a pod",
        "back in a pod",
    ],
)
def test_a_change_says_what_becomes_of_pods(before: dict[str, str], after: dict[str, str], words: str) -> None:
    facts = configured(make_stack(plugin=before))

    result = plan(facts, make_stack(plugin=after))

    (write,) = (item for item in result.items if item.target == NODE_CONFIG_PATH)
    assert words in write.reason
    assert (write.action, write.disruption) == (Action.WRITE, Disruption.CHANGE_OVER)
    assert plan(simulate_apply(facts, result), make_stack(plugin=after)).is_empty


@pytest.mark.parametrize(
    ("before", "after"), [(DRA, {**DRA, "dynamicMig": True}), ({**DRA, "dynamicMig": True}, DRA)], ids=["on", "off"]
)
def test_mig_devices_for_claims_are_no_other_interface_to_which_a_failure_would_lead_back(
    before: dict[str, object], after: dict[str, object]
) -> None:
    result = plan(configured(make_stack(plugin=before)), make_stack(plugin=after))

    (write,) = (item for item in result.items if item.target == NODE_CONFIG_PATH)
    assert "MIG devices are made for claims" in write.reason
    assert write.disruption is Disruption.NONE


def test_a_node_divides_its_gpus_otherwise_without_a_turn_as_it_gives_them_by_both_already() -> None:
    facts, after = configured(make_stack(plugin=BOTH)), make_stack(plugin=BOTH | {"claims": ["1"]})

    result = plan(facts, after)

    (write,) = (item for item in result.items if item.target == NODE_CONFIG_PATH)
    assert write.disruption is Disruption.NONE
    assert "withheld until it is free" in write.reason
    assert plan(simulate_apply(facts, result), after).is_empty


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        (["2", "3"], None),
        (["3", "4"], "claims-of-no-gpu"),
        (["0", "1", "2", "3"], "claims-of-all-gpus"),
        (["0", "1", "2", "GPU-8dd2bd5b-4d67-4b04-8f2c-1d3f0d5f2c11"], "claims-of-all-gpus"),
        (["GPU-8dd2bd5b-4d67-4b04-8f2c-1d3f0d5f2c11"], None),  # facts know no UUIDs: the node says it
    ],
)
def test_a_list_that_divides_nothing_on_a_node_is_refused(claims: list[str], code: str | None) -> None:
    gpus = tuple(replace(GPU, address=f"0000:{number}0:00.0") for number in range(1, 5))
    stack = make_stack(plugin=BOTH | {"claims": claims})
    codes = [each.code for each in plan(replace(make_facts(), gpus=gpus), stack).problems]

    assert (code is None and not any(each.startswith("claims-of") for each in codes)) or code in codes
    had = replace(configured(stack), gpus=gpus[:2])  # the others are lost, and nothing moves
    assert not any(each.code.startswith("claims-of") for each in plan(had, stack).problems)


@pytest.mark.parametrize(("version", "is_restarted"), [("1.7.24", True), ("2.2.1", False)])
def test_an_engine_that_takes_no_devices_is_told_to_and_restarts_for_it_once(
    version: str, *, is_restarted: bool
) -> None:
    facts = replace(containerd(version, ""), services={"containerd.service": RUNNING})
    facts = simulate_apply(facts, plan(facts, make_stack(plugin=API)))

    result = plan(facts, make_stack(plugin=DRA))

    assert (("restart", "containerd.service") in steps(result.items)) is is_restarted
    after = simulate_apply(facts, result)
    assert ("enable_cdi = true" in text_of(after, DROP_IN_PATH)) is is_restarted
    assert plan(after, make_stack(plugin=DRA)).is_empty


def test_nothing_is_said_of_an_interface_that_stays_or_that_a_node_never_had() -> None:
    other = plan(configured(make_stack(plugin=DRA)), make_stack(plugin=DRA | {"metricsAddress": "0.0.0.0:9400"}))
    new = plan(make_facts(), make_stack(plugin=DRA))

    for result in (other, new):
        assert ("write", NODE_CONFIG_PATH) in steps(result.items)
        assert not any("instead of" in item.reason for item in result.items)
        assert not any(item.disruption is Disruption.CHANGE_OVER for item in result.items)

"""The kubelet's settings: where they are written, what that costs, what is refused, and how they are given back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from provision.declaration.fleet.facts.kernel import KernelState
from provision.declaration.fleet.facts.kubelet import CgroupV1, KubeletState
from provision.declaration.fleet.facts.node import DeviceHolder
from provision.planning.node_plan import Action, Disruption, Role
from provision.planning.render.kubelet_record import KUBELET_RECORD_PATH
from tests.provision.samples import (
    GPU,
    configured,
    edit_file,
    make_file,
    make_stack,
    plan,
    replace,
    simulate_apply,
    steps,
    text_of,
)

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.node_plan import Item, NodePlan

MAIN = "/var/lib/kubelet/config.yaml"
FOLDER = "/etc/kubernetes/kubelet.conf.d"
OURS = f"{FOLDER}/99-grapnel.conf"
KUBEADMS = """\
apiVersion: kubelet.config.k8s.io/v1beta1
# written by kubeadm
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
cpuManagerPolicy: none   # the usual one

evictionHard:
  memory.available: 200Mi
  nodefs.available: 10%
# the end
kind: KubeletConfiguration
"""
ALIGNED: dict[str, Any] = {
    "topologyManagerPolicy": "single-numa-node",
    "topologyManagerScope": "pod",
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    "reservedSystemCPUs": "0-3",
}


def declared(**kubelet: object) -> StackSpec:
    return make_stack(node={"kubelet": kubelet or ALIGNED})


def node(*, folder: bool = True, text: str = KUBEADMS, **changes: object) -> NodeFacts:
    """Return a node that is as declared otherwise, with kubeadm's kubelet, and with a folder of settings or without."""
    state = KubeletState(
        unit="kubelet.service",
        load="loaded",
        active="active",
        program="/usr/bin/kubelet",
        config=MAIN,
        config_dir=FOLDER if folder else "",
        root_dir="/var/lib/kubelet",
        flags=("config", "config-dir", "kubeconfig"),
    )
    facts = configured(make_stack())
    return edit_file(replace(facts, kubelet=replace(state, **changes)), MAIN, text)


def of_kubelet(found: NodePlan) -> tuple[Item, ...]:
    return tuple(item for item in found.items if item.role is Role.KUBELET)


def test_settings_are_a_file_of_the_kubelets_folder_and_take_a_drained_restart() -> None:
    found = plan(node(), declared())

    assert steps(found.items) == [("write", KUBELET_RECORD_PATH), ("write", OURS), ("restart", "kubelet.service")]
    assert [item.disruption for item in found.items] == [Disruption.NONE, Disruption.NONE, Disruption.DRAIN]
    variables = found.roles.kubelet
    assert variables is not None
    assert json.loads(variables.kubelet_files[1].content) == {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        **ALIGNED,
    }
    assert variables.kubelet_health == "127.0.0.1:10248"
    assert variables.kubelet_restart


@pytest.mark.parametrize("folder", [True, False], ids=["with a folder", "in its own file"])
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(folder: bool) -> None:  # noqa: FBT001 - a case
    facts = node(folder=folder)
    after = simulate_apply(facts, plan(facts, declared()))

    assert plan(after, declared()).is_empty


@pytest.mark.parametrize("folder", [True, False], ids=["with a folder", "in its own file"])
def test_what_is_declared_no_more_is_given_back_byte_for_byte(folder: bool) -> None:  # noqa: FBT001 - a case
    facts = node(folder=folder)
    after = simulate_apply(facts, plan(facts, declared()))

    found = plan(after, make_stack())
    again = simulate_apply(after, found)

    assert [item.action for item in found.items if item.disruption is Disruption.DRAIN] == [Action.RESTART]
    assert steps(found.items)[-1] == ("remove", KUBELET_RECORD_PATH)
    assert text_of(again, MAIN) == KUBEADMS
    assert again.file(OURS) is None
    assert again.file(KUBELET_RECORD_PATH) is None
    assert plan(again, make_stack()).is_empty


def grace(count: int = 9) -> NodeFacts:
    """Return a node whose GPUs' memory is NUMA nodes, of which the first alone has CPUs."""
    nodes = tuple(range(count))
    return replace(node(), gpus=(GPU,), kernel=KernelState(numa_nodes=nodes, numa_nodes_without_cpus=nodes[1:]))


@pytest.mark.parametrize(
    ("kubelet", "count", "is_refused"),
    [
        ({"topologyManagerPolicy": "restricted"}, 9, True),
        ({"topologyManagerPolicy": "restricted"}, 8, False),
        ({"topologyManagerPolicy": "none"}, 9, False),
        (
            {"topologyManagerPolicy": "restricted", "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "9"}},
            9,
            False,
        ),
        (
            {"topologyManagerPolicy": "restricted", "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "9"}},
            10,
            True,
        ),
    ],
)
def test_a_kubelet_that_would_not_start_for_its_numa_nodes_is_refused(
    kubelet: dict[str, Any],
    count: int,
    is_refused: bool,  # noqa: FBT001 - a case
) -> None:
    problems = plan(grace(count), declared(**kubelet)).problems

    assert [each.code for each in problems] == (["kubelet-numa-nodes"] if is_refused else [])
    assert all(f'"{count}"' in each.hint for each in problems)


def test_memory_of_gpus_that_the_kubelet_takes_for_the_machines_is_a_warning() -> None:
    without = replace(grace(), gpus=())

    [warning] = [each for each in plan(grace(2), make_stack()).warnings if each.code == "coherent-gpu-memory"]
    assert "(1)" in warning.message
    assert "NVreg_CoherentGPUMemoryMode" in warning.hint
    assert "coherent-gpu-memory" not in [each.code for each in plan(without, make_stack()).warnings]


def test_only_the_lines_of_declared_keys_change_in_the_kubelets_own_file() -> None:
    facts = node(folder=False)
    stack = declared(cpuManagerPolicy="static", kubeReserved={"cpu": "500m"}, evictionHard={"memory.available": "1Gi"})

    text = text_of(simulate_apply(facts, plan(facts, stack)), MAIN)

    expected = KUBEADMS.replace("cpuManagerPolicy: none   # the usual one", 'cpuManagerPolicy: "static"').replace(
        "evictionHard:\n  memory.available: 200Mi\n  nodefs.available: 10%",
        'evictionHard: {"memory.available": "1Gi", "nodefs.available": "10%"}',
    )
    assert text == expected + 'kubeReserved: {"cpu": "500m"}\n'


def test_what_somebody_has_changed_of_ours_stays_theirs() -> None:
    facts = node(folder=False)
    after = simulate_apply(facts, plan(facts, declared()))
    edited = text_of(after, MAIN).replace('reservedSystemCPUs: "0-3"', 'reservedSystemCPUs: "0-7"')
    after = edit_file(after, MAIN, edited)

    back = simulate_apply(after, plan(after, make_stack()))

    assert text_of(back, MAIN) == KUBEADMS + 'reservedSystemCPUs: "0-7"\n'


def test_a_file_that_kubeadm_has_written_again_gets_the_settings_again() -> None:
    facts = node(folder=False)
    after = edit_file(simulate_apply(facts, plan(facts, declared())), MAIN, KUBEADMS)

    found = plan(after, declared())

    assert ("write", MAIN) in steps(found.items)
    assert plan(simulate_apply(after, found), declared()).is_empty


def test_an_interrupted_apply_is_continued() -> None:
    facts = node()
    done = simulate_apply(facts, plan(facts, declared()))
    assert done.kubelet is not None

    due = plan(replace(done, kubelet=replace(done.kubelet, restart_due=True)), declared())
    stopped = plan(replace(done, kubelet=replace(done.kubelet, active="inactive", restart_due=True)), declared())

    assert steps(due.items) == [("restart", "kubelet.service")]
    assert steps(stopped.items) == [("start", "kubelet.service")]


def test_who_holds_a_gpu_is_named() -> None:
    facts = replace(node(), device_holders=(DeviceHolder(pid=77, command="python3"),))

    (restart,) = [item for item in plan(facts, declared()).items if item.action is Action.RESTART]

    assert "python3 (pid 77)" in restart.reason


def test_nothing_is_planned_where_nothing_is_declared() -> None:
    assert plan(node(), make_stack()).is_empty


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (None, "kubelet-not-running"),
        (KubeletState(unit="kubelet.service"), "kubelet-not-running"),
        (KubeletState(unit="kubelet.service", active="activating"), "kubelet-not-running"),
    ],
    ids=["it was not asked for", "there is none", "it is about to start"],
)
def test_a_node_without_a_kubelet_is_warned_about_and_provisioned(state: KubeletState | None, code: str) -> None:
    found = plan(replace(node(), kubelet=state), declared())

    assert not found.problems
    assert [warning.code for warning in found.warnings] == [code]
    assert not of_kubelet(found)


INSIDE = "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d"


def inside(distribution: str, unit: str, folder: str = "", **changes: object) -> NodeFacts:
    """Return a node whose kubelet is a part of a distribution."""
    given = {"config": "", "config_dir": folder, "flags": (), "program": distribution, **changes}
    facts = node(distribution=distribution, unit=unit, **given)
    defaults = make_file("kind: KubeletConfiguration\nmaxPods: 110\n")
    return replace(facts, files=facts.files | {f"{folder}/00-k3s-defaults.conf": defaults}) if folder else facts


def test_the_kubelet_inside_k3s_gets_a_file_of_its_folder_and_k3s_a_restart() -> None:
    facts = inside("k3s", "k3s-agent.service", INSIDE)

    found = plan(facts, declared())

    assert steps(found.items) == [
        ("write", KUBELET_RECORD_PATH),
        ("write", f"{INSIDE}/99-grapnel.conf"),
        ("restart", "k3s-agent.service"),
    ]
    assert found.disruption is Disruption.DRAIN
    assert found.roles.kubelet is not None
    assert found.roles.kubelet.kubelet_unit == "k3s-agent.service"
    done = simulate_apply(facts, found)
    assert plan(done, declared()).is_empty
    back = plan(done, make_stack())
    assert ("remove", f"{INSIDE}/99-grapnel.conf") in steps(back.items)


@pytest.mark.parametrize(
    ("distribution", "unit", "config", "folder"),
    [
        ("k0s", "k0sworker.service", "/var/lib/k0s/kubelet-config.yaml", "/etc/k0s/kubelet.conf.d"),
        ("microk8s", "snap.microk8s.daemon-kubelite.service", "", "/var/snap/microk8s/common/kubelet.conf.d"),
    ],
)
def test_a_kubelet_that_a_distribution_was_told_a_folder_for_gets_a_file_there_and_nothing_else(
    distribution: str, unit: str, config: str, folder: str
) -> None:
    facts = inside(distribution, unit, folder, config=config)
    if config:  # which k0s writes at every start
        facts = replace(facts, files=facts.files | {config: make_file("kind: KubeletConfiguration\n")})

    found = plan(facts, declared())

    assert not found.problems
    written = [("write", KUBELET_RECORD_PATH), ("write", f"{folder}/99-grapnel.conf"), ("restart", unit)]
    assert steps(found.items) == written
    done = simulate_apply(facts, found)
    assert plan(done, declared()).is_empty
    assert ("remove", f"{folder}/99-grapnel.conf") in steps(plan(done, make_stack()).items)


def test_a_kubelet_arg_of_k3s_counts_more_than_any_file() -> None:
    (problem,) = plan(inside("k3s", "k3s.service", INSIDE, flags=("cpu-manager-policy",)), declared()).problems

    assert problem.code == "kubelet-flag"


def test_a_flag_that_a_newer_kubelet_does_not_start_with_is_told_before_the_upgrade() -> None:
    part = plan(node(flags=("config", "containerd", "housekeeping-interval", "boot-id-file")), declared())

    (warning,) = part.warnings
    assert warning.code == "kubelet-flag-gone"
    assert "starts the kubelet with --containerd, --boot-id-file: from Kubernetes 1.37 on" in warning.message
    assert not part.problems
    assert part.items
    assert not plan(node(flags=("config", "housekeeping-interval")), declared()).warnings


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (CgroupV1(kubelet="1.35.2"), "has cgroup v1, and its kubelet 1.35.2 does not start there"),
        (CgroupV1(kubelet="1.34.4+x"), "has cgroup v1, and from Kubernetes 1.35 on, a kubelet does not start there"),
        (CgroupV1(kubelet="1.37.2", allowed=True), None),
        (CgroupV1(kubelet=""), None),
        (None, None),
    ],
)
def test_cgroup_v1_is_told_before_a_kubelet_does_not_start(state: CgroupV1 | None, told: str | None) -> None:
    facts = replace(configured(), cgroup_v1=state)
    found = plan(facts).warnings
    assert [(each.code, each.message) for each in found] == ([] if told is None else [("cgroup-v1", f"n1 {told}")])
    without = make_stack(plugin={"enabled": False})
    assert "cgroup-v1" not in {each.code for each in plan(facts, without).warnings}


@pytest.mark.parametrize(
    ("distribution", "unit", "way"),
    [
        ("k3s", "k3s.service", "update it to 1.32 or later, or write kubelet-arg into /etc/rancher/k3s/config.yaml"),
        ("rke2", "rke2-agent.service", "/etc/rancher/rke2/config.yaml"),
        ("k0s", "k0sworker.service", "spec.workerProfiles"),
        ("microk8s", "snap.microk8s.daemon-kubelite.service", "/var/snap/microk8s/current/args/kubelet"),
    ],
)
def test_a_kubelet_without_a_folder_inside_of_a_distribution_is_refused_with_its_own_way(
    distribution: str, unit: str, way: str
) -> None:
    (problem,) = plan(inside(distribution, unit), declared()).problems

    assert problem.code == "kubelet-of-distribution"
    assert f"is a part of {distribution}" in problem.message
    assert way in problem.hint


def later(text: str) -> NodeFacts:
    facts = node()
    return replace(facts, files=facts.files | {f"{FOLDER}/99-other.conf": make_file(text)})


REFUSED = {
    "a command line with settings in flags": (
        node(config="", config_dir=""),
        declared(),
        "kubelet-without-config",
    ),
    "a flag that counts more": (node(flags=("config", "cpu-manager-policy")), declared(), "kubelet-flag"),
    "a later file that says something else": (
        later("cpuManagerPolicy: none\n"),
        declared(),
        "kubelet-overridden",
    ),
    "a file that is not YAML": (later("a: [\n"), declared(), "kubelet-config"),
    "its own file in one line": (
        node(folder=False, text='{"kind": "KubeletConfiguration"}'),
        declared(),
        "kubelet-config",
    ),
    "its own file with anchors": (node(text="a: &b 1\nc: *b\n"), declared(), "kubelet-config"),
    "static without reserved cpus": (node(), declared(cpuManagerPolicy="static"), "kubelet-no-reserved-cpus"),
    "reserved memory that is not the sum": (
        node(),
        declared(memoryManagerPolicy="Static", reservedMemory=[{"numaNode": 0, "limits": {"memory": "1Gi"}}]),
        "kubelet-reserved-memory",
    ),
    "a record that cannot be read": (edit_file(node(), KUBELET_RECORD_PATH, "{"), make_stack(), "kubelet-record"),
}


@pytest.mark.parametrize(("facts", "stack", "code"), REFUSED.values(), ids=REFUSED)
def test_what_the_kubelet_would_not_do_is_refused(facts: NodeFacts, stack: StackSpec, code: str) -> None:
    found = plan(facts, stack)

    assert [problem.code for problem in found.problems] == [code]
    assert found.roles.kubelet is None


def test_reserved_memory_is_the_sum_of_all_files() -> None:
    stack = declared(
        memoryManagerPolicy="Static",
        systemReserved={"memory": "824Mi"},
        reservedMemory=[
            {"numaNode": 0, "limits": {"memory": "512Mi"}},
            {"numaNode": 1, "limits": {"memory": "512Mi"}},
        ],
    )

    assert not plan(node(), stack).problems  # 824 and kubeadm's 200


def test_reserved_cpus_of_the_kubelets_own_file_are_enough() -> None:
    facts = node(text=KUBEADMS + "systemReserved:\n  cpu: 500m\n")

    assert not plan(facts, declared(cpuManagerPolicy="static")).problems

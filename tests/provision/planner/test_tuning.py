"""The kernel's settings: which are made while it runs, which take a reboot, and how they are given back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.facts.kernel import KernelState
from provision.planning.node_plan import Action, Disruption
from provision.planning.render.tuning import GRUB_PATH, SYSCTL_PATH, TUNING_RECORD_PATH
from tests.provision.samples import (
    configured,
    edit_file,
    edit_service,
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

EVERYTHING = {"numaBalancing": False, "hugepages": {"2Mi": 512, "1Gi": 4}, "iommu": "passthrough"}


def declared(**kernel: object) -> StackSpec:
    return make_stack(node={"kernel": kernel or EVERYTHING})


def on_arm() -> NodeFacts:
    """Return the same node with the other architecture."""
    facts = node()
    return replace(facts, node=replace(facts.node, architecture="aarch64"))


def node(**changes: object) -> NodeFacts:
    """Return a node that is as declared otherwise, with Debian's boot loader."""
    kernel = KernelState(numa_balancing=1, hugepages={"2Mi": 0, "1Gi": 0}, boot_loader="grub")
    return replace(configured(make_stack()), kernel=replace(kernel, **changes))


def test_numa_balancing_is_switched_while_everything_runs() -> None:
    found = plan(node(), declared(numaBalancing=False))

    assert steps(found.items) == [
        ("write", TUNING_RECORD_PATH),
        ("write", SYSCTL_PATH),
        ("set", "kernel.numa_balancing"),
    ]
    assert found.disruption is Disruption.NONE


def test_huge_pages_take_a_drained_node_and_a_kubelet_that_counts_them_again() -> None:
    facts = edit_service(node(), "kubelet.service", load="loaded", active="active")

    found = plan(facts, declared(hugepages={"2Mi": 512}))

    assert steps(found.items)[2:] == [("set", "vm.nr_hugepages"), ("restart", "kubelet.service")]
    assert found.disruption is Disruption.DRAIN
    assert found.roles.kubelet is not None
    assert found.roles.kubelet.kubelet_restart


def test_a_node_without_a_kubelet_restarts_none() -> None:
    assert plan(node(), declared(hugepages={"2Mi": 512})).roles.kubelet is None


def test_what_only_a_boot_makes_takes_a_reboot() -> None:
    facts = node()
    found = plan(facts, declared(hugepages={"1Gi": 4}, iommu="passthrough"))

    assert steps(found.items) == [
        ("write", TUNING_RECORD_PATH),
        ("write", GRUB_PATH),
        ("reboot", "kernel"),
    ]
    assert found.disruption is Disruption.REBOOT
    variables = found.roles.tuning
    assert variables is not None
    assert variables.tuning_boot_id == facts.node.boot_id
    assert variables.tuning_boot_arguments == ("intel_iommu=on", "iommu=pt", "hugepagesz=1G", "hugepages=4")
    assert variables.tuning_files[1].content == (
        'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX intel_iommu=on iommu=pt hugepagesz=1G hugepages=4"\n'
    )


@pytest.mark.parametrize(("iommu", "argument"), [("enabled", "passthrough=0"), ("passthrough", "passthrough=1")])
def test_the_iommu_of_arm_is_told_by_a_word_of_its_own(iommu: str, argument: str) -> None:
    found = plan(on_arm(), declared(iommu=iommu))

    assert found.roles.tuning is not None
    assert found.roles.tuning.tuning_boot_arguments == (f"iommu.{argument}",)
    assert plan(simulate_apply(on_arm(), found), declared(iommu=iommu)).is_empty


def test_grubby_is_told_without_a_file() -> None:
    found = plan(node(boot_loader="grubby"), declared(iommu="enabled"))

    assert steps(found.items) == [("write", TUNING_RECORD_PATH), ("reboot", "kernel")]
    assert found.roles.tuning is not None
    assert found.roles.tuning.tuning_boot_loader == "grubby"


@pytest.mark.parametrize("loader", ["grub", "grubby"])
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(loader: str) -> None:
    facts = node(boot_loader=loader)
    after = simulate_apply(facts, plan(facts, declared()))

    assert plan(after, declared()).is_empty


@pytest.mark.parametrize("loader", ["grub", "grubby"])
def test_what_is_declared_no_more_gets_its_former_value(loader: str) -> None:
    facts = node(boot_loader=loader)
    after = simulate_apply(facts, plan(facts, declared()))

    found = plan(after, make_stack())
    again = simulate_apply(after, found)

    assert found.disruption is Disruption.REBOOT
    assert again.kernel == facts.kernel
    assert [again.file(path) for path in (SYSCTL_PATH, GRUB_PATH, TUNING_RECORD_PATH)] == [None] * 3
    assert plan(again, make_stack()).is_empty


def test_a_value_that_somebody_has_set_since_stays_theirs() -> None:
    facts = node()
    after = simulate_apply(facts, plan(facts, declared(hugepages={"2Mi": 512})))
    assert after.kernel is not None
    after = replace(after, kernel=replace(after.kernel, hugepages={"2Mi": 700, "1Gi": 0}))

    assert Action.SET not in {item.action for item in plan(after, make_stack()).items}


def test_a_value_that_somebody_has_set_by_hand_is_set_again() -> None:
    facts = node()
    after = simulate_apply(facts, plan(facts, declared(numaBalancing=False)))
    assert after.kernel is not None
    drifted = replace(after, kernel=replace(after.kernel, numa_balancing=1))

    assert steps(plan(drifted, declared(numaBalancing=False)).items) == [("set", "kernel.numa_balancing")]


def test_the_former_value_outlives_a_new_declaration() -> None:
    facts = node()
    first = simulate_apply(facts, plan(facts, declared(hugepages={"2Mi": 512})))
    second = simulate_apply(first, plan(first, declared(hugepages={"2Mi": 1024})))

    assert '"vm.nr_hugepages": "0"' in text_of(second, TUNING_RECORD_PATH).partition('"former"')[2]


REFUSED = {
    "no numa": (node(numa_balancing=None), declared(numaBalancing=True), "kernel-setting"),
    "no such pages": (node(hugepages={"512Mi": 0}), declared(hugepages={"2Mi": 4}), "kernel-setting"),
    "no large pages": (node(hugepages={"2Mi": 0}), declared(hugepages={"1Gi": 4}), "kernel-setting"),
    "no IOMMU to switch off": (on_arm(), declared(iommu="disabled"), "kernel-setting"),
    "no boot loader": (node(boot_loader=""), declared(iommu="enabled"), "boot-loader-unknown"),
    "a record that cannot be read": (edit_file(node(), TUNING_RECORD_PATH, "[]"), make_stack(), "tuning-record"),
    "facts of an older collection": (replace(node(), kernel=None), declared(), "kernel-setting"),
}


@pytest.mark.parametrize(("facts", "stack", "code"), REFUSED.values(), ids=REFUSED)
def test_what_the_node_cannot_have_is_refused(facts: NodeFacts, stack: StackSpec, code: str) -> None:
    found = plan(facts, stack)

    assert [problem.code for problem in found.problems] == [code]
    assert found.roles.tuning is None

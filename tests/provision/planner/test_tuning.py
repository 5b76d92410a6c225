"""The kernel's settings: which are made while it runs, which take a reboot, and how they are given back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.facts.kernel import KernelState
from provision.planning.node_plan import Action, Disruption
from provision.planning.render.tuning import CMDLINE_PATH, GRUB_PATH, SYSCTL_PATH, TUNING_RECORD_PATH
from tests.provision.samples import (
    configured,
    edit_file,
    edit_file_state,
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


def with_cmdline(facts: NodeFacts, *arguments: str) -> NodeFacts:
    """Return a node of the RHEL family that says what its next kernels are started with."""
    facts = replace(facts, kernel=replace(facts.kernel, boot_loader="grubby", arguments=arguments))
    return edit_file(facts, CMDLINE_PATH, f"root=UUID=ec0ebe42 ro {' '.join(arguments)} crashkernel=1G-4G:192M\n\n")


def test_kernels_that_come_are_started_with_the_same_arguments() -> None:
    """A kernel that was installed after the apply came without them, where /etc/kernel/cmdline says what they are."""
    facts = with_cmdline(node())
    found = plan(facts, declared(iommu="passthrough"))
    after = simulate_apply(facts, found)
    back = plan(after, make_stack())

    assert steps(found.items) == [("write", TUNING_RECORD_PATH), ("write", CMDLINE_PATH), ("reboot", "kernel")]
    assert text_of(after, CMDLINE_PATH).endswith("crashkernel=1G-4G:192M intel_iommu=on iommu=pt\n\n")
    assert plan(after, declared(iommu="passthrough")).is_empty
    assert text_of(simulate_apply(after, back), CMDLINE_PATH) == text_of(facts, CMDLINE_PATH)


def test_arguments_that_somebody_takes_out_for_kernels_that_come_are_put_back() -> None:
    after = simulate_apply(with_cmdline(node()), plan(with_cmdline(node()), declared(iommu="enabled")))
    drifted = edit_file(after, CMDLINE_PATH, "root=UUID=ec0ebe42 ro\n")

    found = plan(drifted, declared(iommu="enabled"))

    assert steps(found.items) == [("write", CMDLINE_PATH)]
    assert found.roles.tuning is not None
    assert found.roles.tuning.tuning_boot_loader == "grubby"


def test_what_kernels_that_come_are_started_with_has_to_be_text() -> None:
    """It was left as it was, and kernels that came were started without the arguments."""
    facts = edit_file_state(with_cmdline(node()), CMDLINE_PATH, content=None)

    found = plan(facts, declared(iommu="passthrough"))

    assert [problem.code for problem in found.problems] == ["kernel-setting"]
    assert CMDLINE_PATH in found.problems[0].message
    assert plan(facts, declared(numaBalancing=False)).problems == ()


def test_a_number_of_pages_is_not_taken_for_that_of_another_size() -> None:
    """The number was left out for kernels that come, and the site's own one was taken away with grapnel's."""
    facts = with_cmdline(node(), "hugepagesz=2M", "hugepages=4")
    facts = replace(facts, kernel=replace(facts.kernel, arguments=()))  # such as for kernels that come alone
    after = simulate_apply(facts, plan(facts, declared(hugepages={"1Gi": 4})))
    more = simulate_apply(after, plan(after, declared(hugepages={"1Gi": 8})))

    assert "hugepagesz=2M hugepages=4 crashkernel=1G-4G:192M hugepagesz=1G hugepages=4" in text_of(after, CMDLINE_PATH)
    assert "hugepagesz=2M hugepages=4 crashkernel=1G-4G:192M hugepagesz=1G hugepages=8" in text_of(more, CMDLINE_PATH)
    assert text_of(simulate_apply(more, plan(more, make_stack())), CMDLINE_PATH) == text_of(facts, CMDLINE_PATH)


def test_what_the_kernel_has_from_others_stays_theirs() -> None:
    """It was noted as grapnel's, and taken from the site when it was declared no more."""
    facts = with_cmdline(node(), "intel_iommu=on", "hugepagesz=1G", "hugepages=4")
    first = plan(facts, declared(iommu="passthrough", hugepages={"1Gi": 4}))
    after = simulate_apply(facts, first)
    assert after.kernel is not None
    after = replace(after, kernel=replace(after.kernel, arguments=(*facts.kernel.arguments, "iommu=pt")))

    assert first.roles.tuning is not None
    assert first.roles.tuning.tuning_boot_arguments == ("iommu=pt",)
    assert plan(after, declared(iommu="passthrough", hugepages={"1Gi": 4})).is_empty
    assert text_of(simulate_apply(after, plan(after, make_stack())), CMDLINE_PATH) == text_of(facts, CMDLINE_PATH)


def test_what_somebody_told_an_unknown_boot_loader_is_enough() -> None:
    facts = node(boot_loader="", arguments=("intel_iommu=on", "iommu=pt", "hugepagesz=1G", "hugepages=4"))

    assert plan(facts, declared(iommu="passthrough", hugepages={"1Gi": 4})).is_empty


def test_another_number_of_pages_is_told_with_its_size() -> None:
    """By grubby, which exchanges the former one."""
    facts = node(boot_loader="grubby", arguments=("hugepagesz=1G", "hugepages=4"))

    found = plan(facts, declared(hugepages={"1Gi": 8}))

    assert found.roles.tuning is not None
    assert found.roles.tuning.tuning_boot_arguments == ("hugepagesz=1G", "hugepages=8")


@pytest.mark.parametrize(
    ("loader", "theirs"),
    [
        pytest.param("grub", ("hugepagesz=1G", "hugepages=4"), id="the kernel takes the first number of a size"),
        pytest.param("grub", ("default_hugepagesz=1G", "hugepages=4"), id="the same of the default size"),
        pytest.param("grubby", ("hugepagesz=2M", "hugepages=8"), id="grubby takes away what has the same names"),
        pytest.param("grubby", ("hugepages=8",), id="the same without a size"),
    ],
)
def test_pages_that_others_tell_the_kernel_are_in_the_way(loader: str, theirs: tuple[str, ...]) -> None:
    """An apply came to its end, and the kernel had another number of pages, or the site's were gone for good."""
    facts = node(boot_loader=loader, arguments=theirs)

    found = plan(facts, declared(hugepages={"1Gi": 8}))

    assert [problem.code for problem in found.problems] == ["kernel-setting"]
    assert " ".join(theirs) in found.problems[0].message


@pytest.mark.parametrize("loader", ["grub", "grubby"])
def test_another_number_of_our_pages_goes_on_after_a_run_that_was_killed(loader: str) -> None:
    facts = node(boot_loader=loader)
    first = simulate_apply(facts, plan(facts, declared(hugepages={"1Gi": 4})))
    second = simulate_apply(first, plan(first, declared(hugepages={"1Gi": 8})))
    killed = replace(second, kernel=first.kernel, node=first.node)  # files were written, and nothing else done
    third = plan(killed, declared(hugepages={"1Gi": 16}))

    assert ("reboot", "kernel") in steps(plan(killed, declared(hugepages={"1Gi": 8})).items)
    assert third.problems == ()
    assert plan(simulate_apply(killed, third), declared(hugepages={"1Gi": 16})).is_empty


@pytest.mark.parametrize("loader", ["grub", "grubby"])
@pytest.mark.parametrize("kept", [{"iommu": "enabled"}, {"numaBalancing": False}])
def test_what_a_run_that_failed_has_not_taken_back_is_taken_back(loader: str, kept: dict[str, object]) -> None:
    """The record had forgotten it, so that the next plan was empty, and the kernel went on with it."""
    facts = node(boot_loader=loader)
    first = simulate_apply(facts, plan(facts, declared(iommu="passthrough", numaBalancing=False)))
    second = simulate_apply(first, plan(first, declared(**kept)))
    failed = replace(second, kernel=first.kernel, node=first.node)  # such as by update-grub, after files were written

    again = plan(failed, declared(**kept))
    back = plan(failed, declared(iommu="passthrough"))

    assert ("reboot", "kernel") in steps(again.items)
    assert again.roles.tuning is not None
    assert "iommu=pt" in again.roles.tuning.tuning_boot_former
    assert plan(simulate_apply(failed, again), declared(**kept)).is_empty
    assert back.roles.tuning is not None
    assert "iommu=pt" in back.roles.tuning.tuning_boot_arguments


def test_what_was_ours_before_a_boot_is_not_ours_for_good() -> None:
    """Others tell the kernel the same: no reboot takes that away."""
    facts = node(arguments=("iommu=pt",))
    facts = edit_file(facts, TUNING_RECORD_PATH, '{"bootArguments": ["intel_iommu=on", "iommu=pt"]}')
    after = simulate_apply(facts, plan(facts, declared(iommu="enabled")))
    after = replace(after, kernel=replace(after.kernel, arguments=("iommu=pt", "intel_iommu=on")))

    assert plan(after, declared(iommu="enabled")).is_empty


def test_what_tuned_has_the_last_word_about_is_refused() -> None:
    facts = node(tuned_arguments=("hugepagesz=2M", "hugepages=512", "iommu=off"))

    found = plan(facts, declared(iommu="passthrough", hugepages={"1Gi": 4}))

    assert [problem.code for problem in found.problems] == ["kernel-arguments-of-tuned"]
    assert "with iommu=off, which counts more than iommu=pt" in found.problems[0].message


def test_what_tuned_says_as_well_goes_on_when_it_is_declared_no_more() -> None:
    """A reboot would not take it away, and was planned again and again."""
    facts = node(tuned_arguments=("intel_iommu=on",))
    after = simulate_apply(facts, plan(facts, declared(iommu="enabled")))

    assert steps(plan(after, make_stack()).items) == [("remove", GRUB_PATH), ("remove", TUNING_RECORD_PATH)]


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
    "no boot loader, with pages of others": (
        node(boot_loader="", arguments=("hugepages=8",)),
        declared(hugepages={"1Gi": 4}),
        "boot-loader-unknown",
    ),
    "facts of an older collection": (replace(node(), kernel=None), declared(), "kernel-setting"),
}


@pytest.mark.parametrize(("facts", "stack", "code"), REFUSED.values(), ids=REFUSED)
def test_what_the_node_cannot_have_is_refused(facts: NodeFacts, stack: StackSpec, code: str) -> None:
    found = plan(facts, stack)

    assert [problem.code for problem in found.problems] == [code]
    assert found.roles.tuning is None
